"""The planner against published numbers, simulation with the tests themselves, and by hand."""

import math

import numpy as np
import pytest

from cpt_jax.finetune import power, significance
from cpt_jax.finetune.power import Spread, detectable, needed, observe
from tests.tiny_results import write_results

REPEATS = 2_000


def simulated(sees, difference, spread, tasks, seeds, *, fixed=False):
    """The share of simulations in which the test sees the difference, and 4 standard deviations.

    fixed: the tasks' true differences are the same tasks' in all simulations, exactly as wide.
    """
    generator = np.random.default_rng(0)
    shape = (REPEATS, tasks, seeds)
    if fixed:
        true = np.linspace(-1, 1, tasks)
        true = (true / true.std(ddof=1) * spread.tasks)[None, :, None]
    else:
        true = spread.tasks * generator.normal(size=(REPEATS, tasks, 1))
    d = difference + true + spread.noise * generator.normal(size=shape)
    share = float(np.mean(sees(d)))
    return share, 4 * math.sqrt(share * (1 - share) / REPEATS)


@pytest.mark.parametrize(
    ("difference", "tasks", "seeds"), [(1.0, 1, 9), (2.5, 8, 5), (1.5, 11, 12), (0.0, 1, 5)]
)
def test_power_on_one_task(difference, tasks, seeds):
    """At the level that Holm leaves the smallest of the p values."""
    spread = Spread(noise=1.0, tasks=3.0)
    share, error = simulated(
        lambda d: significance.t_test(d[:, 0]) <= 0.05 / tasks, difference, Spread(1, 0), 1, seeds
    )
    assert power.of_one_task(difference, spread, tasks, seeds) == pytest.approx(share, abs=error)


@pytest.mark.parametrize(
    ("difference", "spread", "tasks", "seeds"),
    [
        (0.3, Spread(1.0, 0.0), 8, 9),
        (0.3, Spread(1.0, 1.0), 8, 9),
        (0.5, Spread(1.0, 2.0), 11, 5),
        (0.8, Spread(1.0, 0.5), 4, 4),
        (0.0, Spread(1.0, 0.0), 8, 5),
    ],
)
def test_power_on_these_tasks(difference, spread, tasks, seeds):
    """The formula is normal where the truth is a permutation's: 2 points are allowed for it."""
    share, error = simulated(
        lambda d: significance.sign_flip(d.reshape(REPEATS, -1), draws=999) <= 0.05,
        *(difference, spread, tasks, seeds),
        fixed=True,
    )
    found = power.of_these_tasks(difference, spread, tasks, seeds)
    assert found == pytest.approx(share, abs=error + 0.02)


@pytest.mark.parametrize(
    ("difference", "spread", "tasks", "seeds"),
    [
        (1.0, Spread(1.0, 1.0), 8, 9),
        (1.0, Spread(3.0, 1.0), 11, 5),
        (2.0, Spread(1.0, 1.5), 6, 3),
        (0.0, Spread(1.0, 1.0), 8, 9),
    ],
)
def test_power_on_tasks_in_general(difference, spread, tasks, seeds):
    """Of the sign-flip, which `compare` makes: 3 points are allowed for the t distribution."""
    share, error = simulated(
        lambda d: significance.sign_flip(d.mean(-1)) <= 0.05, difference, spread, tasks, seeds
    )
    found = power.of_general(difference, spread, tasks, seeds)
    assert found == pytest.approx(share, abs=error + 0.03)


def test_power_of_the_t_test_where_tasks_are_few():
    share, error = simulated(
        lambda d: significance.t_test(d.mean(-1)) <= 0.05, 2.0, Spread(1.0, 1.0), 4, 5
    )
    found = power.of_general(2.0, Spread(1.0, 1.0), 4, 5)
    assert found == pytest.approx(share, abs=error)


def test_a_number_that_is_in_print():
    """34 pairs see an effect of half a standard deviation with 80 % (G*Power: 0.8078)."""
    found = power.of_one_task(0.5, Spread(1.0, 0.0), 1, 34)
    assert found == pytest.approx(0.8078, abs=1e-4)
    assert needed(lambda n: power.of_one_task(0.5, Spread(1.0, 0.0), 1, n), 0.8) == 34


def test_what_is_needed_is_the_least_that_is_enough():
    spread = Spread(1.0, 0.3)

    def power_of(seeds):
        return power.of_general(0.5, spread, 8, seeds)

    n = needed(power_of, 0.8)
    assert n is not None
    assert power_of(n) >= 0.8 > power_of(n - 1)
    assert needed(lambda n: 1.0, 0.8) == 2


def test_seeds_do_not_mend_the_spread_of_tasks():
    spread = Spread(noise=0.1, tasks=2.0)
    assert needed(lambda seeds: power.of_general(1.0, spread, 8, seeds), 0.8) is None
    tasks = needed(lambda tasks: power.of_general(1.0, spread, tasks, 9), 0.8)
    assert tasks is not None
    assert 30 < tasks < 40  # (1.96 + 0.84)^2 (2 / 1)^2 = 31, and some for t
    assert needed(lambda seeds: power.of_these_tasks(1.0, spread, 8, seeds), 0.8) is not None


def test_detectable_difference_has_the_power():
    spread = Spread(0.01, 0.01)
    found = detectable(lambda d: power.of_these_tasks(d, spread, 8, 9), 0.8)
    assert found is not None
    assert power.of_these_tasks(found, spread, 8, 9) == pytest.approx(0.8, abs=1e-3)
    assert detectable(lambda d: power.of_these_tasks(d, spread, 2, 2), 0.8) is None


def test_observed_spread_by_hand():
    """Variances over seeds 2 and 2; means 1 and 5, of variance 8, 1 of which is the seeds'."""
    found = observe([np.array([0.0, 2]), np.array([4.0, 6])])
    assert found.noise == pytest.approx(math.sqrt(2))
    assert found.tasks == pytest.approx(math.sqrt(7))
    alike = observe([np.array([0.0, 2]), np.array([0.0, 2]), np.array([9.0])])
    assert alike.tasks == 0


def test_observed_spread_is_the_true_one_on_average():
    generator = np.random.default_rng(1)
    squares = []
    for _ in range(2000):
        groups = [3 * generator.normal() + 2 * generator.normal(size=n) for n in (3, 5, 4, 9, 2, 3)]
        found = observe(groups)
        squares.append((found.noise**2, found.tasks**2))
    noise, tasks = np.mean(squares, 0)
    assert noise == pytest.approx(4, rel=0.05)
    assert tasks == pytest.approx(9, rel=0.08)


@pytest.mark.parametrize("groups", [[], [[1.0, 2.0]], [[1.0], [2.0], [3.0, 4.0]]])
def test_too_little_to_plan_from(groups):
    with pytest.raises(ValueError, match="two are needed"):
        observe([np.array(group) for group in groups])


def test_planning_from_results(tmp_path):
    """Differences of 1 and 3 points, and of 2 and 4 on the other task."""
    a = write_results(tmp_path / "a", {"ncbi": [0.80, 0.81], "gad": [0.70, 0.72]})
    b = write_results(tmp_path / "b", {"ncbi": [0.81, 0.84], "gad": [0.72, 0.76], "hoc": [0.5]})
    text = power.run([a, b], 1.0)
    assert "b − a, 2 tasks with 2 seeds or more" in text
    assert "varies by 1.41 points over the seeds of a task" in text
    assert "differences by 0.00 (standard deviations)" in text
    assert "- results of b alone, left out (hoc)" in text
    spread = Spread(math.sqrt(2), 0.0)
    seeds = needed(lambda n: power.of_these_tasks(1.0, spread, 2, n), 0.8)
    assert f"| these tasks | {seeds} | 0 % | none |" in text
    for difference, wanted in ((0, 0.8), (200, 0.8), (1, 0.05), (1, 1.0)):
        with pytest.raises(ValueError, match=r"difference: |power: "):
            power.run([a, b], difference, wanted)
    with pytest.raises(ValueError, match="3 directories: two are compared"):
        power.run([a, b, tmp_path / "c"], 1.0)


def test_power_rises_to_one_without_a_gap():
    """A scan to differences of hundreds of standard errors, where scipy has gaps."""
    for seeds in (2, 5, 9, 41, 200):
        found = [power.of_one_task(d, Spread(1.0, 0.0), 8, seeds) for d in np.linspace(0, 60, 601)]
        assert found[0] == pytest.approx(0.05 / 8)
        assert found[-1] > 0.4
        assert min(np.diff(found)) > -1e-9
