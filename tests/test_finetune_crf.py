"""The conditional random field, against all chains written out one by one in float64."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpt_jax.finetune import crf

# fp32 sums of a few dozen numbers of size 10 against float64: some 1e-6 is rounding.
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
# Words that are there: all, the first ones, some between, one, none.
MASKS = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
TAGS = 3


def draw(seed: int) -> tuple[np.ndarray, crf.Chain]:
    """Emissions of five words for each mask, and a chain with a transition that is impossible."""
    rng = np.random.default_rng(seed)
    emissions = 3 * rng.standard_normal((len(MASKS), 5, TAGS))
    parts = [3 * rng.standard_normal(shape) for shape in ((TAGS,), (TAGS, TAGS), (TAGS,))]
    parts[1][0, 2] = parts[0][1] = crf.IMPOSSIBLE
    return emissions.astype(np.float32), crf.Chain(*(part.astype(np.float32) for part in parts))


def score_of(tags, emissions, chain: crf.Chain) -> float:
    """Of the words that are there, straight from the definition."""
    start, transitions, end = (np.asarray(part, np.float64) for part in chain)
    if not tags:
        return 0.0
    moves = sum(transitions[a, b] for a, b in itertools.pairwise(tags))
    own = sum(float(emissions[w, t]) for w, t in enumerate(tags))
    return float(start[tags[0]] + own + moves + end[tags[-1]])


def all_chains(emissions, mask, chain: crf.Chain) -> list[tuple[tuple[int, ...], float]]:
    """Every chain over the real words, with its score."""
    real = emissions[np.array(mask, bool)]
    every = itertools.product(range(TAGS), repeat=len(real))
    return [(tags, score_of(tags, real, chain)) for tags in every]


def marginals_of(emissions: np.ndarray, found: crf.Messages) -> np.ndarray:
    total = np.asarray(found.total)[..., None, None]
    return np.exp(np.asarray(found.before) + emissions + np.asarray(found.after) - total)


@pytest.mark.parametrize("seed", range(3))
def test_partition_and_marginals_are_sums_over_all_chains(seed):
    emissions, chain = draw(seed)
    mask = jnp.array(MASKS, bool)
    found = crf.messages(jnp.asarray(emissions), mask, chain)
    marginals = marginals_of(emissions, found)
    totals = crf.log_partition(jnp.asarray(emissions), mask, chain)
    np.testing.assert_array_equal(found.total, totals)
    for row, real in enumerate(MASKS):
        chains = all_chains(emissions[row], real, chain)
        total = np.logaddexp.reduce([score for _, score in chains])
        close(totals[row], total)
        expected = np.zeros((sum(real), TAGS))
        for tags, score in chains:
            expected[range(len(tags)), tags] += np.exp(score - total)
        there = np.array(real, bool)
        close(marginals[row][there], expected)


def test_the_gradient_of_the_partition_is_the_marginals():
    """And 0 at words that are not there: no gradient leaves the mask, none is NaN."""
    emissions, chain = draw(3)
    mask = jnp.array(MASKS, bool)

    def total(emissions):
        return crf.log_partition(emissions, mask, chain).sum()

    found = crf.messages(jnp.asarray(emissions), mask, chain)
    expected = marginals_of(emissions, found)
    gradient = jax.grad(total)(jnp.asarray(emissions))
    expected = np.where(np.array(MASKS, bool)[..., None], expected, 0)
    close(gradient, expected)


def test_the_score_of_a_chain():
    emissions, chain = draw(4)
    tags = np.random.default_rng(0).integers(0, TAGS, (len(MASKS), 5))
    mask = np.array(MASKS, bool)
    scores = crf.score(jnp.asarray(emissions), jnp.asarray(tags), jnp.asarray(mask), chain)
    for row, real in enumerate(mask):
        expected = score_of(tuple(tags[row, real]), emissions[row, real], chain)
        close(scores[row], expected)


def test_a_long_chain_keeps_its_digits():
    """A thousand words of independent tags: the partition is a sum of logs, known in float64."""
    rng = np.random.default_rng(0)
    emissions = rng.standard_normal((1, 1000, TAGS)).astype(np.float32)
    free = crf.Chain(np.zeros(TAGS), np.zeros((TAGS, TAGS)), np.zeros(TAGS))
    mask = jnp.ones((1, 1000), bool)
    total = crf.log_partition(jnp.asarray(emissions), mask, free)[0]
    expected = np.logaddexp.reduce(emissions[0].astype(np.float64), axis=-1).sum()
    # A rounding of 6e-8 of the sum so far at each of the thousand words, of random sign.
    np.testing.assert_allclose(total, expected, rtol=2e-6)
