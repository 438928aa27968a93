"""The tests of `compare` hold their level under their own null, and err as told under others."""

import math

import pytest
from scipy import stats

from cpt_jax.finetune import calibration

REPEATS = 1_000
RATIO = 1.0


@pytest.fixture(scope="module", params=calibration.LAYOUTS, ids=str)
def found(request):
    tasks, seeds = request.param
    return tasks, seeds, calibration.false_alarms(tasks, seeds, ratio=RATIO, repeats=REPEATS)


OWN = {
    "these tasks: sign-flip over seeds within tasks": ("no effect", "no effect, noise unlike"),
    "these tasks: 95 % interval without 0": ("no effect", "tasks differ, cancel"),
    "tasks in general: sign-flip of task means": ("no effect", "tasks differ, mean 0"),
    "tasks in general: t test of task means": ("no effect", "tasks differ, mean 0"),
    "any one task: t tests, Holm over tasks": ("no effect",),
}


def test_each_holds_its_level_under_its_own_null(found):
    """Within the binomial's 99.9 %: about 5 +- 2.3 points. Holm's is not below, but at most."""
    low, high = (stats.binom.ppf(q, REPEATS, 0.05) / REPEATS for q in (0.0005, 0.9995))
    for test, truths in OWN.items():
        for truth in truths:
            share = found[2][test][truth]
            assert low <= share <= high, (test, truth, share)


def test_the_cell_wise_bootstrap_is_too_sure_where_tasks_differ(found):
    """Its variance is that of n cells: too small by (S r^2 + 1) / (r^2 + 1)."""
    _, seeds, shares = found
    too_small = (seeds * RATIO**2 + 1) / (RATIO**2 + 1)
    expected = 2 * stats.norm.cdf(-1.96 / math.sqrt(too_small))
    share = shares["paired bootstrap over tasks x seeds"]["tasks differ, mean 0"]
    error = 4 * math.sqrt(expected * (1 - expected) / REPEATS)
    assert share == pytest.approx(expected, abs=error + 0.02)  # few tasks: some more
    assert share > 0.2


def test_what_tests_do_under_the_other_null(found):
    """Tasks that truly differ are seen as these tasks', and not as those of tasks in general."""
    shares = found[2]
    assert shares["these tasks: 95 % interval without 0"]["tasks differ, mean 0"] > 0.3
    for test in (
        "tasks in general: sign-flip of task means",
        "tasks in general: t test of task means",
    ):
        assert shares[test]["tasks differ, cancel"] < 0.01
    cautious = shares["these tasks: sign-flip over seeds within tasks"]["tasks differ, cancel"]
    assert cautious < 0.05


def test_the_table_is_printed(capsys):
    assert calibration.main(["--tasks", "3", "--seeds", "4", "--repeats", "100"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("| 3 tasks x 4 seeds | no effect | ")
    assert all(f"| {test} | " in out for test in calibration.TESTS)
    assert calibration.main(["--tasks", "3", "--seeds", "4", "--repeats", "150"]) == 2
    assert "150 is not a multiple of 100" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        calibration.main(["--tasks", "3"])
