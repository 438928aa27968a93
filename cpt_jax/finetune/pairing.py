"""Two models' results side by side: the differences of each task, and what has no counterpart."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from cpt_jax.finetune.results import Result, Results, read_directory
from cpt_jax.parsing import differences


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The scores of one model minus those of another, on the same seeds.

    Attributes:
      tasks: by name; a difference for each seed that both have, of the tasks with any.
      notes: what was left out, and what else the two do not share, in sentences.
    """

    tasks: Mapping[str, Float[np.ndarray, " _"]]
    notes: Sequence[str]


def read_models(directories: Sequence[Path]) -> dict[str, Results]:
    """Returns the results by the models' names: their directories', or paths where two share one.

    Raises:
      ValueError: fewer than two directories, one given twice, or one that holds no results.
      OSError: one cannot be read.
    """
    if len(directories) < 2:
        raise ValueError("two directories of results are needed, or more")
    resolved = [path.resolve() for path in directories]
    for i, path in enumerate(resolved):
        if path in resolved[:i]:
            raise ValueError(f"{directories[i]}: given twice")
    names = [path.name for path in resolved]
    labels = [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, directories, strict=True)
    ]
    return {label: read_directory(path) for label, path in zip(labels, directories, strict=True)}


def pair(labels: tuple[str, str], first: Results, second: Results) -> Pairs:
    """Returns the differences ``second - first``.

    Args:
      labels: what the notes call the first and the second.
      first: of one model.
      second: of the other.

    Raises:
      ValueError: the two measure a task by different metrics, or no task has a seed in common.
    """
    told: dict[str, list[str]] = {}  # what there is to say -> of which tasks
    for label, ours, other in zip(labels, (first, second), (second, first), strict=True):
        told[f"results of {label} alone, left out"] = [
            t for t in ours.tasks if t not in other.tasks
        ]
    tasks = {}
    for task in (task for task in first.tasks if task in second.tasks):
        a, b = first.tasks[task], second.tasks[task]
        _check_measure(task, first, second)
        seeds = sorted(a.keys() & b.keys())
        for label, alone in zip(labels, (a.keys() - b.keys(), b.keys() - a.keys()), strict=True):
            if alone and seeds:
                text = f"seeds {_listed(alone)} have results of {label} alone, left out"
                told.setdefault(text, []).append(task)
        if seeds:
            tasks[task] = np.array([b[seed].score - a[seed].score for seed in seeds])
        else:
            told.setdefault(
                "no seed in common, left out: a difference of two seeds is one of their heads and "
                "data orders too; run the same seeds",
                [],
            ).append(task)
        for line in differences(_settings(a), _settings(b)):
            told.setdefault(f"settings differ from {labels[0]} to {labels[1]}: {line}", []).append(
                task
            )
    if not tasks:
        raise ValueError(
            f"{first.directory} and {second.directory} have no task and seed in common: "
            f"{_listed(first.tasks)}; {_listed(second.tasks)}"
        )
    notes = [f"{text} ({', '.join(names)})" for text, names in told.items() if names]
    if first.model == second.model:
        notes.append(f"{labels[0]} and {labels[1]} are results of one model, {first.model}")
    return Pairs(tasks, notes)


def mixed_settings(label: str, results: Results) -> list[str]:
    """Returns a sentence for each difference of settings between seeds of one task."""
    notes = []
    for task, seeds in results.tasks.items():
        for lines in {
            tuple(differences(_settings(seeds), dict(result.settings))) for result in seeds.values()
        }:
            notes += [
                f"settings differ between seeds of {label}: {line} ({task})" for line in lines
            ]
    return notes


def _check_measure(task: str, first: Results, second: Results) -> None:
    for field in ("metric", "kind"):
        ours, other = (getattr(_any(each.tasks[task]), field) for each in (first, second))
        if ours != other:
            raise ValueError(
                f"{task}: {field} {ours} in {first.directory}, {other} in {second.directory}: "
                "these are not to be compared"
            )


def _any(seeds: Mapping[int, Result]) -> Result:
    return next(iter(seeds.values()))


def _settings(seeds: Mapping[int, Result]) -> dict:
    return dict(_any(seeds).settings)


def _listed(names: Iterable[str] | Iterable[int]) -> str:
    return ", ".join(map(str, sorted(names)))
