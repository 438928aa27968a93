"""Facts in haystacks: balance, no values in two splits, probes that learn and a bag that cannot."""

import itertools
import json
from collections import Counter

import jax
import numpy as np
import pytest
import tiny_tokenizers
from scipy import stats

from cpt_jax.analysis import facts, haystack, needle, probe
from cpt_jax.analysis.__main__ import main
from cpt_jax.model import hub
from cpt_jax.model.modernbert import init_params
from cpt_jax.model.spec import SIZES

TEXTS = [
    "The patient was seen today. He had no pain at all! What was given is known? Nothing more.",
    "Le lendemain il va mieux. La suite est simple; il sort.",
]
LENGTHS = (256, 512)


@pytest.fixture(scope="module", params=["fr", "en"])
def made(request):
    return haystack.make(request.param, TEXTS, tiny_tokenizers.byte_level(), LENGTHS)


def test_every_cell_has_as_many_pairs(made):
    cells = Counter((pair.length, pair.place, pair.answer, pair.split) for pair in made)
    wanted = itertools.product(LENGTHS, haystack.PLACES, (True, False), haystack.PAIRS)
    assert cells == {cell: haystack.PAIRS[cell[-1]] for cell in wanted}
    assert sum(haystack.PAIRS.values()) * 6 * len(haystack.LENGTHS) == 1500


def test_values_are_of_one_split(made):
    seen = {split: set() for split in haystack.PAIRS}
    for pair in made:
        for fact in (pair.fact, pair.question):
            seen[pair.split] |= set(fact.values.items())
    for one, other in itertools.combinations(seen.values(), 2):
        assert one
        assert other
        assert not one & other


def test_a_question_is_the_fact_or_differs_in_every_value(made):
    for pair in made:
        assert pair.fact.template == pair.question.template
        same = [pair.fact.values[slot] == value for slot, value in pair.question.values.items()]
        assert all(same) if pair.answer else not any(same)
        assert 2 <= len(same) <= 4


def test_a_pair_holds_its_fact_in_its_place(made):
    """Read back from the tokens alone."""
    tokenizer = tiny_tokenizers.byte_level().tokenizer
    for pair in made:
        assert pair.length - 60 < len(pair.ids) <= pair.length  # but for less than a sentence
        text, question, rest = tokenizer.decode(pair.ids, skip_special_tokens=False).split("[SEP]")
        assert (text[:5], rest) == ("[CLS]", "")
        assert question == f" {pair.question.text}"
        before, after = text.removeprefix("[CLS]").split(f" {pair.fact.text}")
        share = len(before) / len(before + after)
        low, high = {"start": (0, 0), "middle": (0.2, 0.8), "end": (1, 1)}[pair.place]
        assert low <= share <= high


def test_each_language_has_eight_templates_of_known_slots():
    for language, of_language in facts.FACTS.items():
        assert len(of_language["templates"]) == 8
        for template in of_language["templates"]:
            for slot in facts.slots_of(language, template):
                values = [facts.values_of(language, slot, split) for split in facts.SPLITS]
                assert all(len(each) >= 2 for each in values)
                everything = list(itertools.chain(*values))
                assert len(set(everything)) == len(everything)


def test_a_bag_of_words_stays_at_chance(made):
    """The interval of so many coin flips, at four standard deviations."""
    outcome = needle.bag(made, tiny_tokenizers.byte_level().tokenizer.get_vocab_size())
    count = len(outcome.right)
    assert count == 2 * 3 * 2 * haystack.PAIRS["test"]
    assert abs(outcome.right.sum() - count / 2) < 4 * np.sqrt(count / 4)


def test_a_bag_of_words_would_learn_what_words_tell():
    rng = np.random.default_rng(0)
    labels = {split: rng.integers(0, 2, 200) for split in ("train", "test")}
    rows = {
        split: [[5 + int(label), *rng.integers(7, 40, 10).tolist()] for label in each]
        for split, each in labels.items()
    }
    found = probe.bag_of_words(rows, labels, 40)
    assert (found == labels["test"]).mean() == 1.0


def test_a_probe_learns_what_states_tell_and_nothing_from_noise():
    rng = np.random.default_rng(1)
    labels = {
        split: rng.integers(0, 2, n) for split, n in (("train", 400), ("dev", 80), ("test", 200))
    }
    noise = {
        split: rng.normal(size=(len(each), 8)).astype(np.float32) for split, each in labels.items()
    }
    # Exclusive or of two signs: no linear layer alone could tell it.
    for split, each in labels.items():
        sign = np.where(each == 1, 1, -1)
        noise[split][:, 1] = np.abs(noise[split][:, 1]) * sign * np.sign(noise[split][:, 0])
    how = probe.Training(epochs=20, learning_rate=3e-3)
    found = probe.train(noise, labels, 0, how)
    assert (found == labels["test"]).mean() > 0.8
    shuffled = {split: rng.permutation(each) for split, each in labels.items()}
    found = probe.train(noise, shuffled, 0, how)
    assert abs((found == shuffled["test"]).mean() - 0.5) < 4 * np.sqrt(0.25 / 200)
    again = probe.train(noise, shuffled, 0, how)
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize(("right", "of"), [(0, 10), (5, 10), (10, 10), (37, 240), (1, 1)])
def test_wilson_is_scipy_s(right, of):
    wanted = stats.binomtest(right, of).proportion_ci(method="wilson")
    assert probe.wilson(right, of) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("needle")
    vocabulary = tiny_tokenizers.byte_level()
    (root / "tokenizer").mkdir()
    vocabulary.tokenizer.add_special_tokens(["[MASK]"])
    vocabulary.tokenizer.save(str(root / "tokenizer/tokenizer.json"))
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 512,
        "vocab_size": vocabulary.tokenizer.get_vocab_size(),
        "pad_token_id": vocabulary.pad,
        "cls_token_id": vocabulary.cls,
        "sep_token_id": vocabulary.sep,
    }
    spec = SIZES["base"].override(sizes, "model")
    hub.save(
        root / "model", spec, init_params(spec, jax.random.key(0)), tokenizer_dir=root / "tokenizer"
    )
    lines = [json.dumps({"id": str(i), "text": text}) for i, text in enumerate(TEXTS)]
    (root / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return root


def command(root, *more):
    paths = (str(root / "model"), "--texts", str(root / "texts.jsonl"), "--out", str(root / "out"))
    return main(["needle", *paths, "--language", "en", *more])


def test_a_page_by_length_and_place(model, capsys):
    assert command(model, "--lengths", "256", "512", "--seeds", "2") == 0
    said = capsys.readouterr().out
    rows = [line.split(" | ")[0].strip("| ") for line in said.splitlines() if line.startswith("| ")]
    assert rows[2:] == [
        "all",
        "256 tokens",
        "512 tokens",
        "at its start",
        "at its middle",
        "at its end",
    ]
    assert "96 test pairs" in said
    page = (model / "out/needle.html").read_text()
    assert page.count("<svg") == 2
    assert needle.BAG in page


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--lengths", "513"), "lengths: 513; "),
        (("--lengths", "8"), "length 8: no room for a fact and its question"),
        (("--seeds", "0"), "seeds, epochs: 1 or more"),
        (("--lengths", "256", "--texts", "none.jsonl"), "none.jsonl"),
    ],
)
def test_what_cannot_be_asked_is_refused(model, capsys, more, said):
    assert command(model, *more) == 2
    assert said in capsys.readouterr().err
