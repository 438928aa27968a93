"""Where two models differ: 1 - CKA of every layer, next to a control, with curves.

    python -m cpt_jax.analysis cka runs/detour runs/mlm --control runs/mlm runs/mlm_seed43 \\
        --texts 'heldout/*.jsonl' --out cka/
    python -m cpt_jax.analysis cka runs/detour runs/mlm --along runs/detour --texts ... --out cka/

Models are Hugging Face directories or ids, runs of ours, or their checkpoints, RUN@STEP or
RUN@PHASE. A seed is another draw of the texts. The control is what two models differ by that
nothing but a seed tells apart: the ratio to it says what is more than noise. ``--along`` compares
each checkpoint of a run with B. States are computed once for each model and kept in OUT/states.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing

from cpt_jax import checkpoint
from cpt_jax.analysis.cka import LEAST, cka, debiased, gram
from cpt_jax.analysis.models import Opened, check_alike, open_model, regions_of
from cpt_jax.analysis.states import layer_means
from cpt_jax.data.inputs import Fields, find_inputs, read_documents
from cpt_jax.directories import whole_file
from cpt_jax.lock import say, tell
from cpt_jax.pages import svg
from cpt_jax.pages.blocks import Block, Figure, Heading, Table, markdown, page
from cpt_jax.seeds import hash_seed

EMBEDDINGS = "embeddings"


class Divergence(NamedTuple):
    """1 - CKA by seed and layer, the embeddings before the others.

    Attributes:
      biased: the paper's.
      debiased: without what few texts add.
    """

    biased: Float[np.ndarray, "S layers"]
    debiased: Float[np.ndarray, "S layers"]


class Sample(NamedTuple):
    """Texts, and which of them each seed has."""

    texts: list[str]
    draws: list[np.ndarray]


def draw(inputs: Sequence[str], count: int, seeds: int) -> Sample:
    """So many texts for each seed.

    Raises: ValueError: there are too few, or no input.
    """
    if count < LEAST or seeds < 1:
        raise ValueError(f"{count} texts, {seeds} seeds; allowed: {LEAST} or more, and 1 or more")
    fields = Fields("text", "id", None)
    texts = [one.text for item in find_inputs(inputs) for one in read_documents(item, fields)]
    wanted = count + (seeds > 1)  # or all seeds would be one
    if len(texts) < wanted:
        raise ValueError(f"--texts: {len(texts):,} there; {wanted:,} or more are needed")
    draws = [
        np.random.default_rng(hash_seed("cka", seed)).choice(len(texts), count, replace=False)
        for seed in range(seeds)
    ]
    used, places = np.unique(np.concatenate(draws), return_inverse=True)
    return Sample([texts[i] for i in used], list(places.reshape(seeds, count)))


def divergence(
    a: Float[np.ndarray, "layers texts D"],
    b: Float[np.ndarray, "layers texts D"],
    draws: Sequence[np.ndarray],
) -> Divergence:
    """Of two models' states of the same texts, for each draw of them."""
    found = []
    for chosen in draws:
        pairs = [(gram(x[chosen]), gram(y[chosen])) for x, y in zip(a, b, strict=True)]
        found.append([(1 - cka(*pair), 1 - debiased(*pair)) for pair in pairs])
    values = np.array(found)
    return Divergence(values[..., 0], values[..., 1])


def names_of(layers: int) -> list[str]:
    """Of the states: the embeddings, then each layer by its number."""
    return [EMBEDDINGS, *map(str, range(layers))]


def tables(pair: Divergence, control: Divergence | None, regions: dict[str, range]) -> list[Block]:
    """Means over seeds, with their standard deviations; then the means of regions."""
    head = ["layer", "divergence", "± over draws", "debiased"]
    columns = [pair.biased.mean(0), _spread(pair.biased), pair.debiased.mean(0)]
    if control is not None:
        head += ["control", "ratio"]
        columns += [control.biased.mean(0), pair.biased.mean(0) / control.biased.mean(0)]
    names = names_of(pair.biased.shape[1] - 1)
    rows = [[name, *(f"{column[i]:.4g}" for column in columns)] for i, name in enumerate(names)]
    of_regions = [
        [name, *(f"{column[1:][list(layers)].mean():.4g}" for column in columns)]
        for name, layers in regions.items()
    ]
    return [Table(head, rows), Heading("Regions"), Table(["layers", *head[1:]], of_regions)]


def _spread(values: np.ndarray) -> np.ndarray:
    return values.std(0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)


def curves(title: str, series: dict[str, np.ndarray], label: str, names: Sequence[str]) -> str:
    """A line for each series [S, points], with a band from the least to the most of its seeds."""
    with mpl.rc_context(svg.STYLE):
        figure = Drawing(figsize=(svg.WIDTH, 3.0), layout="constrained")
        axes = figure.add_subplot()
        places = np.arange(len(names))
        for i, (name, values) in enumerate(series.items()):
            style = {"color": svg.SERIES[i], "linestyle": svg.DASHES[i % len(svg.DASHES)]}
            axes.plot(places, values.mean(0), label=name, **style)
            axes.fill_between(places, values.min(0), values.max(0), color=style["color"], alpha=0.2)
        step = -(-len(names) // 8)
        axes.set_xticks(places[::step], list(names)[::step])
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
        return svg.element(figure, title)


def trajectory(
    run: Path, b: Opened, states: Callable[[Opened], np.ndarray], draws: Sequence[np.ndarray]
) -> tuple[list[int], np.ndarray]:
    """The steps of a run's checkpoints, and their divergences from B: [steps, S, layers].

    Raises: ValueError: it has none.
    """
    steps = checkpoint.saved_steps(run)
    if not steps:
        raise ValueError(f"{run}: has no checkpoint")
    models = [open_model(f"{run}@{step}") for step in steps]
    check_alike([b, *models])
    found = [divergence(states(model), states(b), draws).biased for model in models]
    return steps, np.stack(found)


def main(arguments: Sequence[str]) -> None:
    """Compares, and writes the page.

    Raises: ValueError, OSError: what cannot be compared, read or written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.analysis cka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("models", nargs=2, metavar=("A", "B"))
    parser.add_argument("--control", nargs=2, metavar=("C", "D"), help="two that only a seed parts")
    parser.add_argument("--along", type=Path, metavar="RUN", help="its checkpoints against B")
    parser.add_argument("--texts", nargs="+", required=True, help="as --input of data.prepare")
    parser.add_argument("--count", type=int, default=500, help="texts of a draw (500)")
    parser.add_argument("--seeds", type=int, default=3, help="draws (3)")
    parser.add_argument("--max-length", type=int, default=512, help="tokens of a text (512)")
    parser.add_argument("--regions", help="layers whose means are told: 0-7,8-14,15-21 (thirds)")
    parser.add_argument("--out", type=Path, required=True, help="directory of the page")
    options = parser.parse_args(arguments)
    names = [*options.models, *(options.control or ())]
    models = {name: open_model(name) for name in names}
    check_alike(list(models.values()))
    longest = min(model.spec.max_position_embeddings for model in models.values())
    if not 3 <= options.max_length <= longest:
        raise ValueError(f"max_length: {options.max_length} is not from 3 to {longest}")
    layers = models[names[0]].spec.num_hidden_layers
    regions = regions_of(options.regions, layers)
    sample = draw(options.texts, options.count, options.seeds)

    def states(model: Opened) -> np.ndarray:
        return layer_means(model, sample.texts, options.max_length, options.out / "states", say)

    found = [divergence(states(a), states(b), sample.draws) for a, b in _pairs(models, names)]
    pair, control = found[0], found[1] if options.control else None
    blocks = report(pair, control, regions, layers)
    if options.along:
        steps, along = trajectory(options.along, models[names[1]], states, sample.draws)
        blocks += along_blocks(steps, along, control, regions)
    note = f"{names[0]} and {names[1]}"
    with whole_file(options.out / "cka.md") as file:
        file.write(markdown(blocks, f"Divergence of {note}"))
    with whole_file(options.out / "cka.html") as file:
        file.write(page("Divergence by layer", note, blocks))
    tell(markdown(blocks))


def _pairs(models: dict[str, Opened], names: Sequence[str]) -> list[tuple[Opened, Opened]]:
    return [(models[a], models[b]) for a, b in zip(names[::2], names[1::2], strict=True)]


def report(
    pair: Divergence, control: Divergence | None, regions: dict[str, range], layers: int
) -> list[Block]:
    """Tables, the raw curves and, with a control, the ratio to it."""
    series = {"A and B": pair.biased} | ({} if control is None else {"control": control.biased})
    names = names_of(layers)
    draws, count = pair.biased.shape[0], "draws of texts"
    caption = f"The mean of {draws} {count}; the band is from the least to the most."
    blocks = tables(pair, control, regions)
    raw = curves("Divergence by layer", series, "1 - CKA", names)
    blocks.append(Figure("Divergence by layer", raw, caption))
    if control is not None:
        ratio = {"A and B to control": pair.biased / control.biased}
        drawn = curves("Ratio to the control", ratio, "ratio", names)
        blocks.append(Figure("Ratio to the control", drawn, "1 is what a seed does."))
    return blocks


def along_blocks(
    steps: Sequence[int],
    along: Float[np.ndarray, "steps S layers"],
    control: Divergence | None,
    regions: dict[str, range],
) -> list[Block]:
    """The regions' means at each checkpoint, and of the control: what noise comes to."""
    of_regions = {
        name: along[..., 1:][..., list(layers)].mean(-1).T for name, layers in regions.items()
    }
    rows = [
        [f"{step:,}", *(f"{values[:, i].mean():.4g}" for values in of_regions.values())]
        for i, step in enumerate(steps)
    ]
    if control is not None:
        floor = [control.biased[:, 1:][:, list(layers)].mean() for layers in regions.values()]
        rows.append(["control", *(f"{value:.4g}" for value in floor)])
    title = "Divergence from B along the run"
    drawn = curves(title, of_regions, "1 - CKA", [f"{step:,}" for step in steps])
    return [
        Heading(title),
        Table(["step", *of_regions], rows),
        Figure(title, drawn, "Means of the layers of a region, by step."),
    ]
