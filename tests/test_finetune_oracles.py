"""Scores are seqeval's and scikit-learn's, on random data with absent labels and illegal tags."""

import importlib
import warnings
from typing import Any

import numpy as np
import pytest

from cpt_jax.finetune import metrics
from cpt_jax.finetune.predictions import Predictions
from cpt_jax.finetune.tags import entities_of, tag_names

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # seqeval is old
    # Not by statements: their annotations contradict their documentation.
    seqeval_metrics: Any = importlib.import_module("seqeval.metrics")
    seqeval_scheme: Any = importlib.import_module("seqeval.scheme")
    sklearn_metrics: Any = importlib.import_module("sklearn.metrics")

LABELS = ("A", "B", "C", "D")


def scores_of(kind, gold, predicted) -> dict[str, float]:
    ids = tuple(f"e{place}" for place in range(len(gold)))
    return metrics.score(Predictions(kind, LABELS, ids, tuple(gold), tuple(predicted)))


def random_tags(rng, labels, length):
    """Mostly outside; I- tags anywhere."""
    names = tag_names(labels)
    weights = np.array([3.0] + [1.0] * (len(names) - 1))
    return [names[i] for i in rng.choice(len(names), length, p=weights / weights.sum())]


def test_seqevals_other_mode_counts_orphans():
    """Why the mode is named wherever a score is."""
    tags = ["I-A", "B-A", "I-B", "O", "I-B", "B-B", "I-B", "I-A", "B-B"]
    assert len(seqeval_metrics.sequence_labeling.get_entities(tags)) == 7
    assert len(entities_of(tags)) == 3


@pytest.mark.parametrize("seed", range(12))
def test_entity_scores_are_seqevals_in_strict_mode(seed):
    rng = np.random.default_rng(seed)
    shown = LABELS[: seed % 4 + 1]
    gold, found = [], []
    for _ in range(40):
        tags = random_tags(rng, shown, int(rng.integers(1, 15)))
        other = random_tags(rng, LABELS[: 2 + seed % 3], len(tags))
        gold.append(tags)
        found.append([a if rng.random() < 0.8 else b for a, b in zip(tags, other, strict=True)])
    pairs = ([tuple(tags) for tags in side] for side in (gold, found))
    scores = scores_of("tagging", *pairs)
    strict: dict[str, Any] = {"mode": "strict", "scheme": seqeval_scheme.IOB2, "zero_division": 0}
    expected = {
        "entity_precision": seqeval_metrics.precision_score(gold, found, **strict),
        "entity_recall": seqeval_metrics.recall_score(gold, found, **strict),
        "entity_f1": seqeval_metrics.f1_score(gold, found, **strict),
        "entity_macro_f1": seqeval_metrics.f1_score(gold, found, average="macro", **strict),
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    lenient = seqeval_metrics.f1_score(gold, found, zero_division=0)
    assert abs(lenient - scores["entity_f1"]) > 1e-3, "the two modes must be told apart"


@pytest.mark.parametrize("seed", range(8))
def test_class_scores_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, seed % 4 + 1, 60)
    found = np.where(rng.random(60) < 0.6, gold, rng.integers(0, 3, 60))
    names = np.array(LABELS)
    scores = scores_of("classification", names[gold].tolist(), names[found].tolist())
    for average in ("macro", "micro", "weighted"):
        expected = sklearn_metrics.f1_score(gold, found, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected, abs=1e-12)
    everything = sklearn_metrics.f1_score(
        gold, found, average="macro", labels=range(4), zero_division=0
    )
    assert scores["macro_all_f1"] == pytest.approx(everything, abs=1e-12)
    assert scores["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(gold, found))


@pytest.mark.parametrize("seed", range(8))
def test_multilabel_scores_are_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    rate = np.array([0.5, 0.2, 0.1 * (seed % 2), 0.0])
    gold = rng.random((50, 4)) < rate
    found = np.where(rng.random((50, 4)) < 0.7, gold, rng.random((50, 4)) < rate)

    def named(rows):
        return [tuple(LABELS[c] for c in np.flatnonzero(row)) for row in rows]

    scores = scores_of("multilabel", named(gold), named(found))
    for average, name in (("macro", "macro_all"), ("micro", "micro"), ("weighted", "weighted")):
        expected = sklearn_metrics.f1_score(gold, found, average=average, zero_division=0)
        assert scores[f"{name}_f1"] == pytest.approx(expected, abs=1e-12)
    seen = (gold | found).any(axis=0)
    expected = sklearn_metrics.f1_score(
        gold[:, seen], found[:, seen], average="macro", zero_division=0
    )
    assert scores["macro_f1"] == pytest.approx(expected, abs=1e-12)
    assert scores["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(gold, found))
    some = gold.any(axis=1)
    means = [
        metric(gold[rows], found[rows], average="samples", zero_division=0)
        for metric, rows in (
            (sklearn_metrics.precision_score, some | found.any(axis=1)),
            (sklearn_metrics.recall_score, some),
        )
    ]
    expected = 2 * means[0] * means[1] / (means[0] + means[1])
    assert scores["example_f1"] == pytest.approx(expected, abs=1e-12)
