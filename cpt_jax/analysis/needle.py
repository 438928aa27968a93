"""A fact in a haystack: can it be told from a frozen encoder's first token that it is there?

    python -m cpt_jax.analysis needle runs/detour runs/mlm --language fr --texts 'notes/*.jsonl' \\
        --out needle/

Pairs of a text with a fact in it and a question (`haystack`); states of the first token, computed
once for each model and kept in OUT/states; a probe for each seed (`probe.train`); accuracy by
length and place, with Wilson's intervals. Next to it a bag of words, which must stay near a half:
facts of the test split have values that are in no other.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle

from cpt_jax.analysis import probe
from cpt_jax.analysis.facts import FACTS, SPLITS
from cpt_jax.analysis.haystack import LENGTHS, PAIRS, PLACES, Pair, make
from cpt_jax.analysis.models import Opened, open_model
from cpt_jax.analysis.states import first_tokens, reduced
from cpt_jax.data.inputs import Fields, find_inputs, read_documents
from cpt_jax.directories import whole_file
from cpt_jax.finetune.encode import open_vocabulary
from cpt_jax.lock import say, tell
from cpt_jax.pages import svg
from cpt_jax.pages.blocks import Block, Figure, Heading, Paragraph, Table, markdown, page

BAG = "bag of words"


class Outcome(NamedTuple):
    """Which test pairs were answered rightly: shares over seeds, by pair.

    Attributes:
      name: the model's, or `BAG`.
      right: [test pairs], from 0 to 1.
    """

    name: str
    right: np.ndarray


def of_split(pairs: Sequence[Pair], split: str) -> list[Pair]:
    """The pairs of a split."""
    return [pair for pair in pairs if pair.split == split]


def answers(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """1 where the question is the fact, by split."""
    return {s: np.array([int(pair.answer) for pair in of_split(pairs, s)]) for s in SPLITS}


def probed(
    model: Opened, pairs: Sequence[Pair], seeds: int, how: probe.Training, cache: Path | None
) -> Outcome:
    """What probes on a model's first tokens come to."""
    pad = open_vocabulary(model.tokenizer).pad
    states = reduced(model, pad, [pair.ids for pair in pairs], first_tokens, cache, say)
    split = np.array([pair.split for pair in pairs])
    by_split = {name: states[split == name] for name in SPLITS}
    labels = answers(pairs)
    right = [probe.train(by_split, labels, seed, how) == labels["test"] for seed in range(seeds)]
    return Outcome(model.name, np.mean(right, axis=0))


def bag(pairs: Sequence[Pair], words: int) -> Outcome:
    """What a bag of words comes to."""
    rows = {split: [pair.ids for pair in of_split(pairs, split)] for split in SPLITS}
    labels = answers(pairs)
    return Outcome(BAG, (probe.bag_of_words(rows, labels, words) == labels["test"]) * 1.0)


def cell(right: np.ndarray) -> str:
    """A mean in percent, with Wilson's interval of as many pairs."""
    low, high = probe.wilson(round(right.sum()), len(right))
    return f"{100 * right.mean():.1f} ({100 * low:.0f} to {100 * high:.0f})"


def report(outcomes: Sequence[Outcome], pairs: Sequence[Pair]) -> list[Block]:
    """Accuracy of all, by length and by place; a map of both for each model."""
    test = of_split(pairs, "test")
    groups = {"all": np.ones(len(test), bool)}
    lengths = sorted({pair.length for pair in test})
    groups |= {f"{n:,} tokens": np.array([p.length == n for p in test]) for n in lengths}
    groups |= {f"at its {at}": np.array([p.place == at for p in test]) for at in PLACES}
    rows = [
        [name, *(cell(outcome.right[chosen]) for outcome in outcomes)]
        for name, chosen in groups.items()
    ]
    said = f"{len(test)} test pairs, half of them with the fact that is asked for; accuracy in %."
    blocks: list[Block] = [
        Paragraph(f"{said} Intervals are Wilson's, 95 %, of so many pairs."),
        Table(["test pairs", *(outcome.name for outcome in outcomes)], rows),
    ]
    blocks.append(Heading("By length and place"))
    for outcome in outcomes:
        values = [
            [
                outcome.right[groups[f"{n:,} tokens"] & groups[f"at its {at}"]].mean()
                for n in lengths
            ]
            for at in PLACES
        ]
        drawn = heat_map(outcome.name, np.array(values), [f"{n:,}" for n in lengths])
        blocks.append(Figure(outcome.name, drawn, "Accuracy in %, by length in tokens and place."))
    return blocks


def heat_map(title: str, values: np.ndarray, lengths: Sequence[str]) -> str:
    """Accuracy by place and length; a cell is the darker the more it is above a half."""
    with mpl.rc_context({**svg.STYLE, "axes.grid": False}):
        figure = Drawing(figsize=(svg.WIDTH, 1.8), layout="constrained")
        axes = figure.add_subplot()
        for (row, column), value in np.ndenumerate(values):
            shade = float(np.clip(1.6 * (value - 0.5), 0, 0.8))
            corner = column - 0.5, row - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, color=svg.SERIES[0], alpha=shade, linewidth=0))
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center")
        axes.set_xlim(-0.5, values.shape[1] - 0.5)
        axes.set_ylim(values.shape[0] - 0.5, -0.5)
        axes.set_xticks(range(values.shape[1]), lengths)
        axes.set_yticks(range(values.shape[0]), list(PLACES))
        return svg.element(figure, title)


def main(arguments: Sequence[str]) -> None:
    """Asks, and writes the page.

    Raises: ValueError, OSError: what cannot be asked, read or written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.analysis needle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--language", choices=tuple(FACTS), required=True, help="of the facts")
    parser.add_argument("--texts", nargs="+", required=True, help="haystacks, as for data.prepare")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="tokens")
    parser.add_argument("--seeds", type=int, default=3, help="probes of a model (3)")
    parser.add_argument(
        "--epochs", type=int, default=probe.Training().epochs, help="of a probe (3)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=probe.Training().learning_rate, help="(2e-5)"
    )
    parser.add_argument("--out", type=Path, required=True, help="directory of the page")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.epochs) < 1 or not options.learning_rate > 0:
        raise ValueError("seeds, epochs: 1 or more; learning_rate: above 0")
    models = [open_model(name) for name in dict.fromkeys(options.models)]
    for model in models:
        longest = model.spec.max_position_embeddings
        if max(options.lengths) > longest:
            raise ValueError(f"lengths: {max(options.lengths)}; {model.name} reads {longest}")
    fields = Fields("text", "id", None)
    texts = [
        one.text for item in find_inputs(options.texts) for one in read_documents(item, fields)
    ]
    how = probe.Training(epochs=options.epochs, learning_rate=options.learning_rate)
    outcomes, pairs = [], []
    for model in models:
        vocabulary = open_vocabulary(model.tokenizer)
        pairs = make(options.language, texts, vocabulary, sorted(set(options.lengths)))
        outcomes.append(probed(model, pairs, options.seeds, how, options.out / "states"))
    outcomes.append(bag(pairs, models[-1].spec.vocab_size))
    blocks = report(outcomes, pairs)
    counts = ", ".join(f"{n * 6 * len(set(options.lengths)):,} {s}" for s, n in PAIRS.items())
    title = f"A fact in a haystack ({options.language}; pairs: {counts})"
    with whole_file(options.out / "needle.md") as file:
        file.write(markdown(blocks, title))
    with whole_file(options.out / "needle.html") as file:
        file.write(page("A fact in a haystack", title, blocks))
    tell(markdown(blocks))
