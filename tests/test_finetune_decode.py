"""Predictions of rows back to answers for examples."""

import dataclasses
import math

import numpy as np
import pytest
import tiny_tokenizers

from cpt_jax.finetune.decode import decode
from cpt_jax.finetune.encode import Encoded, encode
from cpt_jax.finetune.examples import Annotated, Kind, Settings, Span, Text, Words
from cpt_jax.finetune.run import dev_scores
from cpt_jax.finetune.tags import Entity, tag_names, tags_of
from cpt_jax.finetune.tasks import find

LABELS = ["X", "Y", "Z"]
SMALL = Settings(max_length=12, stride=4)


@pytest.fixture(scope="module")
def letters():
    return tiny_tokenizers.one_token_a_word(list("abcdefghijklmnopqrstuvwxyz"))


def perfect(encoded: Encoded) -> list[dict[str, np.ndarray]]:
    """What a head would give that had learnt the targets by heart."""
    outputs = []
    for row in encoded.rows:
        targets = row.targets
        if encoded.kind == "multilabel":
            outputs.append({"probabilities": targets["labels"]})
        elif encoded.kind == "tagging":
            eye = np.eye(len(tag_names(encoded.labels)), dtype=np.float32)
            outputs.append({"probabilities": eye[targets["labels"]]})
        elif encoded.kind == "spans":
            empty = np.full((1, 3), -1)
            spans = np.concatenate([empty, targets["spans"], empty])
            outputs.append({"spans": spans, "scores": np.where(spans[:, 0] < 0, -np.inf, 1.0)})
        else:
            outputs.append({"probabilities": np.eye(len(encoded.labels))[targets["label"]]})
    return outputs


def random_entities(rng: np.random.Generator, words: int, longest: int) -> list[Entity]:
    entities, place = [], 0
    while place < words:
        place += int(rng.integers(0, 6))
        last = min(place + int(rng.integers(0, longest)), words - 1)
        if place <= last:
            entities.append(Entity(place, last, str(rng.choice(LABELS))))
        place = last + 1
    return entities


def words_of(rng: np.random.Generator, number: int) -> list[str]:
    return ["".join(rng.choice(list("aspirnBé1"), rng.integers(1, 9))) for _ in range(number)]


@pytest.mark.parametrize("make", ["byte_level", "metaspace"])
def test_what_was_learnt_by_heart_is_what_is_annotated(make):
    """Through windows and back, words apart and raw text, flat and nested."""
    vocabulary = getattr(tiny_tokenizers, make)()
    rng = np.random.default_rng(5)
    settings = Settings(max_length=64, stride=40)
    apart, raw, nested = [], [], []
    for number in range(30):
        words = words_of(rng, int(rng.integers(1, 90)))
        flat = random_entities(rng, len(words), 30)
        apart.append(Words(f"w{number}", tuple(words), tuple(tags_of(flat, len(words)))))
        text = "  ".join(words)
        starts = np.cumsum([0, *(len(word) + 2 for word in words)])

        def span(entity, starts=starts, words=words):
            return Span(
                int(starts[entity.first]),
                int(starts[entity.last]) + len(words[entity.last]),
                entity.label,
            )

        raw.append(Annotated(f"r{number}", text, tuple(map(span, flat))))
        more = random_entities(rng, len(words), 2) + random_entities(rng, len(words), 2)
        nested.append(Annotated(f"n{number}", text, tuple(map(span, more))))
    splits: list[tuple[list, Kind]] = [(apart, "tagging"), (raw, "tagging"), (nested, "spans")]
    for examples, kind in splits:
        encoded = encode(examples, vocabulary, kind, LABELS, settings)
        assert len(encoded.rows) > 1.5 * len(examples)
        answers = decode(encoded, perfect(encoded))
        assert answers.predicted == answers.gold
        assert answers.ids == tuple(example.id for example in examples)
        assert (encoded.counts.moved, encoded.counts.lost) == (0, 0)
        if kind == "spans":  # of a later window too, spaces of which are tokens of no word
            for row, view in zip(encoded.rows, encoded.views, strict=True):
                assert set(row.targets["word_ids"]) == {-1, *range(len(view.words))}
    assert answers.gold[3] == tuple(sorted(set(nested[3].spans)))


def test_labels_learnt_by_heart(letters):
    texts = [Text("1", "a b", ("Y",)), Text("2", "b", ("X",)), Text("3", "a", ("Z",))]
    encoded = encode(texts, letters, "classification", LABELS, SMALL)
    assert decode(encoded, perfect(encoded)).predicted == ("Y", "X", "Z")
    several = [Text("1", "a b", ("Z", "X")), Text("2", "b", ())]
    encoded = encode(several, letters, "multilabel", LABELS, SMALL)
    answers = decode(encoded, perfect(encoded))
    assert answers.predicted == answers.gold == (("X", "Z"), ())


def test_no_prediction_is_forced(letters):
    """A text whose labels are all improbable has none; a half is not enough."""
    encoded = encode(
        [Text("1", "a", ("X",)), Text("2", "b", ())], letters, "multilabel", LABELS, SMALL
    )
    outputs = [
        {"probabilities": np.array([0.5, 0.49, 0.01])},
        {"probabilities": np.array([0.2, 0.51, 0.9])},
    ]
    assert decode(encoded, outputs).predicted == ((), ("Y", "Z"))


def test_a_word_is_predicted_from_the_window_where_it_is_further_from_the_edge(letters):
    """Windows of 10 words that share 4; every prediction that must not be read is another's."""
    text = " ".join("abcdefghijklmnop")
    encoded = encode([Annotated("d", text, ())], letters, "tagging", ["X"], SMALL)
    assert [view.words.tolist() for view in encoded.views] == [list(range(10)), list(range(6, 16))]
    # Of the shared words 6 to 9, the first two are further from the first window's end.
    names = tag_names(["X"])
    outside, begin = (np.eye(3)[names.index(tag)] for tag in ("O", "B-X"))
    first = np.stack([outside] * 9 + [begin] * 3)  # words 8 and 9, and [SEP]
    second = np.stack([begin] * 3 + [outside] * 9)  # [CLS], words 6 and 7
    outputs = [{"probabilities": first}, {"probabilities": second}]
    assert decode(encoded, outputs).predicted == ((),)
    first[8], second[3] = begin, begin  # words 7 and 8
    assert decode(encoded, outputs).predicted == ((Span(14, 15, "X"), Span(16, 17, "X")),)


def test_a_span_is_predicted_from_the_window_where_it_is_further_from_the_edge(letters):
    text = " ".join("abcdefghijklmnop")
    encoded = encode([Annotated("d", text, ())], letters, "spans", ["X"], SMALL)

    def output(*spans):
        return {"spans": np.array(spans), "scores": np.ones(len(spans))}

    nothing = {"spans": np.full((2, 3), -1), "scores": np.array([np.nan, 1.0])}
    outputs = [output((6, 8, 0), (7, 9, 0)), nothing]
    # Words 6 to 8 end a word before the first window does and begin with the second one.
    assert decode(encoded, outputs).predicted == ((Span(12, 17, "X"),),)
    outputs = [output((6, 8, 0)), output((0, 2, 0), (1, 3, 0), (1, 2, 0))]
    found = (Span(12, 17, "X"), Span(14, 19, "X"))
    assert decode(encoded, outputs).predicted == (found,)
    outputs[0]["scores"] = np.zeros(1)
    assert decode(encoded, outputs).predicted == (found[1:],)


def test_tags_are_made_legal_over_the_whole_document(letters):
    """An I- tag that nothing began, at the first word of a window that goes on an entity."""
    words = Words("w", tuple("abcdefghijklmnop"), ("O",) * 16)
    encoded = encode([words], letters, "tagging", ["X"], SMALL)
    outputs = perfect(encoded)
    outputs[0]["probabilities"][8] = [0.1, 0.9, 0]  # word 7: B-X
    outputs[1]["probabilities"][3:5] = [0.2, 0, 0.8]  # words 8 and 9: I-X
    tags = decode(encoded, outputs).predicted[0]
    assert tags == tuple(["O"] * 7 + ["B-X", "I-X", "I-X"] + ["O"] * 6)
    outputs[0]["probabilities"][8] = [0.9, 0.1, 0]
    # B-X I-X I-X 0.1 * 0.8 * 0.8 is more probable than O O O 0.9 * 0.2 * 0.2.
    assert decode(encoded, outputs).predicted[0] == tags
    outputs[0]["probabilities"][8] = [1, 0, 0]
    assert decode(encoded, outputs).predicted[0] == ("O",) * 16


def test_a_word_without_a_token_is_in_the_entity_around_it_and_in_no_other():
    vocabulary = tiny_tokenizers.word_pieces()
    words = ("\u200b", "aspirin", "\u200b", "was", "\u200b")
    example = Words("w", words, ("O", "B-X", "I-X", "I-X", "O"))
    encoded = encode([example], vocabulary, "tagging", ["X"], Settings())
    answers = decode(encoded, perfect(encoded))
    assert answers.predicted == answers.gold


def test_an_entity_within_a_word_is_a_miss_and_stays_in_what_is_scored_against(letters):
    text = "a foobar b"
    encoded = encode([Annotated("d", text, (Span(5, 8, "X"),))], letters, "tagging", ["X"], SMALL)
    answers = decode(encoded, perfect(encoded))
    assert answers.gold == ((Span(5, 8, "X"),),)
    assert answers.predicted == ((Span(2, 8, "X"),),)


def test_predictions_that_do_not_fit_or_are_not_finite_are_refused(letters):
    texts = [Text("one", "a", ("X",)), Text("two", "b", ("Y",))]
    encoded = encode(texts, letters, "classification", LABELS, SMALL)
    with pytest.raises(ValueError, match=r"predictions of 1 rows; there are 2"):
        decode(encoded, perfect(encoded)[:1])
    outputs = perfect(encoded)
    outputs[1]["probabilities"][0] = np.nan
    with pytest.raises(ValueError, match=r"^two: .* diverged"):
        decode(encoded, outputs)
    words = encode([Words("w", ("a",), ("O",))], letters, "tagging", LABELS, SMALL)
    outputs = perfect(words)
    outputs[0]["probabilities"][1] = np.inf
    with pytest.raises(ValueError, match=r"^w: .* diverged"):
        decode(words, outputs)


def test_a_threshold_lets_more_or_less_through(letters):
    encoded = encode([Text("1", "a", ())], letters, "multilabel", LABELS, SMALL)
    outputs = [{"probabilities": np.array([0.2, 0.6, 0.9])}]
    assert decode(encoded, outputs, 0.1).predicted == (("X", "Y", "Z"),)
    assert decode(encoded, outputs, 0.7).predicted == (("Z",),)
    encoded = encode([Annotated("d", "a b c", ())], letters, "spans", ["X"], SMALL)
    spans = np.array([[0, 0, 0], [1, 1, 0], [2, 2, 0]])
    outputs = [{"spans": spans, "scores": np.array([1.2, -1.0, -1.2])}]
    of_text = Span(0, 1, "X"), Span(2, 3, "X"), Span(4, 5, "X")
    assert decode(encoded, outputs).predicted == (of_text[:1],)
    # Odds of 1 to 3: log-odds of -1.0986.
    assert decode(encoded, outputs, 0.25).predicted == (of_text[:2],)
    assert decode(encoded, outputs, 0.1).predicted == (of_text,)


def test_the_threshold_is_the_one_that_does_best_on_dev(letters):
    """Of three words two are entities; the score between theirs and the third's is -1.1."""
    gold = (Span(0, 1, "X"), Span(2, 3, "X"))
    encoded = encode([Annotated("d", "a b c", gold)], letters, "spans", ["X"], SMALL)
    spans = np.array([[0, 0, 0], [1, 1, 0], [2, 2, 0]])
    outputs = [{"spans": spans, "scores": np.array([1.2, -0.9, -1.4])}]
    task = dataclasses.replace(find("emea"), settings=SMALL)
    even = dev_scores(task, encoded, outputs)
    assert even["span_f1"] == pytest.approx(2 / 3)
    assert "threshold" not in even
    tuned = dataclasses.replace(task, settings=SMALL.changed({"tune_threshold": True}))
    scores = dev_scores(tuned, encoded, outputs)
    assert scores["span_f1"] == 1.0
    # -1 and no other of the grid: 1 / (1 + e).
    assert scores["threshold"] == pytest.approx(1 / (1 + math.e))
    assert decode(encoded, outputs, scores["threshold"]).predicted == (gold,)
    # Where all do alike, it is one half.
    outputs[0]["scores"] = np.array([9.0, 9.0, -9.0])
    assert dev_scores(tuned, encoded, outputs)["threshold"] == 0.5
