"""Linear probes: against scikit-learn, on words that are counted by hand, and at chance."""

import re
from collections import Counter

import jax
import numpy as np
import pytest
import tiny_run
import tiny_tokenizers
from sklearn.linear_model import RidgeClassifier

from cpt_jax.analysis import linear, words
from cpt_jax.analysis.__main__ import main
from cpt_jax.analysis.facts import SPLITS
from cpt_jax.analysis.words import BEFORE, ENTITY, PIECES, Word, control, questions, words_of
from cpt_jax.finetune.encode import encode
from cpt_jax.finetune.examples import Settings, Words
from cpt_jax.model import hub
from cpt_jax.model.modernbert import init_params
from cpt_jax.model.spec import SIZES


@pytest.mark.parametrize("classes", [2, 5])
def test_a_probe_is_scikit_learn_s(monkeypatch, classes):
    rng = np.random.default_rng(classes)
    centres = rng.normal(size=(classes, 12))
    labels = {
        split: rng.integers(0, classes, n) for split, n in zip(SPLITS, (80, 20, 60), strict=True)
    }
    states = {
        split: (3 + centres[each] + rng.normal(size=(len(each), 12))).astype(np.float32)
        for split, each in labels.items()
    }
    train = states["train"].astype(np.float64)
    centred = train - train.mean(0)
    for ridge in (1e-3, 1.0):
        monkeypatch.setattr(linear, "RIDGES", (ridge,))
        alpha = ridge * np.trace(centred.T @ centred) / 12
        theirs = RidgeClassifier(alpha=alpha).fit(train, labels["train"])
        wanted = theirs.score(states["test"].astype(np.float64), labels["test"])
        assert linear.accuracy(states, labels) == pytest.approx(wanted, abs=1e-12)


def test_the_ridge_is_chosen_on_dev():
    """More numbers than words: with hardly a ridge noise is learnt by heart."""
    rng = np.random.default_rng(0)
    labels = {split: rng.integers(0, 2, n) for split, n in zip(SPLITS, (60, 200, 200), strict=True)}
    states = {split: rng.normal(size=(len(each), 55)) for split, each in labels.items()}
    for split, each in labels.items():
        states[split][:, 0] += 4 * each
    best = linear.accuracy(states, labels)
    alone = []
    for ridge in linear.RIDGES:
        linear_only = pytest.MonkeyPatch()
        with linear_only.context() as patch:
            patch.setattr(linear, "RIDGES", (ridge,))
            alone.append(linear.accuracy(states, labels))
    assert best == alone[2] > alone[0] + 0.05
    with pytest.raises(ValueError, match="0 of dev"):
        linear.accuracy(states, {**labels, "dev": np.zeros(0, int)})


TEXTS = [
    (
        ["Non-Hodgkin", "lymphoma", "was", "treated", "with", "aspirin"],
        ["B-D", "I-D", "O", "O", "O", "B-C"],
    ),
    (["The", "patient", "was", "given", "aspirin"], ["O", "O", "O", "O", "B-C"]),
    (["BRCA1", "was", "found"], ["O", "O", "O"]),
]


@pytest.fixture(scope="module")
def found():
    vocabulary = tiny_tokenizers.byte_level()
    examples = [Words(str(i), tuple(w), tuple(t)) for i, (w, t) in enumerate(TEXTS)]
    settings = Settings(max_length=64, stride=8)
    encoded = encode(examples, vocabulary, "tagging", ["C", "D"], settings)
    return vocabulary.tokenizer, words_of(encoded, 100)


def test_words_are_read_with_their_entities(found):
    tokenizer, of = found
    every = Counter(
        (word, tag.partition("-")[2]) for text in TEXTS for word, tag in zip(*text, strict=True)
    )
    read = Counter((tokenizer.decode(list(word.tokens)).strip(), word.entity) for word in of)
    assert read <= every
    of_row = Counter(tuple(word.ids) for word in of)
    assert sorted(of_row.values()) == [3, 4, 4]
    for word in of:
        assert tuple(word.ids[word.place : word.place + len(word.tokens)]) == word.tokens


def test_questions_are_of_each_word(found):
    _, of = found
    split = {"train": of, "dev": of, "test": of}
    asked = questions(split)
    kinds = sorted({word.entity for word in of})
    assert kinds[0] == ""
    for i, word in enumerate(of):
        assert asked[ENTITY]["test"][i] == kinds.index(word.entity)
        assert asked[PIECES]["test"][i] == (len(word.tokens) > 1)
    before = Counter(word.ids[word.place - 1] for word in of)
    for i, word in enumerate(of):
        place = asked[BEFORE]["test"][i]
        same = [
            asked[BEFORE]["test"][j]
            for j, o in enumerate(of)
            if o.ids[o.place - 1] == word.ids[word.place - 1]
        ]
        assert set(same) == {place}
    assert len(set(asked[BEFORE]["test"].tolist())) == min(len(before), words.OFTEN)


def test_a_control_is_of_word_types_and_cannot_be_known_of_new_ones():
    """Types of test that train has not: right as often as two draws are the same, no more."""
    rng = np.random.default_rng(2)
    types = {"train": range(400), "dev": range(400, 600), "test": range(600, 1600)}
    of = {
        s: [Word([0, t], 1, (t,), "") for t in each for _ in range(2)] for s, each in types.items()
    }
    labels = {s: (rng.random(len(each)) < 0.3).astype(int) for s, each in of.items()}
    drawn = control(of, labels)
    for each in drawn.values():
        np.testing.assert_array_equal(each[::2], each[1::2])
        assert abs(each.mean() - labels["train"].mean()) < 4 * np.sqrt(0.21 * 2 / len(each))
    states = {
        s: np.repeat(rng.normal(size=(len(each) // 2, 16)), 2, axis=0) for s, each in of.items()
    }
    chance = max(drawn["test"].mean(), 1 - drawn["test"].mean())
    assert linear.accuracy(states, drawn) < chance + 4 * np.sqrt(0.25 / 1000)
    # Where train and test share their types it can be learnt by heart.
    same: dict[str, list[Word]] = dict.fromkeys(map(str, SPLITS), of["train"])
    wide = rng.normal(size=(400, 400)).repeat(2, axis=0)
    known = control(same, dict.fromkeys(SPLITS, labels["train"]))
    assert linear.accuracy(dict.fromkeys(SPLITS, wide), known) > 0.99


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("probe")
    tokenizer = tiny_run.tokenizer(root / "tokenizer")
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
    sizes = {"vocab_size": len(tiny_run.SPECIAL + tiny_run.WORDS), **tiny_run.MODEL, **special}
    for seed, name in enumerate("ab"):
        spec = SIZES["base"].override(sizes, "model")
        hub.save(
            root / name, spec, init_params(spec, jax.random.key(seed)), tokenizer_dir=tokenizer
        )
    rng = np.random.default_rng(0)
    for split, count in (("train", 60), ("dev", 30), ("test", 30)):
        with (root / f"{split}.tsv").open("w") as file:
            for _ in range(count):
                for number in rng.integers(0, 120, 8):  # every third word is an entity
                    file.write(f"w{number}\t{'O' if number % 3 else 'B-X'}\n")
                file.write("\n")
    (root / "marks.yaml").write_text(
        "name: marks\nkind: tagging\nformat: conll\nsettings: {max_length: 32, stride: 4}\n"
        "files: {train: train.tsv, dev: dev.tsv, test: test.tsv}\n"
    )
    return root


def command(root, *more):
    paths = ("--data", str(root), "--out", str(root / "out"), "--words", "200")
    return main(["probe", str(root / "a"), str(root / "b"), *paths, *more])


def test_a_page_by_layer(root, capsys):
    assert command(root, "--task", str(root / "marks.yaml")) == 0
    said = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows if row[0] not in ("layer", "---")] == [
        "embeddings",
        "0",
        "1",
    ] * 3
    for row in rows:
        for cell in row[1:] if row[0] in ("embeddings", "0", "1") else ():
            asked, above = map(float, re.split(r"[ ()]+", cell)[:2])
            assert 0 <= asked - above <= 100
    page = (root / "out/probe.html").read_text()
    assert page.count("<svg") == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--task", "gad"), "task gad is of kind classification; allowed: tagging"),
        (("--task", "none.yaml"), "none.yaml"),
        (("--task", "ncbi_disease", "--words", "4"), "words: 4 is not 8 or more"),
    ],
)
def test_what_cannot_be_probed_is_refused(root, capsys, more, said):
    assert command(root, *more) == 2
    assert said in capsys.readouterr().err
