"""Tags, scores worked out by hand, and files of predictions."""

import itertools
import json
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from cpt_jax.finetune import metrics
from cpt_jax.finetune.examples import KINDS, Kind, Span
from cpt_jax.finetune.predictions import Predictions, read, write
from cpt_jax.finetune.tags import Entity, entities_of, legal_path, tag_names, tags_of

LABELS = ("A", "B", "C", "D")


def predictions(kind, gold, predicted, labels=LABELS) -> Predictions:
    ids = tuple(f"e{place}" for place in range(len(gold)))
    return Predictions(kind, tuple(labels), ids, tuple(gold), tuple(predicted))


def rounded(scores: dict[str, float], *names: str) -> dict[str, Fraction]:
    return {name: Fraction(scores[name]).limit_denominator(1000) for name in names}


# Predictions and scores worked out by hand.


def test_golden_classification_with_absent_classes():
    """A: 2 of 2 found, one too many. B: never predicted. C: never annotated. D: neither."""
    gold = ["A", "A", "B", "B"]
    found = ["A", "A", "A", "C"]
    scores = metrics.score(predictions("classification", gold, found))
    names = ("macro_f1", "macro_all_f1", "micro_f1", "weighted_f1", "accuracy")
    assert rounded(scores, *names) == {
        "macro_f1": Fraction(4, 5) / 3,  # A 4/5, B 0, C 0; D is left out
        "macro_all_f1": Fraction(4, 5) / 4,
        "micro_f1": Fraction(1, 2),
        "weighted_f1": Fraction(4, 5) / 2,  # A and B are annotated twice each
        "accuracy": Fraction(1, 2),
    }
    assert scores.keys() == set(names)


def test_golden_multilabel_with_texts_that_have_none():
    gold = [("A", "B"), ("A",), (), (), ("B",)]
    found = [("A",), ("A", "C"), (), ("A",), ()]
    scores = metrics.score(predictions("multilabel", gold, found))
    assert rounded(scores, *scores) == {
        # A: 2 right, 3 predicted, 2 annotated; B: 0, 0, 2; C: 0, 1, 0; D: absent.
        "macro_f1": Fraction(4, 5) / 3,
        "macro_all_f1": Fraction(4, 5) / 4,
        "micro_f1": Fraction(2 * 2, 4 + 4),
        "weighted_f1": Fraction(4, 5) / 2,
        "accuracy": Fraction(1, 5),
        # Precisions 1, 1/2, -, 0, 0; recalls 1/2, 1, -, -, 0: means 3/8 and 1/2.
        "example_f1": Fraction(3, 7),
    }


def test_golden_entities():
    gold = [
        ("B-A", "I-A", "O", "B-B"),
        ("O", "O"),
        ("B-A", "B-A", "I-A"),
    ]
    found = [
        ("B-A", "I-A", "O", "B-A"),  # A right; B as A
        ("B-B", "O"),  # one too many
        ("B-A", "O", "I-A"),  # right; an I- that nothing began is no entity
    ]
    scores = metrics.score(predictions("tagging", gold, found))
    assert rounded(scores, *scores) == {
        "entity_precision": Fraction(2, 4),
        "entity_recall": Fraction(2, 4),
        "entity_f1": Fraction(1, 2),
        "entity_macro_f1": Fraction(2, 3) / 2,  # A: 2 right, 3 predicted, 3 annotated; B: 0
        "overlap_f1": Fraction(1, 2),
    }


def test_golden_nested_spans():
    gold = [(Span(0, 10, "A"), Span(4, 10, "B"), Span(4, 10, "A")), ()]
    found = [(Span(0, 10, "A"), Span(5, 10, "B"), Span(20, 21, "C")), (Span(0, 1, "A"),)]
    scores = metrics.score(predictions("spans", gold, found))
    assert rounded(scores, *scores) == {
        "span_precision": Fraction(1, 4),
        "span_recall": Fraction(1, 3),
        "span_f1": Fraction(2, 7),
        "span_macro_f1": Fraction(2 * 1, 2 + 2) / 3,  # A; B and C 0
        # Precision 2/4: C and the last A touch nothing. Recall 3/3: one A touches both.
        "overlap_f1": Fraction(2, 3),
    }


def test_nothing_at_all_scores_0_and_not_nan():
    for kind, answer in (("tagging", ("O", "O")), ("spans", ()), ("multilabel", ())):
        scores = metrics.score(predictions(kind, [answer], [answer]))
        assert scores.pop("accuracy", 1) == 1
        assert set(scores.values()) == {0}, kind


# IOB2.


def test_tags_an_orphan_is_no_entity():
    """As in seqeval's strict mode; its default finds four more (test_finetune_oracles.py)."""
    tags = ["I-A", "B-A", "I-B", "O", "I-B", "B-B", "I-B", "I-A", "B-B"]
    assert entities_of(tags) == [Entity(1, 1, "A"), Entity(5, 6, "B"), Entity(8, 8, "B")]
    with pytest.raises(ValueError, match=r"tag 'A' of word 1 is neither"):
        entities_of(["O", "A"])
    with pytest.raises(ValueError, match=r"tag 'B-' of word 0"):
        entities_of(["B-"])
    assert entities_of(["B-X-Y", "I-X-Y"]) == [Entity(0, 1, "X-Y")]


def test_entities_and_tags_are_one_anothers_inverse():
    rng = np.random.default_rng(1)
    for _ in range(200):
        names = tag_names(LABELS)
        tags = [names[i] for i in rng.integers(0, len(names), 12)]
        entities = entities_of(tags)
        assert entities_of(tags_of(entities, 12)) == entities


def brute_force(probabilities: np.ndarray) -> float:
    """The highest probability of any legal sequence."""
    names = tag_names(LABELS[: probabilities.shape[1] // 2])
    best = 0.0
    for path in itertools.product(range(len(names)), repeat=len(probabilities)):
        tags = [names[tag] for tag in path]
        legal = all(
            tag[0] != "I" or before in (f"B{tag[1:]}", tag)
            for before, tag in itertools.pairwise(["O", *tags])
        )
        if legal:
            best = max(best, float(np.prod(probabilities[range(len(path)), path])))
    return best


@pytest.mark.parametrize("labels", [1, 2])
def test_the_legal_path_is_the_most_probable_of_all(labels):
    rng = np.random.default_rng(labels)
    names = tag_names(LABELS[:labels])
    for number in range(150):
        sharp = rng.dirichlet(np.full(len(names), 0.3), size=number % 5 + 1).astype(np.float32)
        path = legal_path(sharp)
        tags = [names[tag] for tag in path]
        assert tags_of(entities_of(tags), len(tags)) == tags
        found = float(np.prod(sharp[range(len(path)), path].astype(np.float64)))
        assert found == pytest.approx(brute_force(sharp.astype(np.float64)), rel=1e-9)


def test_a_legal_path_where_every_tag_was_certain():
    assert legal_path(np.eye(3)[[2, 2, 1, 2]]).tolist()[2:] == [1, 2]
    assert legal_path(np.zeros((0, 3))).tolist() == []
    names = tag_names(["A"])
    tags = [names[tag] for tag in legal_path(np.eye(3)[[2, 2]])]
    assert tags_of(entities_of(tags), 2) == tags


def random_spans(rng, number) -> tuple[Span, ...]:
    spans = set()
    for _ in range(number):
        start = int(rng.integers(0, 20))
        spans.add(Span(start, start + int(rng.integers(1, 5)), str(rng.choice(LABELS))))
    return tuple(sorted(spans))


def test_overlap_is_sharing_a_character():
    """Counted on sets of characters."""
    rng = np.random.default_rng(3)
    gold = [random_spans(rng, rng.integers(0, 6)) for _ in range(60)]
    found = [random_spans(rng, rng.integers(0, 6)) for _ in range(60)]

    def hits(these, others):
        characters = {(c, o.label) for o in others for c in range(o.start, o.end)}
        return sum(any((c, s.label) in characters for c in range(s.start, s.end)) for s in these)

    right = sum(map(hits, found, gold)) / sum(map(len, found))
    recalled = sum(map(hits, gold, found)) / sum(map(len, gold))
    scores = metrics.score(predictions("spans", gold, found))
    assert scores["overlap_f1"] == pytest.approx(2 * right * recalled / (right + recalled))
    same = [len(set(g) & set(f)) for g, f in zip(gold, found, strict=True)]
    exact = 2 * sum(same) / (sum(map(len, gold)) + sum(map(len, found)))
    assert scores["span_f1"] == pytest.approx(exact)
    assert scores["span_f1"] < scores["overlap_f1"]


def test_every_kind_has_its_metrics_and_says_its_rule():
    for kind in get_args(Kind):
        names = [name for name, metric in metrics.METRICS.items() if kind in metric.kinds]
        assert names
        metrics.check_metric(names[0], kind)
        with pytest.raises(
            ValueError, match=rf"metric: 'bleu' .* kind {kind}; allowed: {names[0]}"
        ):
            metrics.check_metric("bleu", kind)
    with pytest.raises(ValueError, match="entity_f1"):
        metrics.check_metric("entity_f1", "spans")


# Files.

GOLDENS = {
    "classification": (("A", "B"), ("A", "C")),
    "relation": (("A", "B"), ("A", "C")),
    "multilabel": ((("A", "B"), ()), ((), ("C",))),
    "tagging": ((("B-A", "I-A", "O"), ("O",)), (("B-A", "O", "I-A"), ("B-B",))),
    "spans": (((Span(0, 3, "A"),), ()), ((Span(0, 3, "A"), Span(1, 2, "B")), ())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_read_back_and_scored_anew(tmp_path, kind):
    answers = predictions(kind, *GOLDENS[kind])
    path = tmp_path / "new" / "test.jsonl"
    write(path, answers, {"task": "t", "split": "test", **metrics.about(answers)})
    again, about = read(path)
    assert again == answers
    assert about["task"] == "t"
    assert about["scores"] == metrics.score_file(path) == metrics.score(answers)
    assert about["rules"].keys() == about["scores"].keys()
    assert [p.name for p in path.parent.iterdir()] == ["test.jsonl"]


def test_tagged_texts_are_kept_as_spans(tmp_path):
    gold = ((Span(0, 3, "A"),), (), ())
    answers = predictions("tagging", gold, ((), (Span(1, 2, "B"),), ()))
    write(tmp_path / "p.jsonl", answers, {})
    assert read(tmp_path / "p.jsonl")[0] == answers


def test_golden_file_and_its_scores(tmp_path):
    """The file's form, for whoever writes or scores one without this program."""
    path = tmp_path / "golden.jsonl"
    path.write_text(
        '{"task": "t", "kind": "tagging", "labels": ["Chem"]}\n'
        '{"id": "s1", "gold": ["B-Chem", "I-Chem", "O"], "predicted": ["B-Chem", "I-Chem", "O"]}\n'
        '{"id": "s2", "gold": ["B-Chem", "O"], "predicted": ["I-Chem", "O"]}\n'
        '{"id": "s3", "gold": ["O", "O"], "predicted": ["O", "B-Chem"]}\n'
    )
    scores = metrics.score_file(path)
    assert rounded(scores, "entity_precision", "entity_recall", "entity_f1") == {
        "entity_precision": Fraction(1, 2),
        "entity_recall": Fraction(1, 2),
        "entity_f1": Fraction(1, 2),
    }


def test_the_mode_of_scoring_is_named_in_the_output(tmp_path):
    answers = predictions("tagging", *GOLDENS["tagging"])
    write(tmp_path / "p.jsonl", answers, metrics.about(answers))
    head = json.loads((tmp_path / "p.jsonl").read_text().split("\n")[0])
    assert head["rules"]["entity_f1"].startswith("strict IOB2")
    assert head["kind"] == "tagging"


def test_files_hold_no_text(tmp_path):
    """Answers are labels, tags and offsets; a line has three fields."""
    answers = predictions("spans", *GOLDENS["spans"])
    write(tmp_path / "p.jsonl", answers, metrics.about(answers))
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert lines[1:] == [
        {"id": "e0", "gold": [[0, 3, "A"]], "predicted": [[0, 3, "A"], [1, 2, "B"]]},
        {"id": "e1", "gold": [], "predicted": []},
    ]


HEAD = '{"kind": "tagging", "labels": ["A"]}\n'
SEVERAL = '{"kind": "multilabel", "labels": ["A"]}\n'
LINE = '{{"id": "a", "gold": {}, "predicted": {}}}'
DAMAGED = {
    "empty": ("", 1, "Expecting value"),
    "not UTF-8": (HEAD + '{"id": "\udce9"', 2, "utf-8"),
    "no kind": ("{}", 1, "kind: None is none of"),
    "no labels": ('{"kind": "spans"}', 1, "labels"),
    "torn": (HEAD + '{"id": "a", "go', 2, "Invalid control"),
    "not an object": (HEAD + "[]", 2, "not a JSON object"),
    "another field": (HEAD + '{"id": "a", "gold": [], "predicted": [], "x": 1}', 2, "fields"),
    "another label": (HEAD + LINE.format('["B-Z"]', '["O"]'), 2, "label 'Z'"),
    "no tag": (HEAD + LINE.format('["O"]', '["X"]'), 2, "tag 'X'"),
    "lengths": (HEAD + LINE.format('["O"]', '["O", "O"]'), 2, "1 gold tags and 2"),
    "forms": (HEAD + LINE.format('["O"]', '[[0, 1, "A"]]'), 2, "gold tags"),
    "offsets": (HEAD + LINE.format('[[3, 3, "A"]]', "[]"), 2, "no .start, end"),
    "a number": (SEVERAL + LINE.format("1", "[]"), 2, "1 is no answer"),
    "twice": (SEVERAL + LINE.format('["A", "A"]', "[]"), 2, "twice"),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_file_is_told_by_its_line(tmp_path, fault):
    text, line, message = DAMAGED[fault]
    path = tmp_path / "p.jsonl"
    path.write_bytes((text + "\n" if text else "").encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=rf"p\.jsonl:{line}: .*{message}"):
        read(path)
