"""Recipes of shares and factors, down to the tokens of packed rows."""

import json
from collections import Counter

import numpy as np
import pytest
from tiny_run import tokenizer

from cpt_jax.data.mixture import Mixture
from cpt_jax.data.packing import plan_rows
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import open_source

FRENCH = {"literature": 70, "codes": 20, "leaflets": 6, "cases": 4}  # SPEC section 4, in percent
# Of each source: words of its documents, how many of each, and how many times they are taken.
MADE = {
    "literature": ((8, 998), 60, 4.3),
    "codes": ((8,), 700, 1.0),
    "leaflets": ((998,), 12, 2.5),
    "cases": ((998, 8), 9, 34.1),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Prepared sources of documents of 10 and of 1,000 tokens, each in rows of 256."""
    root = tmp_path_factory.mktemp("mixture")
    vocabulary = tokenizer(root / "tokenizer")
    found = {}
    for name, (lengths, documents, factor) in MADE.items():
        records = [
            {"text": " ".join(f"w{(i + j) % 100}" for j in range(words)), "repeat": factor}
            for i in range(documents)
            for words in lengths
        ]
        file = root / f"{name}.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        options = {"seq_len": 256, "repeat_field": "repeat", "heldout_fraction": 0.0}
        manifest = prepare([str(file)], vocabulary, root / name, **options)
        assert manifest["tokens"] == documents * sum(words + 2 for words in lengths)
        found[name] = open_source(root / name)
    return found


def test_token_shares_are_the_recipe_s(sources):
    """Counted in the rows themselves, within 0.1 points; rows of some sources are not full."""
    assert min(source.tokens_per_row for source in sources.values()) < 253
    mixture = Mixture(sources, FRENCH, seed=42)
    tokens: Counter[str] = Counter()
    rows = 12_000
    for row in (mixture[i] for i in range(rows)):
        tokens[mixture.names[row["source"]]] += int((row["segment_ids"] > 0).sum())
    shares = {name: 100 * count / tokens.total() for name, count in tokens.items()}
    assert shares == pytest.approx(FRENCH, abs=0.1)
    by_rows = {name: 100 * n / rows for name, n in mixture.cursors_after(rows).items()}
    assert by_rows != pytest.approx(FRENCH, abs=0.1), "the check would pass with shares of rows"


def test_factors_hold_in_expectation_over_100_seeds():
    """SPEC section 7's factors, on documents of 10 and of 1,000 tokens that are packed together."""
    factors, of_each, seeds = (4.3, 8.5, 12.8, 21.3, 34.1), 10, 100
    wanted = np.repeat(factors, of_each)
    lengths = np.tile([10, 1000], len(wanted) // 2)
    copies = np.zeros((seeds, len(wanted)), int)
    for seed in range(seeds):
        plan = plan_rows(lengths, wanted, 1024, seed)
        begun = plan.pieces[plan.pieces[:, 1] == 0, 0]  # a copy begins once, wherever it is cut
        copies[seed] = np.bincount(begun, minlength=len(wanted))
    assert set(np.unique(copies - np.floor(wanted))) == {0, 1}
    for factor in factors:
        part = factor % 1
        for length in (10, 1000):
            drawn = copies[:, (wanted == factor) & (lengths == length)]
            assert abs(drawn.mean() - factor) < 4 * np.sqrt(part * (1 - part) / drawn.size)
    # A document is not lucky in every seed: 100 draws of its own, six standard deviations.
    spread = np.sqrt(wanted % 1 * (1 - wanted % 1) / seeds)
    assert (np.abs(copies.mean(axis=0) - wanted) < 6 * spread).all()
