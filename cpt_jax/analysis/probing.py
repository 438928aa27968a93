"""What each layer's states tell of a word, by linear probes, next to labels that mean nothing.

    python -m cpt_jax.analysis probe runs/detour runs/mlm --task ncbi_disease --data tasks/ \\
        --out probe/

Asked of words of a tagging task, at their first token: which entity it is in, half of the words
being in none; whether it has several tokens; which token stands before it, of the most frequent.
Each question has a control, a label drawn for each word type: what a probe gets right of it is
learnt by heart, and the difference is what the states tell (Hewitt and Liang, 2019).
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cpt_jax.analysis.divergence import curves, names_of
from cpt_jax.analysis.facts import SPLITS
from cpt_jax.analysis.linear import accuracy
from cpt_jax.analysis.models import Opened, open_model
from cpt_jax.analysis.states import at_places, reduced
from cpt_jax.analysis.words import Word, control, questions, words_of
from cpt_jax.directories import whole_file
from cpt_jax.finetune.encode import encode, open_vocabulary
from cpt_jax.finetune.tasks import find
from cpt_jax.finetune.tasks.loading import Loaded, load
from cpt_jax.lock import say, tell
from cpt_jax.pages.blocks import Block, Figure, Heading, Paragraph, Table, markdown, page


class Told(NamedTuple):
    """Accuracies on test by layer, the embeddings before the others.

    Attributes:
      asked: of the question.
      control: of the labels that mean nothing.
    """

    asked: np.ndarray
    control: np.ndarray


def states_of(model: Opened, words: Sequence[Word], cache: Path | None) -> np.ndarray:
    """[layers, words, D]: the states of the words' first tokens."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for word in words:
        rows.setdefault(tuple(word.ids), []).append(word.place)
    most = max(map(len, rows.values()))
    places = [[*each, *[0] * (most - len(each))] for each in rows.values()]
    pad = open_vocabulary(model.tokenizer).pad
    found = reduced(model, pad, list(rows), at_places, cache, say, places=places)
    where = {(ids, p): (r, i) for r, (ids, at) in enumerate(rows.items()) for i, p in enumerate(at)}
    chosen = [where[tuple(word.ids), word.place] for word in words]
    return np.stack([found[row, :, i] for row, i in chosen], axis=1)


def probe(model: Opened, loaded: Loaded, most: int, cache: Path | None) -> dict[str, Told]:
    """What a model's layers tell of a task's words, by question.

    Raises: ValueError: the task is of another kind than tagging, or a split has no words.
    """
    vocabulary = open_vocabulary(model.tokenizer)
    words = {}
    for split in SPLITS:
        share = 1 if split == "train" else 0.5
        examples, settings = loaded.splits[split], loaded.task.settings
        encoded = encode(examples, vocabulary, loaded.task.kind, loaded.labels, settings)
        words[split] = words_of(encoded, round(share * most))
    states = {split: states_of(model, words[split], cache) for split in SPLITS}
    return {
        name: Told(_by_layer(states, labels), _by_layer(states, control(words, labels)))
        for name, labels in questions(words).items()
    }


def _by_layer(states: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> np.ndarray:
    asked = {split: labels[split] >= 0 for split in SPLITS}
    of = {split: labels[split][asked[split]] for split in SPLITS}
    layers = len(states["train"])
    return np.array(
        [accuracy({s: states[s][i][asked[s]] for s in SPLITS}, of) for i in range(layers)]
    )


def report(told: Mapping[str, Mapping[str, Told]]) -> list[Block]:
    """A table and curves for each question, of all models: accuracy, and less the control."""
    blocks: list[Block] = [
        Paragraph("Accuracy on test words in percent, and in brackets what is above the control.")
    ]
    for question in next(iter(told.values())):
        of = {model: each[question] for model, each in told.items()}
        layers = names_of(len(next(iter(of.values())).asked) - 1)
        rows = [
            [
                name,
                *(
                    f"{100 * t.asked[i]:.1f} ({100 * (t.asked - t.control)[i]:+.1f})"
                    for t in of.values()
                ),
            ]
            for i, name in enumerate(layers)
        ]
        series = {model: (t.asked - t.control)[None] for model, t in of.items()}
        drawn = curves(question, series, "accuracy above the control", layers)
        caption = "What is right beyond labels that mean nothing, by layer."
        blocks += [Heading(question.capitalize()), Table(["layer", *of], rows)]
        blocks.append(Figure(question.capitalize(), drawn, caption))
    return blocks


def _cell(asked: float, control: float) -> str:
    return f"{100 * asked:.1f} ({100 * (asked - control):+.1f})"


def main(arguments: Sequence[str]) -> None:
    """Probes, and writes the page.

    Raises: ValueError, OSError: what cannot be probed, read or written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.analysis probe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--task", required=True, help="of kind tagging")
    parser.add_argument("--data", type=Path, required=True, help="directory of tasks")
    parser.add_argument("--words", type=int, default=4000, help="to learn from (4000)")
    parser.add_argument("--out", type=Path, required=True, help="directory of the page")
    options = parser.parse_args(arguments)
    if options.words < 8:
        raise ValueError(f"words: {options.words} is not 8 or more")
    task = find(options.task)
    if task.kind != "tagging":
        raise ValueError(f"task {task.name} is of kind {task.kind}; allowed: tagging")
    loaded = load(task, options.data)
    models = [open_model(name) for name in dict.fromkeys(options.models)]
    depths = {model.name: model.spec.num_hidden_layers for model in models}
    if len(set(depths.values())) > 1:
        raise ValueError(f"models of different numbers of layers: {depths}")
    cache = options.out / "states"
    told = {model.name: probe(model, loaded, options.words, cache) for model in models}
    blocks, title = report(told), f"What layers tell of words: {task.title}"
    with whole_file(options.out / "probe.md") as file:
        file.write(markdown(blocks, title))
    with whole_file(options.out / "probe.html") as file:
        file.write(page(title, "", blocks))
    tell(markdown(blocks))
