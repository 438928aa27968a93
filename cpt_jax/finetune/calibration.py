"""How often each test of ``compare`` sees a difference where there is none, simulated.

``python -m cpt_jax.finetune.calibration [--tasks T --seeds S --ratio R ...]`` prints a table: the
tests down, the truths across. A test holds its level where its own null hypothesis is the truth;
what it does under others says which question it answers.
"""

import argparse
import sys
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Bool, Float

from cpt_jax.finetune import significance
from cpt_jax.finetune.significance import LEVEL
from cpt_jax.pages.blocks import Table, markdown
from cpt_jax.seeds import hash_seed

LAYOUTS = ((8, 9), (11, 5))  # tasks x seeds: the paper's French and English tables
AT_ONCE = 100  # simulations
DRAWS = 1_999  # random signs and resamplings, drawn anew for every AT_ONCE simulations

Differences = Float[np.ndarray, "r tasks seeds"]


def _zero_outside(
    ends: tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]],
) -> Bool[np.ndarray, " r"]:
    low, high = ends
    return (low > 0) | (high < 0)


def _flat(d: Differences) -> Float[np.ndarray, "r n"]:
    return d.reshape(len(d), -1)


# Of differences and a seed: in which simulations the test sees a difference.
TESTS: Mapping[str, Callable[[Differences, int], Bool[np.ndarray, " r"]]] = {
    "these tasks: sign-flip over seeds within tasks": lambda d, seed: (
        significance.sign_flip(_flat(d), draws=DRAWS, seed=seed) <= LEVEL
    ),
    "these tasks: 95 % interval without 0": lambda d, seed: _zero_outside(
        significance.mean_interval([d[:, t] for t in range(d.shape[1])])
    ),
    "tasks in general: sign-flip of task means": lambda d, seed: (
        significance.sign_flip(d.mean(-1)) <= LEVEL
    ),
    "tasks in general: t test of task means": lambda d, seed: (
        significance.t_test(d.mean(-1)) <= LEVEL
    ),
    "paired bootstrap over tasks x seeds": lambda d, seed: (
        significance.bootstrap(_flat(d), draws=DRAWS, seed=seed) <= LEVEL
    ),
    "any one task: t tests, Holm over tasks": lambda d, seed: (
        significance.holm(significance.t_test(d)).min(-1) <= LEVEL
    ),
}


def _no_effect(generator: np.random.Generator, shape: tuple[int, int, int], ratio: float):
    return generator.normal(size=shape)


def _no_effect_unlike(generator: np.random.Generator, shape: tuple[int, int, int], ratio: float):
    scales = np.geomspace(0.5, 2, shape[1])[:, None]
    return generator.laplace(size=shape) / np.sqrt(2) * scales


def _tasks_differ(generator: np.random.Generator, shape: tuple[int, int, int], ratio: float):
    return generator.normal(size=shape) + ratio * generator.normal(size=(*shape[:2], 1))


def _tasks_cancel(generator: np.random.Generator, shape: tuple[int, int, int], ratio: float):
    true = generator.normal(size=(*shape[:2], 1))
    return generator.normal(size=shape) + ratio * (true - true.mean(1, keepdims=True))


# The noise of a seed has standard deviation 1 (in the second, from 0.5 to 2 over the tasks, with
# heavy tails); a task's true difference has `ratio`.
TRUTHS: Mapping[str, Callable[..., Differences]] = {
    "no effect": _no_effect,
    "no effect, noise unlike": _no_effect_unlike,
    "tasks differ, mean 0": _tasks_differ,
    "tasks differ, cancel": _tasks_cancel,
}


def false_alarms(
    tasks: int, seeds: int, *, ratio: float = 1.0, repeats: int = 10_000, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Returns by test and truth the share of simulations in which the test sees a difference.

    Args:
      tasks: how many.
      seeds: of each.
      ratio: standard deviation of the tasks' true differences, where they differ, over that of the
        noise of one seed.
      repeats: simulations, a multiple of ``AT_ONCE``; a share's own standard deviation is
        ``sqrt(share (1 - share) / repeats)``: 0.2 points of 5 % in 10,000.
      seed: of the simulations.
    """
    if repeats % AT_ONCE or repeats <= 0:
        raise ValueError(f"repeats: {repeats} is not a multiple of {AT_ONCE}")
    seen = {test: dict.fromkeys(TRUTHS, 0) for test in TESTS}
    for truth, draw in TRUTHS.items():
        for portion in range(repeats // AT_ONCE):
            number = hash_seed(seed, truth, portion)
            d = draw(np.random.default_rng(number), (AT_ONCE, tasks, seeds), ratio)
            for test, sees in TESTS.items():
                seen[test][truth] += int(sees(d, number).sum())
    return {test: {truth: n / repeats for truth, n in by.items()} for test, by in seen.items()}


def table(tasks: int, seeds: int, **options) -> Table:
    """Returns the table of ``false_alarms``, in percent."""
    shares = false_alarms(tasks, seeds, **options)
    rows = [[test, *(f"{100 * share:.1f}" for share in by.values())] for test, by in shares.items()]
    return Table([f"{tasks} tasks x {seeds} seeds", *TRUTHS], rows)


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.finetune.calibration",
        description="How often each test of compare sees a difference where there is none.",
    )
    parser.add_argument("--tasks", type=int, help="default: 8 and 9 seeds, then 11 and 5")
    parser.add_argument("--seeds", type=int, help="of each task")
    parser.add_argument(
        "--ratio", type=float, default=1.0, help="of the tasks' spread to a seed's (default 1)"
    )
    parser.add_argument("--repeats", type=int, default=10_000, help="simulations (10000)")
    options = parser.parse_args(arguments)
    if (options.tasks is None) != (options.seeds is None):
        parser.error("--tasks and --seeds go together")
    layouts = LAYOUTS if options.tasks is None else [(options.tasks, options.seeds)]
    try:
        tables = [table(*each, ratio=options.ratio, repeats=options.repeats) for each in layouts]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown(tables), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
