"""Row plans: checked token by token against nothing but the definition."""

import itertools

import numpy as np
import pytest

from cpt_jax.data.packing import Plan, plan_rows

CASES = list(
    itertools.product(
        (8, 64, 500),  # seq_len
        ("short", "mixed", "long"),
        (1, 7, 1000),  # pool_documents
        ("ones", "upsampled"),
    )
)


def lengths_of(kind: str, seq_len: int, rng: np.random.Generator) -> np.ndarray:
    mean = {"short": seq_len / 6, "mixed": seq_len / 2, "long": seq_len * 3}[kind]
    return np.maximum(1, rng.lognormal(np.log(mean), 1.0, size=150)).astype(int)


def rows_of(plan: Plan) -> list[list[tuple[int, int, int]]]:
    pieces = [(int(document), int(start), int(n)) for document, start, n in plan.pieces]
    return [pieces[a:b] for a, b in itertools.pairwise(plan.row_offsets.tolist())]


@pytest.mark.parametrize(("seq_len", "kind", "pool", "factors"), CASES)
def test_every_token_its_factor_times(seq_len, kind, pool, factors):
    rng = np.random.default_rng(len(kind) * seq_len + pool)
    lengths = lengths_of(kind, seq_len, rng)
    wanted = np.ones(150) if factors == "ones" else rng.choice([0, 0.3, 1, 2.5, 8], size=150)
    plan = plan_rows(lengths, wanted, seq_len, 0, pool)

    seen = [np.zeros(length, int) for length in lengths]
    short_rows = 0
    for row in rows_of(plan):
        documents = [document for document, _, _ in row]
        assert len(set(documents)) == len(documents), "a row holds a document twice"
        size = sum(length for _, _, length in row)
        assert 0 < size <= seq_len
        short_rows += size < seq_len
        for document, start, length in row:
            assert start + length <= lengths[document]
            seen[document][start : start + length] += 1
    for count, factor in zip(seen, wanted, strict=True):
        assert len(set(count)) == 1, "the tokens of a document occur unequally often"
        assert count[0] in (np.floor(factor), np.ceil(factor))
    assert short_rows <= max(count[0] for count in seen), "more than a short row per pass"
    assert plan.tokens == sum(count.sum() for count in seen)
    assert plan.efficiency == plan.tokens / (len(rows_of(plan)) * seq_len)
    assert plan.cuts == len(plan.pieces) - sum(count[0] for count in seen)


def test_fractional_factors_are_exact_in_expectation_and_drawn_per_seed():
    lengths, factors = np.full(4000, 5), np.full(4000, 1.3)
    plans = [plan_rows(lengths, factors, 100, seed) for seed in (0, 1)]
    # Four standard deviations: of a mean of draws of probability 0.3, and of a correlation.
    for plan in plans:
        assert abs(plan.tokens / lengths.sum() - 1.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)
    drawn = [np.bincount(plan.pieces[plan.pieces[:, 1] == 0, 0]) > 1 for plan in plans]
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 4 / np.sqrt(4000)


def test_a_plan_is_a_function_of_its_seed():
    lengths = lengths_of("mixed", 64, np.random.default_rng(0))
    first, again, other = (plan_rows(lengths, np.ones(150), 64, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.pieces, again.pieces)
    assert not np.array_equal(first.pieces[:20], other.pieces[:20])


def test_a_small_plan_by_hand():
    """Rows of 10: 23 are two full rows and a tail; 7 and 3 fit; of 7 and 7, one is cut at 3."""
    plan = plan_rows(np.array([23]), np.ones(1), 10, 0)
    assert rows_of(plan) == [[(0, 0, 10)], [(0, 10, 10)], [(0, 20, 3)]]
    plan = plan_rows(np.array([7, 3]), np.ones(2), 10, 0)
    assert sorted(rows_of(plan)[0]) == [(0, 0, 7), (1, 0, 3)]
    plan = plan_rows(np.array([7, 7]), np.ones(2), 10, 0)
    (whole, head), (tail,) = rows_of(plan)
    assert whole[1:] == (0, 7)
    assert head[1:] == (0, 3)
    assert tail == (head[0], 3, 4)


def ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def test_rows_are_not_sorted_by_length_and_cuts_spare_beginnings():
    rng = np.random.default_rng(1)
    lengths = np.maximum(3, rng.lognormal(5.5, 1.2, size=8000)).astype(int)
    plan = plan_rows(lengths, np.ones(8000), 1024, 0, pool_documents=1000)
    sizes = np.diff(plan.row_offsets)
    means = np.add.reduceat(lengths[plan.pieces[:, 0]], plan.row_offsets[:-1]) / sizes
    assert abs(np.corrcoef(ranks(means), np.arange(len(means)))[0, 1]) < 0.1
    assert plan.efficiency > 0.9998

    # Documents shorter than a row stay whole but for a few: the cuts fall on tails of long ones.
    beginnings = plan.pieces[plan.pieces[:, 1] == 0]
    short = beginnings[lengths[beginnings[:, 0]] <= 1024]
    assert np.mean(short[:, 2] < lengths[short[:, 0]]) < 0.02


def test_copies_of_an_upsampled_document_never_share_a_row():
    """Factors up to 34, where a sort by length put 81 % of the copies into one row."""
    rng = np.random.default_rng(2)
    lengths = np.maximum(3, rng.lognormal(4, 0.7, size=400)).astype(int)
    plan = plan_rows(lengths, rng.uniform(0, 34.1, size=400), 512, 0)
    places: dict[int, list[tuple[int, int]]] = {}
    for number, row in enumerate(rows_of(plan)):
        assert len({document for document, _, _ in row}) == len(row)
        for document, start, _ in row:
            places.setdefault(document, []).append((number, start))
    # The pieces of one copy come in order, so a copy begins at each start of 0.
    distances = [
        row - previous
        for found in places.values()
        for (previous, _), (row, start) in itertools.pairwise(found)
        if start == 0
    ]
    assert plan.copy_distance == min(distances) >= 1


def test_a_million_tokens_in_one_document():
    plan = plan_rows(np.array([1_000_000, 40]), np.ones(2), 8192, 0)
    assert len(plan.row_offsets) - 1 == 123  # 1,000,040 / 8192 = 122.07
    assert plan.cuts == 122
    assert plan.tokens == 1_000_040


@pytest.mark.parametrize(
    ("lengths", "factors", "seq_len", "words"),
    [
        ([3, 0], [1, 1], 8, "document 1 has 0 tokens"),
        ([3, 3], [1, -1], 8, "factor"),
        ([3, 3], [1, np.nan], 8, "factor"),
        ([3, 3], [1, np.inf], 8, "factor"),
        ([3, 3], [1, 1], 0, "seq_len=0"),
    ],
)
def test_errors(lengths, factors, seq_len, words):
    with pytest.raises(ValueError, match=words):
        plan_rows(np.array(lengths), np.array(factors), seq_len, 0)


def test_no_documents_make_no_rows():
    plan = plan_rows(np.array([5, 5]), np.zeros(2), 8, 0)
    assert plan.pieces.shape == (0, 3)
    assert plan.row_offsets.tolist() == [0]
    assert plan.copy_distance is None
