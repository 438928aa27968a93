"""How well two givers of grades agree, such as an LLM and a classifier that learnt from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import ArrayLike
from matplotlib.figure import Figure

from cpt_jax.curate.grades import CONTENTS, DOMAINS, SCORES, Grade
from cpt_jax.directories import whole_file
from cpt_jax.pages import blocks, svg

LABELS = {
    "educational": tuple(map(str, SCORES)),
    "content": CONTENTS,
    "domain": DOMAINS,
}
GOOD = 3.0  # paragraphs from there on are what mixtures select
NAME = "agreement"


class Labels(NamedTuple):
    """Agreement on one of several labels.

    Attributes:
      labels: all there are.
      accuracy: share of records with the same label.
      kappa: Cohen's, of grades in an order weighted by squared distance.
      f1: of each label, 0 where it is neither given nor predicted.
      counts: records by first (rows) and second (columns) label.
    """

    labels: tuple[str, ...]
    accuracy: float
    kappa: float
    f1: tuple[float, ...]
    counts: np.ndarray

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels that are given or predicted somewhere."""
        there = self.counts.sum(axis=0) + self.counts.sum(axis=1) > 0
        return float(np.mean(np.array(self.f1)[there]))


class Agreement(NamedTuple):
    """Agreement on all grades.

    Attributes:
      records: how many.
      correlation: Pearson's, of the educational values; NaN where one side gives a single value.
      error: mean absolute difference of them.
      good: F1 of what is worth `GOOD` or more.
      by_label: educational values rounded to whole ones, content, domain.
      calibration: of each whole value that the second gives, how often, and the means of the
        first's and of its own values there.
    """

    records: int
    correlation: float
    error: float
    good: float
    by_label: dict[str, Labels]
    calibration: tuple[tuple[str, int, float, float], ...]

    def numbers(self) -> dict[str, Any]:
        """All but the counts, as JSON types."""
        of_labels = {
            name: {
                "accuracy": found.accuracy,
                "kappa": found.kappa,
                "f1": dict(zip(found.labels, found.f1, strict=True)),
            }
            for name, found in self.by_label.items()
        }
        whole = {"records": self.records, "correlation": self.correlation}
        return {**whole, "mean_absolute_error": self.error, "good_f1": self.good, **of_labels}


def measure(first: Sequence[Grade], second: Sequence[Grade]) -> Agreement:
    """How well two grades of each record agree.

    Args:
      first: what the second is measured against, one or more.
      second: of the same records, in the same order.
    """
    values, others = (np.array([g.educational for g in grades]) for grades in (first, second))
    pairs = {
        "educational": tuple(
            [str(int(np.floor(v + 0.5))) for v in side] for side in (values, others)
        )
    }
    for name in ("content", "domain"):
        pairs[name] = tuple(
            [getattr(grade, name) for grade in grades] for grades in (first, second)
        )
    spread = values.std() > 0 and others.std() > 0
    rounded = np.array(pairs["educational"][1])
    calibration = tuple(
        (label, int(here.sum()), float(values[here].mean()), float(others[here].mean()))
        for label in LABELS["educational"]
        if (here := rounded == label).any()
    )
    good = values >= GOOD, others >= GOOD
    return Agreement(
        records=len(first),
        correlation=float(np.corrcoef(values, others)[0, 1]) if spread else float("nan"),
        error=float(np.abs(values - others).mean()),
        good=float(_f1((good[0] & good[1]).sum(), good[0].sum(), good[1].sum())),
        by_label={name: _labels(name, *pair) for name, pair in pairs.items()},
        calibration=calibration,
    )


def _labels(name: str, first: Sequence[str], second: Sequence[str]) -> Labels:
    labels = LABELS[name]
    rows, columns = (np.array([labels.index(label) for label in side]) for side in (first, second))
    counts = np.zeros((len(labels),) * 2, int)
    np.add.at(counts, (rows, columns), 1)
    given, predicted, right = counts.sum(axis=1), counts.sum(axis=0), np.diag(counts)
    apart = np.subtract.outer(np.arange(len(labels)), np.arange(len(labels))) ** 2
    apart = apart if name == "educational" else apart > 0
    by_chance = (apart * np.outer(given, predicted)).sum() / len(first)
    kappa = 1 - (apart * counts).sum() / by_chance if by_chance else 1.0  # one label, on both sides
    f1 = _f1(right, given, predicted)
    return Labels(labels, float(right.sum() / len(first)), float(kappa), tuple(f1.tolist()), counts)


def _f1(right: ArrayLike, given: ArrayLike, predicted: ArrayLike) -> np.ndarray:
    return np.asarray(2 * np.divide(right, np.maximum(np.add(given, predicted), 1)))


def summary(first: Sequence[Grade], second: Sequence[Grade]) -> float:
    """One number to choose by: the mean of the three kappas."""
    return float(np.mean([found.kappa for found in measure(first, second).by_label.values()]))


def write(found: Agreement, out: Path, what: str) -> str:
    """Writes agreement.md and agreement.html into a directory; returns the Markdown.

    Args:
      found: the agreement.
      out: the directory.
      what: which records they are of, to stand after their number.
    """
    text = blocks.markdown(_blocks(found, what))
    page = blocks.page("Agreement of grades", "", _blocks(found, what))
    for suffix, content in ((".md", text), (".html", page)):
        with whole_file(out / f"{NAME}{suffix}") as file:
            file.write(content)
    return text


def _blocks(found: Agreement, what: str) -> list[blocks.Block]:
    said = (
        f"{found.records:,} records {what}. Educational value: correlation "
        f"{found.correlation:.3f}, mean absolute error {found.error:.3f}, F1 of {GOOD:g} or more "
        f"{found.good:.3f}."
    )
    rows = [
        [name, f"{one.accuracy:.3f}", f"{one.kappa:.3f}", f"{one.macro_f1:.3f}"]
        for name, one in found.by_label.items()
    ]
    each = [
        [name, label, f"{f1:.3f}", f"{one.counts[place].sum():,}"]
        for name, one in found.by_label.items()
        for place, (label, f1) in enumerate(zip(one.labels, one.f1, strict=True))
    ]
    calibrated = [
        [label, f"{count:,}", f"{mean:.2f}", f"{own:.2f}"]
        for label, count, mean, own in found.calibration
    ]
    figures = [
        blocks.Figure(
            name, _drawn(name, one), "Given down, predicted across; share of those given."
        )
        for name, one in found.by_label.items()
    ]
    return [
        blocks.Paragraph(said),
        blocks.Table(["grade", "accuracy", "Cohen's kappa", "macro F1"], rows),
        blocks.Table(["grade", "label", "F1", "given"], each, text_columns=2),
        blocks.Heading("Calibration of the educational value"),
        blocks.Table(["predicted", "records", "mean given", "mean predicted"], calibrated),
        *figures,
    ]


def _drawn(name: str, found: Labels) -> str:
    """A confusion matrix as an ``<svg>`` element."""
    shares = found.counts / np.maximum(found.counts.sum(axis=1, keepdims=True), 1)
    places = range(len(found.labels))
    with mpl.rc_context({**svg.STYLE, "axes.grid": False}):
        figure = Figure(figsize=(svg.WIDTH, 0.5 + 0.4 * len(places)), layout="constrained")
        axes = figure.add_subplot()
        for row in places:
            for column in places:
                share = shares[row, column]
                axes.plot([column], [row], "s", color=svg.SERIES[0], alpha=share, ms=24, mew=0)
                text = f"{100 * share:.0f}" if found.counts[row].any() else "–"
                axes.text(column, row, text, ha="center", va="center", color=svg.INK)
        axes.set_xticks(places, [label.replace("_", " ") for label in found.labels])
        axes.set_yticks(places, [label.replace("_", " ") for label in found.labels])
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_ylim(len(places) - 0.5, -0.5)
    return svg.element(figure, f"confusion matrix of {name}")
