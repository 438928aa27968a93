"""How many seeds, or tasks, it takes to see a difference, from the spread of results at hand.

A power is the chance that a test rejects at the 5 % level. The questions are those of ``compare``,
each with the power of its own test:

  one task          t test over its seeds, at the level that Holm's correction leaves the smallest
                    of the p values: 5 % / tasks
  these tasks       sign-flip of all differences, by the normal distribution; its null distribution
                    is as wide as the differences are, so tasks that differ make it cautious
  tasks in general  t test of the task means (the sign-flip has nearly its power), which vary by
                    spread^2 + noise^2 / seeds: more seeds help down to the tasks' own spread
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from cpt_jax.finetune.pairing import pair, read_models
from cpt_jax.finetune.significance import ENUMERATED, LEVEL, least_p
from cpt_jax.pages.blocks import Items, Paragraph, Table, markdown

MOST = 1000  # seeds or tasks that anyone would think of


@dataclasses.dataclass(frozen=True)
class Spread:
    """By what the differences of two models vary; standard deviations.

    Attributes:
      noise: of a difference over the seeds of a task; root of the mean square over tasks.
      tasks: of the tasks' true differences: what the means vary by beyond the noise in them; 0
        where the noise explains it all.
    """

    noise: float
    tasks: float


def observe(groups: Sequence[Float[np.ndarray, " _"]]) -> Spread:
    """Returns the spread of differences, a group for each task.

    Raises:
      ValueError: fewer than two tasks have two seeds or more, on which they could be compared.
    """
    groups = [group for group in groups if len(group) > 1]
    if len(groups) < 2:
        raise ValueError(
            f"{len(groups)} tasks have two seeds or more in common: two are needed to tell seeds' "
            "noise from differences between tasks"
        )
    variances = np.array([group.var(ddof=1) for group in groups])
    in_means = np.mean(variances / [len(group) for group in groups])
    between = np.var([group.mean() for group in groups], ddof=1) - in_means
    return Spread(math.sqrt(variances.mean()), math.sqrt(max(0.0, between)))


def of_one_task(difference: float, spread: Spread, tasks: int, seeds: int) -> float:
    """Returns the power on one task among ``tasks``."""
    return _of_t(difference, spread.noise / math.sqrt(seeds), seeds - 1, LEVEL / tasks)


def of_these_tasks(difference: float, spread: Spread, tasks: int, seeds: int) -> float:
    """Returns the power on the mean of these tasks.

    Of n differences with mean m and V = sum (d - m)^2, sums with random signs vary by
    sqrt(V + n m^2): the observed one, n m, is z of these away if m^2 = z^2 V / (n (n - z^2)).
    """
    n = tasks * seeds
    z = -special.ndtri(_attained(n) / 2) if _attained(n) else math.inf
    if z**2 >= n:
        return 0.0
    squares = (n - 1) * spread.noise**2 + seeds * (tasks - 1) * spread.tasks**2
    edge, error = z * math.sqrt(squares / (n * (n - z**2))), spread.noise / math.sqrt(n)
    if error == 0:
        return float(abs(difference) > edge)
    tails = [special.ndtr((sign * difference - edge) / error) for sign in (1, -1)]
    return float(sum(tails))


def of_general(difference: float, spread: Spread, tasks: int, seeds: int) -> float:
    """Returns the power on the mean of tasks in general, of which these are a sample."""
    error = math.hypot(spread.tasks, spread.noise / math.sqrt(seeds)) / math.sqrt(tasks)
    # where the sign-flip can reject nothing, `compare` makes the t test
    return _of_t(difference, error, tasks - 1, _attained(tasks) or LEVEL)


QUESTIONS: Mapping[str, Callable[[float, Spread, int, int], float]] = {
    "one task": of_one_task,
    "these tasks": of_these_tasks,
    "tasks in general": of_general,
}


def _of_t(difference: float, error: float, freedom: int, level: float) -> float:
    """Returns the power of a two-sided t test: the noncentral t distribution's two tails."""
    if freedom < 1:
        return 0.0
    if error == 0:
        return float(difference != 0)
    edge, shift = special.stdtrit(freedom, 1 - level / 2), abs(difference) / error
    below, above = special.nctdtr(freedom, shift, (-edge, edge))
    # scipy has NaN for some chances that are 0 to 15 digits
    return float(np.nan_to_num(below) + 1 - np.nan_to_num(above))


def _attained(n: int) -> float:
    """Returns the largest p value within the level that the sign-flip of n values can have."""
    step = least_p(n)
    return LEVEL if n > ENUMERATED else math.floor(LEVEL / step) * step


def needed(power_of: Callable[[int], float], power: float, least: int = 2) -> int | None:
    """Returns the smallest number from ``least`` to ``MOST`` that has the power; None: none has."""
    if power_of(MOST) < power:
        return None
    low, high = least - 1, MOST  # high has it
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle, high)
    return high


def detectable(power_of: Callable[[float], float], power: float) -> float | None:
    """Returns the smallest difference, of at most 1, that has the power; None: none has."""
    if power_of(1.0) < power:
        return None
    found = optimize.root_scalar(lambda d: power_of(d) - power, bracket=(0.0, 1.0), xtol=1e-6)
    return float(found.root)


def run(directories: Sequence[Path], difference: float, power: float = 0.8) -> str:
    """Returns, as Markdown, what it takes to see a difference between models like these two.

    Args:
      directories: of two models' results.
      difference: between them, in points of the metric (percent).
      power: wanted.

    Raises:
      ValueError: what is in a directory is no result, or too little of it; or a number is none
        that can be meant.
      OSError: a directory cannot be read.
    """
    if not 0 < difference <= 100:
        raise ValueError(f"difference: {difference} is not in (0, 100] points")
    if not LEVEL < power < 1:
        raise ValueError(f"power: {power} is not between {LEVEL} and 1")
    if len(directories) != 2:
        raise ValueError(f"{len(directories)} directories: two are compared")
    (first, a), (second, b) = read_models(directories).items()
    pairs = pair((first, second), a, b)
    groups = [group for group in pairs.tasks.values() if len(group) > 1]
    spread = observe(groups)
    tasks, seeds = len(groups), min(map(len, groups))
    rows = []
    for question, of in QUESTIONS.items():
        now = of(difference / 100, spread, tasks, seeds)
        more = needed(lambda n, of=of: of(difference / 100, spread, tasks, n), power)
        least = detectable(lambda d, of=of: of(d, spread, tasks, seeds), power)
        rows.append(
            [
                question.replace("one task", f"one task of {tasks}"),
                f"more than {MOST}" if more is None else str(more),
                f"{100 * now:.0f} %",
                "none" if least is None else f"{100 * least:.1f}",
            ]
        )
    head = [
        f"to see {difference:g} points with power {power:g}",
        "seeds needed",
        f"power of {seeds} seeds",
        f"seen by {seeds} seeds",
    ]
    others = needed(lambda n: of_general(difference / 100, spread, n, seeds), power)
    said = (
        f"{second} − {first}, {tasks} tasks with {seeds} seeds or more: a difference varies by "
        f"{100 * spread.noise:.2f} points over the seeds of a task, and the tasks' true "
        f"differences by {100 * spread.tasks:.2f} (standard deviations)."
    )
    general = (
        f"Of tasks in general, at {seeds} seeds each: "
        f"{f'more than {MOST}' if others is None else others} tasks are needed."
    )
    caution = (
        f"Both spreads are estimates from {tasks} tasks; with few, the true ones may be half or "
        "twice as large."
    )
    notes = [Items(pairs.notes)] if pairs.notes else []
    return markdown([Paragraph(said), Table(head, rows), Items([general, caution]), *notes])
