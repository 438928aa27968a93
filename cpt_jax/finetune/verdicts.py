"""What two models' results say about which is better, question by question.

Scores and differences are fractions here; ``compare`` shows percent and points.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cpt_jax.finetune import significance
from cpt_jax.finetune.pairing import pair
from cpt_jax.finetune.results import Results
from cpt_jax.finetune.significance import FEWEST

THESE = "on these tasks, would other seeds say the same?"
GENERAL = "would other tasks say the same?"
PAPER = "neither: would other task-and-seed pairs, each drawn alone?"


class Estimate(NamedTuple):
    """A mean, and the ends of its 95 % interval where there is one."""

    mean: float
    low: float | None = None
    high: float | None = None


class TaskVerdict(NamedTuple):
    """What the seeds of one task say; p values of the t test, alone and by Holm over the tasks."""

    task: str
    seeds: int
    difference: Estimate
    p: float | None
    corrected: float | None


class Verdict(NamedTuple):
    """What a test says of the mean over tasks.

    Attributes:
      question: that the test answers.
      test: its name.
      difference: the mean over tasks of the means over seeds; its interval is of the question too.
      p: None where the test cannot be made.
      corrected: by Holm for the number of models that are compared with the first.
      remark: why there is no p value or interval.
    """

    question: str
    test: str
    difference: Estimate
    p: float | None
    corrected: float | None
    remark: str = ""


@dataclasses.dataclass(frozen=True)
class Versus:
    """One model against the first; differences are its scores minus the first's."""

    label: str
    first: str
    tasks: Sequence[TaskVerdict]
    verdicts: Sequence[Verdict]
    wins: int
    losses: int
    notes: Sequence[str]


def judge(models: Mapping[str, Results], order: Sequence[str]) -> list[Versus]:
    """Returns what is to be said of each model but the first, against the first.

    Args:
      models: results by name.
      order: of the tasks.

    Raises:
      ValueError: two cannot be compared (``pairing.pair``).
    """
    (first, reference), *others = models.items()
    found = [_against((first, label), reference, results, order) for label, results in others]
    corrected = [_holm([each.verdicts[i].p for each in found]) for i in range(len(_QUESTIONS))]
    return [
        dataclasses.replace(
            each,
            verdicts=[
                verdict._replace(corrected=by_model[i])
                for verdict, by_model in zip(each.verdicts, corrected, strict=True)
            ],
        )
        for i, each in enumerate(found)
    ]


def _against(
    labels: tuple[str, str], first: Results, second: Results, order: Sequence[str]
) -> Versus:
    pairs = pair(labels, first, second)
    groups = {task: pairs.tasks[task] for task in order if task in pairs.tasks}
    p_values = [
        float(significance.t_test(group)) if len(group) > 1 else None for group in groups.values()
    ]
    tasks = [
        TaskVerdict(task, len(group), estimate(group), p, corrected)
        for (task, group), p, corrected in zip(
            groups.items(), p_values, _holm(p_values), strict=True
        )
    ]
    means = [float(group.mean()) for group in groups.values()]
    return Versus(
        label=labels[1],
        first=labels[0],
        tasks=tasks,
        verdicts=[ask(list(groups.values())) for ask in _QUESTIONS],
        wins=sum(mean > significance.ROUNDING for mean in means),
        losses=sum(mean < -significance.ROUNDING for mean in means),
        notes=pairs.notes,
    )


def estimate(values: Float[np.ndarray, " _"]) -> Estimate:
    """Returns the mean of some seeds' values, with Student's interval if there are two or more."""
    if len(values) < 2:
        return Estimate(float(values.mean()))
    low, high = significance.t_interval(values)
    return Estimate(float(values.mean()), float(low), float(high))


def mean_over(groups: Sequence[Float[np.ndarray, " _"]]) -> Estimate:
    """Returns the mean of tasks' means, with its interval over seeds if each task has two."""
    mean = float(np.mean([group.mean() for group in groups]))
    if min(map(len, groups)) < 2:
        return Estimate(mean)
    low, high = significance.mean_interval(groups)
    return Estimate(mean, float(low), float(high))


def _these(groups: Sequence[Float[np.ndarray, " _"]]) -> Verdict:
    test = "sign-flip permutation over seeds within tasks"
    mean = mean_over(groups)
    if max(map(len, groups)) < 2:
        remark = "one seed of each task: nothing says how much seeds vary"
        return Verdict(THESE, test, mean, None, None, remark)
    cells = significance.shares_of_mean(groups)
    exact = cells.size <= significance.ENUMERATED
    test += ", exact" if exact else f", {significance.DRAWS:,} draws"
    remarks = []
    if mean.low is None:
        remarks.append("no interval: a task has one seed alone")
    if cells.size < FEWEST:
        remarks.append(f"cannot come below 5 %: that takes {FEWEST} differences")
    p = float(significance.sign_flip(cells))
    return Verdict(THESE, test, mean, p, None, "; ".join(remarks))


def _general(groups: Sequence[Float[np.ndarray, " _"]]) -> Verdict:
    means = np.array([group.mean() for group in groups])
    difference = estimate(means)
    if len(means) < 2:
        remark = "one task says nothing of how much tasks differ"
        return Verdict(GENERAL, "t test of task means", difference, None, None, remark)
    if len(means) < FEWEST:
        p = significance.t_test(means)
        remark = f"a sign-flip needs {FEWEST} tasks to come below 5 %"
        return Verdict(GENERAL, "t test of task means", difference, float(p), None, remark)
    p = significance.sign_flip(means)
    exact = "exact" if len(means) <= significance.ENUMERATED else f"{significance.DRAWS:,} draws"
    return Verdict(GENERAL, f"sign-flip of task means, {exact}", difference, float(p), None)


def _paper(groups: Sequence[Float[np.ndarray, " _"]]) -> Verdict:
    mean = Estimate(float(np.mean([group.mean() for group in groups])))
    p = significance.bootstrap(significance.shares_of_mean(groups))
    remark = "the paper's; too sure where tasks differ"
    return Verdict(PAPER, "paired bootstrap over tasks x seeds", mean, float(p), None, remark)


_QUESTIONS = (_these, _general, _paper)


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns p values corrected for how many there are; what is none stays none."""
    there = [p for p in p_values if p is not None]
    if not there:
        return list(p_values)
    corrected = iter(significance.holm(np.array(there)).tolist())
    return [None if p is None else next(corrected) for p in p_values]
