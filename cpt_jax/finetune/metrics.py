"""Scores of predictions, fractions from 0 to 1; tables multiply them by 100.

They count items: an example's label, each of its labels, each of its entities. With t items of a
label predicted rightly, p predicted and g annotated, precision is t / p, recall t / g and F1
2 t / (p + g), each 0 where nothing is divided by nothing.

Averages:
  micro      over all items
  macro      of the labels' F1, over those that are annotated or predicted somewhere: one that is
             neither says nothing of the model and is left out (scikit-learn does so with labels
             given as classes). One that is annotated and never predicted, or the other way round,
             counts 0.
  macro_all  over all labels of the task, absent ones counted 0 (scikit-learn with labels given as
             columns)
  weighted   of the labels' F1, by how often each is annotated

Entities are right where label, beginning and end are (of tags read as strict IOB2,
`tags.entities_of`: an I- tag that nothing began is no entity). seqeval and scikit-learn are what
the tests compare with, no dependencies: the former is not maintained, the latter large.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cpt_jax.finetune.examples import Kind, Span
from cpt_jax.finetune.predictions import Answer, Predictions, read
from cpt_jax.finetune.tags import Entity, entities_of

# An item's last field is its label.
Item = tuple[str] | Entity | Span


class Metric(NamedTuple):
    """A score.

    Attributes:
      kinds: of task it is for.
      rule: how it is scored, in words; written beside it.
      score: from what is counted of predictions to a fraction.
    """

    kinds: tuple[Kind, ...]
    rule: str
    score: Callable[["Tally"], float]


class Tally(NamedTuple):
    """What is counted of predictions.

    Attributes:
      items: each example's, annotated and predicted.
      right, predicted, gold: int64 [C]: items of each label.
    """

    items: list[tuple[frozenset[Item], frozenset[Item]]]
    right: np.ndarray
    predicted: np.ndarray
    gold: np.ndarray


def items_of(answer: Answer, kind: Kind) -> frozenset[Item]:
    """What is counted of an answer."""
    if isinstance(answer, str):
        return frozenset([(answer,)])
    if kind == "multilabel":
        return frozenset((label,) for label in answer if isinstance(label, str))
    tags = [tag for tag in answer if isinstance(tag, str)]
    return frozenset(entities_of(tags) if tags else (s for s in answer if isinstance(s, Span)))


def tally(predictions: Predictions) -> Tally:
    """Counts the items of predictions; labels in the task's order."""
    answers = zip(predictions.gold, predictions.predicted, strict=True)
    kind = predictions.kind
    items = [(items_of(gold, kind), items_of(predicted, kind)) for gold, predicted in answers]
    totals: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    for gold, predicted in items:
        for total, found in zip(totals, (gold & predicted, predicted, gold), strict=True):
            total.update(item[-1] for item in found)
    labels = predictions.labels
    return Tally(items, *(np.array([total[x] for x in labels], np.int64) for total in totals))


def _ratio(part: float | np.number, whole: float | np.number) -> float:
    return float(part / whole) if whole else 0.0


def _f1_of(precision: float, recall: float) -> float:
    return _ratio(2 * precision * recall, precision + recall)


def _label_f1(t: Tally) -> np.ndarray:
    both = t.predicted + t.gold
    return 2 * t.right / np.maximum(both, 1)


def _precision(t: Tally) -> float:
    return _ratio(t.right.sum(), t.predicted.sum())


def _recall(t: Tally) -> float:
    return _ratio(t.right.sum(), t.gold.sum())


def _micro(t: Tally) -> float:
    return _ratio(2 * t.right.sum(), t.predicted.sum() + t.gold.sum())


def _macro(t: Tally) -> float:
    present = t.predicted + t.gold > 0
    return _ratio(_label_f1(t)[present].sum(), present.sum())


def _macro_all(t: Tally) -> float:
    return float(_label_f1(t).mean())


def _weighted(t: Tally) -> float:
    return _ratio((_label_f1(t) * t.gold).sum(), t.gold.sum())


def _accuracy(t: Tally) -> float:
    return _ratio(sum(gold == predicted for gold, predicted in t.items), len(t.items))


def _example_f1(t: Tally) -> float:
    pairs = [(gold, predicted) for gold, predicted in t.items if gold or predicted]
    precisions = [_ratio(len(g & p), len(p)) for g, p in pairs]
    recalls = [len(g & p) / len(g) for g, p in pairs if g]
    means = (_ratio(sum(values), len(values)) for values in (precisions, recalls))
    return _f1_of(*means)


def _overlap_f1(t: Tally) -> float:
    found, gold_total, right, predicted_total = 0, 0, 0, 0
    for gold, predicted in t.items:
        found += _overlapping(gold, predicted)
        right += _overlapping(predicted, gold)
        gold_total += len(gold)
        predicted_total += len(predicted)
    return _f1_of(_ratio(right, predicted_total), _ratio(found, gold_total))


def _overlapping(these: frozenset[Item], others: frozenset[Item]) -> int:
    """How many of these share a word or character with one of the others of their label."""
    by_label: dict[str, list[tuple[int, int]]] = {}
    for item in others:
        by_label.setdefault(item[-1], []).append(_extent(item))
    hits = 0
    for item in these:
        start, end = _extent(item)
        hits += any(start < b and a < end for a, b in by_label.get(item[-1], ()))
    return hits


def _extent(item: Item) -> tuple[int, int]:
    if isinstance(item, Entity):
        return item.first, item.last + 1
    assert isinstance(item, Span)
    return item.start, item.end


_TEXTS: tuple[Kind, ...] = ("classification", "relation", "multilabel")
_STRICT = "strict IOB2: same label, beginning and end"
_EXACT = "same label, beginning and end; entities may nest"
_OVERLAP = "an entity is right that shares a character or word with one of its label"

METRICS: Mapping[str, Metric] = {
    "entity_f1": Metric(("tagging",), f"{_STRICT}; micro F1", _micro),
    "entity_precision": Metric(("tagging",), f"{_STRICT}; micro precision", _precision),
    "entity_recall": Metric(("tagging",), f"{_STRICT}; micro recall", _recall),
    "entity_macro_f1": Metric(("tagging",), f"{_STRICT}; mean F1 of labels that occur", _macro),
    "span_f1": Metric(("spans",), f"{_EXACT}; micro F1", _micro),
    "span_precision": Metric(("spans",), f"{_EXACT}; micro precision", _precision),
    "span_recall": Metric(("spans",), f"{_EXACT}; micro recall", _recall),
    "span_macro_f1": Metric(("spans",), f"{_EXACT}; mean F1 of labels that occur", _macro),
    "overlap_f1": Metric(("tagging", "spans"), f"{_OVERLAP}; micro F1", _overlap_f1),
    "macro_f1": Metric(_TEXTS, "mean F1 of labels annotated or predicted somewhere", _macro),
    "macro_all_f1": Metric(_TEXTS, "mean F1 of all labels, absent ones 0", _macro_all),
    "micro_f1": Metric(_TEXTS, "F1 over all labels of all texts", _micro),
    "weighted_f1": Metric(_TEXTS, "mean F1 of labels, by how often annotated", _weighted),
    "accuracy": Metric(_TEXTS, "share of texts with exactly the labels annotated", _accuracy),
    "example_f1": Metric(
        ("multilabel",),
        "of the texts' mean precision and mean recall (HoC in BLUE); a text without labels is"
        " left out of the recalls, and of the precisions too if none is predicted",
        _example_f1,
    ),
}


def score(predictions: Predictions) -> dict[str, float]:
    """Every metric of the predictions' kind, as fractions."""
    counted = tally(predictions)
    return {
        name: metric.score(counted)
        for name, metric in METRICS.items()
        if predictions.kind in metric.kinds
    }


def check_metric(name: str, kind: Kind) -> None:
    """Raises ValueError if a task of this kind cannot be measured by this metric."""
    allowed = [known for known, metric in METRICS.items() if kind in metric.kinds]
    if name not in allowed:
        raise ValueError(
            f"metric: {name!r} of a task of kind {kind}; allowed: {', '.join(allowed)}"
        )


def about(predictions: Predictions) -> dict[str, Any]:
    """The scores, and how each came about: for the first line of a file of predictions."""
    scores = score(predictions)
    return {"scores": scores, "rules": {name: METRICS[name].rule for name in scores}}


def score_file(path: Path) -> dict[str, float]:
    """The scores of a file of predictions, computed anew from its answers.

    Raises what `predictions.read` does.
    """
    predictions, _ = read(path)
    return score(predictions)
