"""Predictions without a model: the most frequent label, and the training set's entities again."""

import pytest

from cpt_jax.finetune.baselines import Dictionary, predict
from cpt_jax.finetune.examples import Annotated, Span, Text, Words
from cpt_jax.finetune.metrics import score
from cpt_jax.finetune.tasks import TASKS
from cpt_jax.finetune.tasks.loading import load

TRAIN = [
    Words("1", ("Breast", "cancer", "and", "cancer"), ("B-D", "I-D", "O", "B-D")),
    Words("2", ("AS", "and", "as", "as", "aspirin"), ("B-D", "O", "O", "O", "B-C")),
    Words("3", ("ovarian", "cancer", "syndrome", "X"), ("B-D", "I-D", "I-D", "I-D")),
    Words("4", ("cancer", "gene", "aspirin"), ("O", "O", "B-D")),
    Words("5", ("aspirin",), ("B-C",)),
]


def texts(*labels: str) -> list[Text]:
    return [Text(str(i), "x", tuple(label.split())) for i, label in enumerate(labels)]


def words(text: str) -> Words:
    return Words(text, tuple(text.split()), ("O",) * len(text.split()))


def test_majority():
    found = predict("majority", "classification", "abc", texts("b", "a", "b"), texts("a", "c"))
    assert found.predicted == ("b", "b")
    assert (found.ids, found.gold) == (("0", "1"), ("a", "c"))
    # Of equals the first.
    found = predict("majority", "multilabel", "ab", texts("b", "a", "b a", ""), texts("a", ""))
    assert found.predicted == (("a",), ("a",))
    assert found.gold == (("a",), ())


def test_all_labels():
    found = predict("all_labels", "multilabel", "abc", texts("b", "", "c a b"), texts("a", ""))
    assert found.predicted == (("a", "b", "c"),) * 2


def test_dictionary_takes_the_longest_match_from_the_left():
    test = [
        words("BREAST Cancer cancer syndrome"),
        words("Ovarian cancer syndrome"),
        words("aspirin ovarian cancer syndrome x"),
    ]
    assert predict("dictionary", "tagging", "CD", TRAIN, test).predicted == (
        ("B-D", "I-D", "O", "O"),  # "cancer" alone is mostly no entity
        ("O", "O", "O"),  # the entry is of four words
        ("B-C", "B-D", "I-D", "I-D", "I-D"),  # C twice, D once
    )


def test_an_entry_does_not_reach_beyond_the_text():
    """The text ends with an entry that a longer one begins with."""
    longer = Words("6", ("breast", "cancer", "cell"), ("B-D", "I-D", "I-D"))
    assert Dictionary([*TRAIN, longer]).tags(words("a breast cancer")) == ("O", "B-D", "I-D")
    nested = Annotated("7", "breast cancer", ())
    assert Dictionary([*TRAIN, longer]).spans(nested, nested=True) == (Span(0, 13, "D"),)


def test_what_is_mostly_no_entity_is_left_out():
    """Of "as" one in three is an entity; of "cancer" as a whole one, one in four."""
    example = words("as AS breast cancer")
    assert Dictionary(TRAIN).tags(example) == ("O", "O", "B-D", "I-D")
    assert Dictionary(TRAIN, least=0).tags(example) == ("B-D", "B-D", "B-D", "I-D")
    assert Dictionary(TRAIN, least=0.3).tags(example) == ("B-D", "B-D", "B-D", "I-D")


def test_entities_may_nest():
    text = "Tumor of the liver. Liver!"
    spans = (Span(0, 18, "DISO"), Span(13, 18, "ANAT"), Span(20, 25, "ANAT"))
    train = [Annotated("1", text, spans)]
    test = [Annotated("2", "A tumor  of\nthe liver", ())]
    found = predict("dictionary", "spans", ("ANAT", "DISO"), train, test)
    assert found.predicted == ((Span(2, 21, "DISO"), Span(16, 21, "ANAT")),)
    found = predict("dictionary", "tagging", ("ANAT", "DISO"), train, test)
    assert found.predicted == ((Span(2, 21, "DISO"),),)


@pytest.mark.parametrize(
    ("name", "kind", "known"),
    [
        ("dictionary", "multilabel", "majority, all_labels"),
        ("majority", "spans", "dictionary"),
        ("best", "relation", "majority"),
    ],
)
def test_a_baseline_of_another_kind_is_told(name, kind, known):
    with pytest.raises(ValueError, match=f"baseline '{name}' of kind {kind}; there are {known}"):
        predict(name, kind, "ab", texts("a"), texts("a"))


def test_no_labels_at_all_are_told():
    with pytest.raises(ValueError, match="the training split has no labels"):
        predict("majority", "multilabel", "ab", texts("", ""), texts("a"))


def shares(examples, labels) -> list[float]:
    return [sum(label in e.labels for e in examples) / len(examples) for label in labels]


@pytest.mark.parametrize("name", ["gad", "chemprot_scibert", "hoc"])
def test_constant_answers_on_real_tasks(shared, name):
    """A label that a share p of texts has, predicted for all, has an F1 of 2p / (1 + p)."""
    task, labels, splits, _ = load(TASKS[name], shared / "data")
    several = task.kind == "multilabel"
    baseline = "all_labels" if several else "majority"
    scores = score(predict(baseline, task.kind, labels, splits["train"], splits["test"]))
    found = shares(splits["test"], labels)
    if several:
        assert scores["macro_f1"] == pytest.approx(sum(2 * p / (1 + p) for p in found) / 10)
        return
    most = max(shares(splits["train"], labels))
    p = found[shares(splits["train"], labels).index(most)]
    assert scores["accuracy"] == pytest.approx(p)
    assert scores["macro_f1"] == pytest.approx(2 * p / (1 + p) / sum(p > 0 for p in found))


# F1 of the test split as first measured: the bar for trained models, which should not move.
FIGURES = {"ncbi_disease": 65.9, "bc5cdr": 70.7, "personal_data": 22.7, "emea": 50.0}


@pytest.mark.parametrize("name", FIGURES)
def test_the_dictionary_on_real_tasks(shared, name):
    task, labels, splits, _ = load(TASKS[name], shared / "data")
    found = predict("dictionary", task.kind, labels, splits["train"], splits["test"])
    assert 100 * score(found)[task.metric] == pytest.approx(FIGURES[name], abs=0.06)
