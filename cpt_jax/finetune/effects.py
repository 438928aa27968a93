"""The plot of one model's differences from another: a line for each task, and the means below."""

import matplotlib as mpl
from matplotlib.figure import Figure

from cpt_jax.finetune.verdicts import Estimate
from cpt_jax.pages.svg import GRID, INK, MUTED, SERIES, STYLE, WIDTH, element

ROW = 0.26  # inches
LETTER = 0.075  # inches, at the font size of the names
NAME_LENGTH = 22  # characters


def draw(title: str, rows: list[tuple[str, Estimate]], means: int) -> str:
    """Returns an ``<svg>`` element: estimates with their intervals, in points, one under the other.

    Args:
      title: what a screen reader says.
      rows: names and differences as fractions.
      means: how many of the last rows are means over the others.
    """
    names = [n if len(n) <= NAME_LENGTH else n[: NAME_LENGTH - 1] + "…" for n, _ in rows]
    left, bottom, top = 0.15 + LETTER * max(map(len, names)), 0.5, 0.06
    tall = ROW * len(rows)
    height = tall + bottom + top
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH, height))
        box = (left / WIDTH, bottom / height, 1 - (left + 0.1) / WIDTH, tall / height)
        axes = figure.add_axes(box)
        axes.axvline(0, color=MUTED, linewidth=1)
        for row, (_, estimate) in enumerate(rows):
            mean = row >= len(rows) - means
            colour = INK if mean else SERIES[0]
            if estimate.low is not None and estimate.high is not None:
                axes.plot([100 * estimate.low, 100 * estimate.high], [row, row], color=colour)
            axes.plot([100 * estimate.mean], [row], "D" if mean else "o", color=colour, ms=5)
        axes.axhline(len(rows) - means - 0.5, color=GRID, linewidth=0.8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), names)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlabel("difference in points, with 95 % intervals")
        axes.margins(x=0.04)
        return element(figure, title)
