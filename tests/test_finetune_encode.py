"""Examples to rows: ids, words, windows and targets, and what cannot be learnt from."""

import json

import numpy as np
import pytest
import tiny_tokenizers
from tokenizers import Tokenizer, models

from cpt_jax.finetune.alignment import align, joined, words_of
from cpt_jax.finetune.encode import encode, open_vocabulary
from cpt_jax.finetune.examples import Annotated, Settings, Span, Text, Words
from cpt_jax.finetune.tags import entities_of, tag_names

KINDS = {
    "byte_level": tiny_tokenizers.byte_level,
    "word_pieces": tiny_tokenizers.word_pieces,
    "metaspace": tiny_tokenizers.metaspace,
}
SENTENCES = [
    "The aspirin was given for Alzheimer disease",
    "BRCA1 ( breast cancer 1 ) , and p53 .",
    "hépatite aiguë d une cirrhose à 37 °C",
    "Ψ ∆F508 naïve – 10 ≤ x € 日本語",
]
ABC = [4, 5, 6]  # the ids of a, b and c of `letters`


@pytest.fixture(params=KINDS)
def vocabulary(request):
    return KINDS[request.param]()


@pytest.fixture
def letters():
    """One token a word: a is 4, b is 5, ..."""
    return tiny_tokenizers.one_token_a_word(list("abcdefghijklmnopqrstuvwxyz"))


def tagged(sentence: str) -> Words:
    words = tuple(sentence.split())
    tags = ["O"] * len(words)
    tags[1:3] = ["B-X", "I-X"]
    return Words("s", words, tuple(tags))


def annotated(words: Words) -> Annotated:
    """The same as a text."""
    text, places = joined(words.words)
    spans = [Span(int(places[a, 0]), int(places[b, 1]), x) for a, b, x in entities_of(words.tags)]
    return Annotated(words.id, text, tuple(spans))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_apart_and_raw_text_give_the_same_ids(vocabulary, sentence):
    words = tagged(sentence)
    settings = Settings()
    apart = encode([words], vocabulary, "tagging", ["X"], settings).rows[0]
    raw = encode([annotated(words)], vocabulary, "tagging", ["X"], settings).rows[0]
    tokenizer = vocabulary.tokenizer
    expected = [
        vocabulary.cls,
        *tokenizer.encode(sentence, add_special_tokens=False).ids,
        vocabulary.sep,
    ]
    assert apart.input_ids.tolist() == raw.input_ids.tolist() == expected
    assert apart.input_ids.dtype == np.int32
    if all(len(words_of(word)) == 1 for word in words.words):
        np.testing.assert_array_equal(apart.targets["labels"], raw.targets["labels"])
    assert sorted(apart.targets["labels"][apart.targets["labels"] > 0]) == [1, 2]


def test_the_first_word_has_no_prefix_space_and_the_others_have_theirs():
    vocabulary = tiny_tokenizers.byte_level()
    row = encode([tagged("a a a a")], vocabulary, "tagging", ["X"], Settings()).rows[0]
    tokens = [vocabulary.tokenizer.id_to_token(i) for i in row.input_ids[1:-1].tolist()]
    assert tokens == ["a", "Ġa", "Ġa", "Ġa"]


def random_words(rng: np.random.Generator, number: int) -> list[str]:
    alphabet = "abcdefgh'-.,()0123456789éçœ°€日本𝔸😀\u00a0\u200b"
    return ["".join(rng.choice(list(alphabet), rng.integers(1, 12))) for _ in range(number)]


def test_each_words_tokens_spell_it():
    """Told from the ids alone: what they decode to."""
    tokenizer = tiny_tokenizers.byte_level().tokenizer
    words = random_words(np.random.default_rng(0), 400)
    text, places = joined(words)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    alignment = align(np.array(encoding.offsets), places, len(text))
    spelled = [
        tokenizer.decode(
            [i for i, w in zip(encoding.ids, alignment.word_ids, strict=True) if w == k]
        )
        for k in range(len(alignment.words))
    ]
    assert alignment.words.tolist() == list(range(400))
    assert [s.removeprefix(" ") for s in spelled] == words
    np.testing.assert_array_equal(alignment.word_ids[alignment.firsts], range(400))
    assert (alignment.word_ids[alignment.firsts[1:] - 1] != range(1, 400)).all()


def test_tokens_of_white_space_alone_are_in_no_word():
    spans, offsets = [(0, 1), (3, 4), (4, 6)], [(0, 0), (0, 1), (1, 3), (2, 4), (4, 5), (5, 6)]
    alignment = align(np.array(offsets), np.array(spans), 6)
    assert alignment.word_ids.tolist() == [-1, 0, -1, 1, 2, 2]
    assert alignment.firsts.tolist() == [1, 3, 4]
    # A token of two words is the first one's.
    alignment = align(np.array([(0, 1), (3, 6)]), np.array(spans), 6)
    assert alignment.word_ids.tolist() == [0, 1]
    assert alignment.words.tolist() == [0, 1]


def test_ids_are_those_of_the_models_own_tokenizer(shared):
    folder = shared / "data" / "tokenizers" / "modernbert-base"
    vocabulary = open_vocabulary(folder)
    cases = json.loads((folder / "reference_ids.json").read_text())["cases"]
    cases = [case for case in cases if case["text"].strip() and "[MASK]" not in case["text"]]
    assert len(cases) > 10
    examples = [Text(str(i), case["text"], ()) for i, case in enumerate(cases)]
    rows = encode(examples, vocabulary, "multilabel", ["X"], Settings()).rows
    assert [row.input_ids.tolist() for row in rows] == [case["ids"] for case in cases]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l'hépatite B, aiguë.", ["l", "'", "hépatite", "B", ",", "aiguë", "."]),
        ("5mg/kg_10 %", ["5mg", "/", "kg", "_", "10", "%"]),
        ("e\u0301tat \u0301 -\u0301", ["e\u0301tat", "\u0301", "-\u0301"]),
        (" \t\r\n ", []),
        ("\ufeffa\r\nb", ["\ufeff", "a", "b"]),
    ],
)
def test_words_of_raw_text(text, words):
    assert [text[start:end] for start, end in words_of(text)] == words


def test_a_decomposed_accent_is_in_its_words_token():
    """The tokenizer composes it; offsets are those of the text as it is."""
    text = "une he\u0301patite B"
    example = Annotated("t", text, (Span(4, 13, "X"),))
    encoded = encode([example], tiny_tokenizers.byte_level(), "tagging", ["X"], Settings())
    alignment = encoded.documents[0].alignment
    assert [text[a:b] for a, b in zip(alignment.starts, alignment.ends, strict=True)] == [
        "une", "he\u0301patite", "B",
    ]  # fmt: skip
    assert encoded.counts.moved == 0


def test_targets_of_every_kind(letters):
    settings = Settings(max_length=16, stride=2)
    labels = ["X", "Y"]

    def row(example, kind):
        (found,) = encode([example], letters, kind, labels, settings).rows
        assert found.example == 0
        return found

    text = Text("t", "a b c", ("Y",))
    assert row(text, "classification").input_ids.tolist() == [1, *ABC, 2]
    assert row(text, "classification").targets["label"] == np.int32(1)
    np.testing.assert_array_equal(row(text, "multilabel").targets["labels"], [0, 1])
    assert row(text, "multilabel").targets["labels"].dtype == np.float32
    paired = row(text._replace(pair="c"), "classification")
    assert paired.input_ids.tolist() == [1, *ABC, 2, 6, 2]
    relation = row(Text("t", "c b a b", ("X",), markers=(6, 2)), "relation")
    assert relation.targets["markers"].tolist() == [4, 2]
    assert relation.targets["markers"].dtype == np.int32
    assert relation.targets["label"] == 0

    words = Words("w", ("a", "b", "c"), ("O", "B-Y", "I-Y"))
    assert tag_names(labels) == ("O", "B-X", "I-X", "B-Y", "I-Y")
    assert row(words, "tagging").targets["labels"].tolist() == [-1, 0, 3, 4, -1]
    nested = Annotated("d", "a b c", (Span(0, 5, "Y"), Span(2, 3, "X")))
    spans = row(nested, "spans").targets
    assert spans["word_ids"].tolist() == [-1, 0, 1, 2, -1]
    assert spans["spans"].tolist() == [[0, 2, 1], [1, 1, 0]]
    assert spans["spans"].dtype == spans["word_ids"].dtype == np.int32
    bare = row(Annotated("d", "a b c", ()), "spans").targets
    assert bare["spans"].shape == (0, 3)


def test_only_a_words_first_token_has_a_target(vocabulary):
    words = Words("w", ("lamivudine", "aspirin"), ("B-X", "I-X"))
    (row,) = encode([words], vocabulary, "tagging", ["X"], Settings()).rows
    labels = row.targets["labels"]
    assert len(labels) == len(row.input_ids) > 4
    assert labels[labels >= 0].tolist() == [1, 2]
    assert labels[0] == labels[-1] == -1


def test_texts_without_labels_have_targets_without_any(letters):
    (row,) = encode([Text("t", "a", ())], letters, "multilabel", ["X", "Y"], Settings()).rows
    assert row.targets["labels"].tolist() == [0, 0]


BAD = {
    "unknown label": (Text("i", "a b", ("Z",)), "classification", "label 'Z' is none of X, Y"),
    "no label": (Text("i", "a b", ()), "classification", "0 labels; .* needs one"),
    "two labels": (Text("i", "a b", ("X", "Y")), "relation", "2 labels"),
    "no text": (Text("i", " \n", ("X",)), "multilabel", "empty text"),
    "no pair": (Text("i", "a b", ("X",), pair=""), "classification", "empty text"),
    "no markers": (Text("i", "a b", ("X",)), "relation", "markers"),
    "marker beyond": (Text("i", "a b", ("X",), markers=(0, 3)), "relation", r"\(0, 3\) of a"),
    "no words": (Words("i", (), ()), "tagging", "0 words with 0 tags"),
    "empty word": (Words("i", ("a", "", "b"), ("O",) * 3), "tagging", "word 1 is empty"),
    "missing tag": (Words("i", ("a", "b"), ("O",)), "tagging", "2 words with 1 tags"),
    "no tag": (Words("i", ("a",), ("X",)), "tagging", "'X' of word 0 is neither"),
    "unknown type": (Words("i", ("a",), ("B-Z",)), "tagging", "label 'Z' is none of X, Y"),
    "orphan": (Words("i", ("a", "b"), ("B-X", "I-Y")), "tagging", "'I-Y' of word 1"),
    "empty document": (Annotated("i", "", ()), "spans", "empty text"),
    "beyond the text": (Annotated("i", "a b", (Span(2, 4, "X"),)), "spans", "X at 2-4 of a text"),
    "no characters": (Annotated("i", "a b", (Span(1, 1, "X"),)), "spans", "X at 1-1"),
    "before the text": (Annotated("i", "a b", (Span(-1, 1, "X"),)), "tagging", "X at -1-1"),
    "across": (
        Annotated("i", "a b c", (Span(0, 3, "X"), Span(2, 5, "Y"))), "tagging", "Y at 2-5 overlaps"
    ),
    "unknown entity": (Annotated("i", "a b", (Span(0, 1, "Z"),)), "spans", "label 'Z'"),
    "text for words": (Text("i", "a b", ("X",)), "tagging", "Text in a task of kind tagging"),
    "words for spans": (Words("i", ("a",), ("O",)), "spans", "Words in a task of kind spans"),
    "words for text": (Words("i", ("a",), ("O",)), "multilabel", "Words .*; allowed: Text"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_what_cannot_be_learnt_from_is_refused_by_name(letters, fault):
    example, kind, message = BAD[fault]
    example = example._replace(where="file.tsv:7")
    with pytest.raises(ValueError, match=rf"^file\.tsv:7: i: .*{message}"):
        encode([example], letters, kind, ["X", "Y"], Settings())
    good = Text("g", "a", ("X",)) if kind in ("classification", "multilabel") else None
    if good is not None:  # the place is named where there is no id
        with pytest.raises(ValueError, match=r"^example 1: "):
            encode([good, example._replace(where="", id="")], letters, kind, ["X", "Y"], Settings())


def test_messages_quote_no_text(letters):
    secret = "quixnor zorblat"
    examples = [
        (Annotated("i", secret, (Span(2, 99, "X"),)), "spans"),
        (Words("i", ("quixnor", "zorblat"), ("O", "I-X")), "tagging"),
        (Text("i", secret, ("Z",)), "classification"),
    ]
    for example, kind in examples:
        with pytest.raises(ValueError, match=r"^i: ") as told:
            encode([example], letters, kind, ["X"], Settings())
        assert "quixnor" not in str(told.value)
        assert "zorblat" not in str(told.value)


def test_lengths_and_labels_that_cannot_be_meant(letters):
    words = [Words("w", ("a",), ("O",))]
    with pytest.raises(ValueError, match=r"max_length=3, stride=0: .* a row has 1"):
        encode(words, letters, "tagging", ["X"], Settings(max_length=3, stride=0))
    with pytest.raises(ValueError, match=r"max_length=20, stride=18"):
        encode(words, letters, "tagging", ["X"], Settings(max_length=20, stride=18))
    encode([Text("t", "a", ("X",))], letters, "classification", ["X"], Settings(max_length=20))
    with pytest.raises(ValueError, match="twice among X, Y, X"):
        encode(words, letters, "tagging", ["X", "Y", "X"], Settings())


@pytest.mark.parametrize("lacking", [["cls"], ["sep", "pad"]])
def test_a_tokenizer_without_special_tokens_is_refused_with_their_names(tmp_path, lacking):
    roles = [role for role in ("cls", "sep", "pad", "unk") if role not in lacking]
    ids = {f"[{role.upper()}]": i for i, role in enumerate(roles)}
    Tokenizer(models.WordLevel(ids, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    names = ", ".join(f"[{role.upper()}]" for role in lacking)
    with pytest.raises(ValueError) as told:
        open_vocabulary(tmp_path)
    assert f"the tokenizer has no {names};" in str(told.value)
    assert "[MASK]" not in str(told.value)  # nothing is masked in fine-tuning


def test_words_without_a_token_are_passed_over():
    """A zero-width space is no token of BERT's; the entity around it stays one."""
    vocabulary = tiny_tokenizers.word_pieces()
    words = Words("w", ("\u200b", "aspirin", "\u200b", "was"), ("B-X", "I-X", "I-X", "I-X"))
    encoded = encode([words], vocabulary, "tagging", ["X"], Settings())
    labels = encoded.rows[0].targets["labels"]
    assert labels[labels >= 0].tolist() == [1, 2]
    assert (encoded.counts.silent, encoded.counts.lost) == (2, 0)
    silent = Words("w", ("\u200b", "was"), ("B-X", "O"))
    encoded = encode([silent], vocabulary, "tagging", ["X"], Settings())
    assert (encoded.counts.silent, encoded.counts.lost) == (1, 1)
    lines = encoded.counts.lines(512)
    assert lines == [
        "1 words without a token of their own, which are not learnt",
        "1 of 1 entities not learnt: no row shows them",
    ]
    nothing = encode([Words("w", ("\u200b",), ("O",))], vocabulary, "tagging", ["X"], Settings())
    assert nothing.rows[0].input_ids.tolist() == [vocabulary.cls, vocabulary.sep]


def test_an_entity_between_punctuation():
    text = "l'hépatite,aiguë"
    example = Annotated("d", text, (Span(2, 10, "X"),))
    for kind in ("tagging", "spans"):
        encoded = encode([example], tiny_tokenizers.byte_level(), kind, ["X"], Settings())
        assert encoded.documents[0].entities == ((2, 2, "X"),)
        assert (encoded.counts.moved, encoded.counts.lost) == (0, 0)


def test_an_entity_within_a_word_is_learnt_as_the_whole_word(letters):
    text = "a foobar b quux c"
    spans = (Span(5, 8, "X"), Span(11, 13, "X"), Span(13, 15, "Y"))
    encoded = encode([Annotated("d", text, spans)], letters, "tagging", ["X", "Y"], Settings())
    assert encoded.rows[0].targets["labels"].tolist() == [-1, 0, 1, 0, 1, 0, -1]
    assert (encoded.counts.moved, encoded.counts.lost, encoded.counts.entities) == (3, 1, 3)
    encoded = encode([Annotated("d", text, spans)], letters, "spans", ["X", "Y"], Settings())
    assert encoded.rows[0].targets["spans"].tolist() == [[1, 1, 0], [3, 3, 0], [3, 3, 1]]
    assert (encoded.counts.moved, encoded.counts.lost) == (3, 0)
    blank = encode(
        [Annotated("d", "a  b", (Span(1, 2, "X"),))], letters, "spans", ["X"], Settings()
    )
    assert (blank.counts.moved, blank.counts.lost) == (0, 1)


@pytest.mark.parametrize("kind", ["tagging", "spans"])
@pytest.mark.parametrize(("max_length", "rows"), [(512, 5), (8192, 1)])
def test_the_only_entity_is_at_the_end_of_2000_tokens(letters, kind, max_length, rows):
    text = "a b " * 999 + "c d"
    example = Annotated("d", text, (Span(len(text) - 3, len(text), "X"),))
    settings = Settings(max_length=max_length, stride=128)
    encoded = encode([example], letters, kind, ["X"], settings)
    assert len(encoded.rows) == rows
    assert sum(view.owned.sum() for view in encoded.views) == 2000
    last = encoded.rows[-1].targets
    if kind == "tagging":
        assert last["labels"][-3:].tolist() == [1, 2, -1]
    else:
        assert last["spans"].tolist() == [[len(last["word_ids"]) - 4, len(last["word_ids"]) - 3, 0]]
    assert all(
        (r.targets["labels"] <= 0).all() if kind == "tagging" else not len(r.targets["spans"])
        for r in encoded.rows[:-1]
    )
    expected = [f"1 of 1 documents read in windows of {max_length} tokens"] if rows > 1 else []
    assert encoded.counts.lines(max_length) == expected


def test_an_entity_that_no_window_holds_is_counted(letters):
    text = "a b c d e f g h i j k l"
    settings = Settings(max_length=8, stride=2)
    spans = (Span(0, 23, "X"), Span(8, 11, "X"), Span(6, 15, "X"))
    encoded = encode([Annotated("d", text, spans)], letters, "spans", ["X"], settings)
    assert [view.words.tolist() for view in encoded.views] == [
        [0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9], [8, 9, 10, 11],
    ]  # fmt: skip
    assert [row.targets["spans"].tolist() for row in encoded.rows] == [
        [[4, 5, 0]], [[0, 1, 0]], [],
    ]  # fmt: skip
    assert encoded.counts.lost == 2
    # Tags go on across windows: nothing of such an entity is lost there.
    tagging = encode([Annotated("d", text, spans[:1])], letters, "tagging", ["X"], settings)
    assert tagging.counts.lost == 0
    assert [row.targets["labels"].tolist()[1] for row in tagging.rows] == [1, 2, 2]


def test_texts_are_cut_at_their_end_and_counted(letters):
    examples = [Text("1", "a b c d e f", ("X",)), Text("2", "a b c", ("X",))]
    encoded = encode(examples, letters, "classification", ["X"], Settings(max_length=6))
    assert [row.input_ids.tolist() for row in encoded.rows] == [[1, 4, 5, 6, 7, 2], [1, 4, 5, 6, 2]]
    assert encoded.counts.lines(6) == ["1 of 2 texts cut at 6 tokens, by 2"]
    counts = encoded.counts
    assert (counts.examples, counts.rows, counts.tokens, counts.cut) == (2, 2, 11, 1)
    paired = [Text("1", "a b c d e f", ("X",), pair="g h"), Text("2", "a", ("X",), pair="b")]
    encoded = encode(paired, letters, "classification", ["X"], Settings(max_length=8))
    assert [row.input_ids.tolist() for row in encoded.rows] == [
        [1, 4, 5, 6, 2, 10, 11, 2], [1, 4, 2, 5, 2],
    ]  # fmt: skip


def test_a_relation_keeps_its_markers_in_a_text_longer_than_a_row(letters):
    words = list("abcdefghijklmnopqrst")
    text = " ".join(words)
    example = Text("r", text, ("X",), markers=(text.index("c"), text.index("r")))
    encoded = encode([example], letters, "relation", ["X"], Settings(max_length=8))
    (row,) = encoded.rows
    seen = "".join(words[i - 4] for i in row.input_ids[1:-1].tolist())
    assert seen == "bcdqrs"
    assert [words[row.input_ids[i] - 4] for i in row.targets["markers"]] == ["c", "r"]
    assert encoded.counts.lines(8) == ["1 of 1 texts cut at 8 tokens, by 14"]


def test_a_marker_is_its_first_token():
    vocabulary = tiny_tokenizers.byte_level()
    text = "the<< aspirin >> was given [[ BRCA1 ]]"
    example = Text("r", text, ("X",), markers=(text.index("<<"), text.index("[[")))
    (row,) = encode([example], vocabulary, "relation", ["X"], Settings()).rows
    tokens = [vocabulary.tokenizer.id_to_token(i) for i in row.input_ids.tolist()]
    assert [tokens[i] for i in row.targets["markers"]] == ["<", "["]
