"""Tests and intervals against enumeration, scipy, and numbers that can be checked by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from cpt_jax.finetune import significance
from cpt_jax.finetune.significance import (
    FEWEST,
    LEVEL,
    bootstrap,
    holm,
    least_p,
    mean_interval,
    shares_of_mean,
    sign_flip,
    t_interval,
    t_test,
)


def normal(*shape, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(shift, 1, shape)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1.0, 2, 3], 2 / 8),  # only +++ and --- come to 6
        ([3.0, -1], 1.0),  # 2, and nothing is nearer to 0
        ([5.0, 1, -1], 6 / 8),  # 5; -5+1-1 too; 7 and 3 for the others: all but 3 and -3
        ([0.0, 0, 0], 1.0),
        ([-2.0], 1.0),
    ],
)
def test_sign_flips_by_hand(values, p):
    assert sign_flip(np.array(values)) == pytest.approx(p)


@pytest.mark.parametrize("n", [1, 2, 5, 11])
def test_sign_flips_by_enumeration_where_many_sums_are_equal(n):
    """Sums of whole numbers are exact; of tenths they are not, and rounding must not tell."""
    generator = np.random.default_rng(n)
    for _ in range(20):
        whole = generator.integers(-4, 6, n).tolist()
        sums = [
            abs(sum(s * v for s, v in zip(signs, whole, strict=True)))
            for signs in itertools.product((1, -1), repeat=n)
        ]
        expected = sum(each >= abs(sum(whole)) for each in sums) / len(sums)
        assert sign_flip(np.array(whole) / 10) == pytest.approx(expected, abs=1e-12)


def test_sign_flips_against_scipy():
    values = normal(12)
    theirs = stats.permutation_test(
        (values, np.zeros(12)),
        lambda a, b, axis: (a - b).mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**12,
    )
    assert sign_flip(values) == pytest.approx(theirs.pvalue)


def exact_p(whole):
    """The p value of a sum of whole numbers, from the distribution built up term by term."""
    chances = {0: 1.0}
    for value in whole:
        added: dict[int, float] = {}
        for total, chance in chances.items():
            for sign in (1, -1):
                added[total + sign * value] = added.get(total + sign * value, 0) + chance / 2
        chances = added
    return sum(chance for total, chance in chances.items() if abs(total) >= abs(sum(whole)))


@pytest.mark.parametrize("shift", [0.0, 1.0, 1.8])
def test_random_sign_flips_near_the_exact_distribution(shift):
    whole = np.round(10 * normal(72, seed=3, shift=0)).astype(int) + round(shift)
    p, draws = exact_p(whole.tolist()), 50_000
    found = sign_flip(whole / 1000, draws=draws)
    assert abs(found - p) < 4 * math.sqrt(p * (1 - p) / draws) + 2 / draws


def test_random_sign_flips_are_never_impossible_and_always_the_same():
    assert sign_flip(np.ones(40), draws=999) == 1 / 1000
    values = normal(20, shift=0.1)
    assert sign_flip(values, draws=999) == sign_flip(values, draws=999)
    assert sign_flip(values, draws=999) != sign_flip(values, draws=999, seed=1)


@pytest.mark.parametrize("n", [8, 20])
def test_leading_axes_are_repetitions(n):
    values = normal(3, 2, n)
    for test in (sign_flip, bootstrap, t_test):
        together = test(values)
        assert together.shape == (3, 2)
        alone = [[test(row) for row in rows] for rows in values]
        tolerance = 0.01 if n > significance.ENUMERATED or test is bootstrap else 1e-12
        np.testing.assert_allclose(together, alone, atol=tolerance)


def test_draws_in_portions_are_all_made(monkeypatch):
    sizes = significance._portions(1000, np.zeros((50_000, 20)))
    assert sum(sizes) == 1000
    assert len(sizes) > 1
    monkeypatch.setattr(significance, "_portions", lambda draws, values: [1] * draws)
    values = normal(18, shift=0.5)
    assert sign_flip(values, draws=2000) == pytest.approx(exact_p((values * 100).round()), abs=0.02)


def density(x, freedom):
    """Student's, from its definition."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    return scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_t_against_its_density_and_scipy(n):
    values = normal(n, shift=1.0)
    t = values.mean() / (values.std(ddof=1) / math.sqrt(n))
    inside = np.linspace(-abs(t), abs(t), 200_001)
    expected = 1 - np.trapezoid(density(inside, n - 1), inside)
    assert t_test(values) == pytest.approx(expected, abs=1e-8)
    theirs = stats.ttest_1samp(values, 0)
    assert t_test(values) == pytest.approx(theirs[1])
    np.testing.assert_allclose(t_interval(values), theirs.confidence_interval())


def test_t_interval_from_the_printed_table():
    values = np.array([1.0, 2, 3, 4, 5])
    half = 2.776 * math.sqrt(2.5 / 5)  # t for 95 % and 4 degrees of freedom
    np.testing.assert_allclose(t_interval(values), (3 - half, 3 + half), atol=5e-4)
    half = 4.604 * math.sqrt(2.5 / 5)  # for 99 %
    np.testing.assert_allclose(t_interval(values, 0.99), (3 - half, 3 + half), atol=5e-4)


def test_values_that_do_not_vary():
    assert t_test(np.zeros(4)) == 1
    assert t_test(np.ones(4)) == 0
    np.testing.assert_array_equal(t_interval(np.ones(4)), (1, 1))
    np.testing.assert_array_equal(mean_interval([np.ones(4), np.zeros(3)]), (0.5, 0.5))
    assert bootstrap(np.zeros(4)) == 1


def test_interval_of_a_mean_of_groups_is_welchs():
    """Of two groups, twice the mean of one and the other's negative is the difference."""
    a, b = normal(9), 3 * normal(5, seed=1)
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    np.testing.assert_allclose(2 * np.array(mean_interval([a, -b])), theirs)


def test_interval_of_one_group_is_students():
    np.testing.assert_allclose(mean_interval([normal(6)]), t_interval(normal(6)))


def test_bootstrap_against_all_resamplings():
    values = np.array([0.4, -0.3, 0.9, 0.1, -0.2])
    sums = [sum(sample) for sample in itertools.product(values, repeat=5)]
    below = sum(each <= 1e-12 for each in sums) / len(sums)
    draws = 50_000
    found = bootstrap(values, draws=draws)
    assert abs(found - 2 * below) < 4 * 2 * math.sqrt(below * (1 - below) / draws)
    assert bootstrap(-values, draws=draws) == pytest.approx(found, abs=0.01)
    assert bootstrap(np.ones(10), draws=999) == 2 / 1000


def test_shares_sum_to_the_mean_of_the_groups_means():
    groups = [np.array([1.0, 2, 3]), np.array([10.0]), np.array([4.0, 5])]
    shares = shares_of_mean(groups)
    assert shares.shape == (6,)
    assert shares.sum() == pytest.approx((2 + 10 + 4.5) / 3)


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, 0.6])), [1, 1])
    np.testing.assert_allclose(holm(np.array([0.02])), [0.02])


@pytest.mark.parametrize("n", [2, 5, 8])
def test_holm_is_the_closed_test_of_bonferronis(n):
    """A hypothesis falls if every family with it does: the largest of |F| min p over families F."""
    p_values = np.random.default_rng(n).uniform(0, 0.3, (4, n)).round(2)
    for row, corrected in zip(p_values, holm(p_values), strict=True):
        for i in range(n):
            families = [
                family
                for size in range(1, n + 1)
                for family in itertools.combinations(range(n), size)
                if i in family
            ]
            closed = max(len(f) * min(row[j] for j in f) for f in families)
            assert corrected[i] == pytest.approx(min(1, closed))


@pytest.mark.parametrize("n", [1, 6, 10])
def test_least_p(n):
    assert sign_flip(np.arange(1.0, n + 1)) == least_p(n)
    assert least_p(FEWEST) <= LEVEL < least_p(FEWEST - 1)


def test_too_few_values_are_refused():
    for test in (t_test, t_interval):
        with pytest.raises(ValueError, match="1 values: 2 or more are needed"):
            test(np.ones(1))
    for test in (sign_flip, bootstrap):
        with pytest.raises(ValueError, match="0 values: 1 or more are needed"):
            test(np.ones(0))
    with pytest.raises(ValueError, match="1 values: 2 or more"):
        mean_interval([np.ones(3), np.ones(1)])
