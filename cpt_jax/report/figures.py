"""Line charts over tokens, as SVG to stand inside an HTML page.

Runs differ in colour and in dash, phases are named in a strip above the curves, and the curves at
their ends.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cpt_jax.pages import svg
from cpt_jax.pages.svg import DASHES, MUTED, SERIES, STYLE, WIDTH
from cpt_jax.report.runs import Run

HEIGHT = 2.9  # inches
MAX_POINTS = 300  # of a curve in one phase; more are averaged
LABEL_LENGTH = 16  # characters


@dataclasses.dataclass(frozen=True)
class Curve:
    """An unbroken stretch of one run's curve."""

    run: int  # index in the page's list of runs
    tokens: np.ndarray
    values: np.ndarray
    targets: float | None = None  # that the last value is a mean over, where it is known


def training_curves(runs: Sequence[Run], field: str) -> list[Curve]:
    """Returns a field of the "train" lines, a curve per phase, as two losses do not connect."""
    curves = []
    for index, run in enumerate(runs):
        for phase in run.phases:
            lines = [line for line in run.train if line["phase"] == phase.name]
            if lines:
                tokens, values = (
                    np.array([line[key] for line in lines], float) for key in ("tokens", field)
                )
                curves.append(Curve(index, _thin(tokens), _thin(values)))
    return curves


def heldout_curves(runs: Sequence[Run], source: str, objective: str) -> list[Curve]:
    """Returns a source's held-out loss, a curve per run, from before the first step on."""
    curves = []
    for index, run in enumerate(runs):
        lines = [line for line in run.evals if line["source"] == source]
        if lines:
            tokens = np.array([line["tokens"] for line in lines], float)
            values = np.array([line[f"{objective}_loss"] for line in lines], float)
            curves.append(Curve(index, tokens, values, lines[-1].get(f"{objective}_targets")))
    return curves


def _thin(values: np.ndarray) -> np.ndarray:
    """Returns means of consecutive values, so that at most MAX_POINTS are left."""
    if len(values) <= MAX_POINTS:
        return values
    return np.array([part.mean() for part in np.array_split(values, MAX_POINTS)])


def draw(
    runs: Sequence[Run],
    curves: Sequence[Curve],
    *,
    title: str,
    markers: bool = False,
    unit: Callable[[float], str] = "{:.4g}".format,
) -> str:
    """Returns an ``<svg>`` element: the curves of some runs over tokens, under their phases.

    Args:
      runs: all runs of the page, of which those with a curve are drawn.
      curves: what to draw.
      title: what a screen reader says; also keeps the element's ids apart from other figures'.
      markers: whether each point is marked, for curves of few points.
      unit: how a value is written at the axis.
    """
    shown = sorted({curve.run for curve in curves})
    names = short_names([runs[i].label for i in shown]) if len(shown) > 1 else []
    with mpl.rc_context(STYLE):
        figure, above, axes = _canvas(0.17 * len(shown), max(map(len, names), default=0))
        for curve in curves:
            axes.plot(
                curve.tokens,
                curve.values,
                color=SERIES[curve.run % len(SERIES)],
                linestyle=DASHES[curve.run % len(DASHES)],
                marker="o" if markers or len(curve.tokens) == 1 else None,
                markersize=3.2,
            )
        axes.set_xlabel("tokens")
        axes.xaxis.set_major_formatter(lambda value, _: count(value))
        axes.yaxis.set_major_formatter(lambda value, _: unit(value))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.margins(x=0.01)
        _draw_phases(above, axes, runs, shown)
        _label_ends(axes, curves, dict(zip(shown, names, strict=False)))
        return svg.element(figure, title)


def _canvas(strip: float, letters: int) -> tuple[Figure, Axes, Axes]:
    """Returns a figure, its axes for phases and for curves, and room for letters at the right."""
    left, bottom, top = 0.52, 0.46, 0.03  # inches, as all of this
    right = 0.1 + 0.078 * letters
    width, height = WIDTH - left - right, HEIGHT - bottom - top
    figure = Figure(figsize=(WIDTH, HEIGHT + strip))

    def add(y: float, tall: float, **options: Any) -> Axes:
        w, h = figure.get_size_inches()
        return figure.add_axes((left / w, y / h, width / w, tall / h), **options)

    axes = add(bottom, height)
    return figure, add(bottom + height + 0.02, strip, sharex=axes), axes


def _draw_phases(above: Axes, axes: Axes, runs: Sequence[Run], shown: Sequence[int]) -> None:
    """Draws a bar per phase and run above the curves, and a line down where a phase begins."""
    above.axis("off")
    above.set_ylim(len(shown) - 0.5, -0.5)
    longest = max((phase.last_token for i in shown for phase in runs[i].phases), default=0)
    letter = 4.6 / 72 / (axes.get_position().width * WIDTH) * longest  # its width, in tokens
    for row, index in enumerate(shown):
        colour = SERIES[index % len(SERIES)]
        for number, phase in enumerate(runs[index].phases):
            width = phase.last_token - phase.first_token
            above.barh(
                row, width, left=phase.first_token, height=0.8, color=colour, alpha=0.22, lw=0
            )
            if number:
                above.barh(row, longest / 300, left=phase.first_token, height=0.8, color=colour)
                axes.axvline(phase.first_token, color=MUTED, linewidth=0.7, linestyle=(0, (1, 2)))
            if width > letter * len(phase.name):  # else it would not fit into the bar
                centre = phase.first_token + width / 2
                above.text(centre, row, phase.name, ha="center", va="center", fontsize=8)


def _label_ends(axes: Axes, curves: Sequence[Curve], names: Mapping[int, str]) -> None:
    """Writes the runs' names to the right of where their curves end, none over another."""
    last = {curve.run: curve for curve in curves}
    low, high = axes.get_ylim()
    heights = {i: (last[i].values[-1] - low) / (high - low) for i in names}
    # a value that is not finite has no height: its name goes to the bottom
    heights = {i: h if np.isfinite(h) else 0.0 for i, h in heights.items()}
    order = sorted(names, key=heights.__getitem__)
    placed = spread([heights[i] for i in order], gap=0.075)
    for index, height in zip(order, placed, strict=True):
        axes.annotate(
            names[index],
            (1.015, height),
            xycoords="axes fraction",
            va="center",
            fontsize=9,
            color=SERIES[index % len(SERIES)],
        )


def short_names(labels: Sequence[str]) -> list[str]:
    """Returns the labels without the words they all begin with, cut to LABEL_LENGTH."""
    words = [re.findall(r".+?(?:[\s_,/:-]+|$)", label) for label in labels]
    same = itertools.takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))
    common = len(list(same))
    names = ["".join(each[common:]) for each in words]
    return [n if len(n) <= LABEL_LENGTH else n[: LABEL_LENGTH - 1] + "…" for n in names]


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Returns ascending heights moved as little as it takes to be ``gap`` apart and end by 1."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = 1.0
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def scientific(number: float) -> str:
    """Returns a small number as short as it gets: 2e-4, 1.5e-4."""
    mantissa, exponent = f"{number:.1e}".split("e")
    return "0" if number == 0 else f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def count(number: float) -> str:
    """Returns a number as people say it: 2.5B, 300M, 12k, 7."""
    for factor, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor * 0.9995:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.3g}"
