"""Result files: one for each seed of a task, ``OUT/TASK/seed-SEED.json``, OUT being one model's.

Scores are fractions from 0 to 1.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from cpt_jax.directories import whole_file
from cpt_jax.finetune.examples import Kind
from cpt_jax.parsing import parse_as

FILES = "seed-*.json"


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of one seed of a task.

    Attributes:
      task: its name.
      kind: what is predicted.
      metric: the one of ``test`` that is compared.
      model: what was fine-tuned, as given.
      seed: of head, data order and dropout: two models' results of one seed are a pair.
      test: scores on the test split by metric.
      dev: the same on the dev split, at the best step; empty where there is none.
      best_step: whose weights were tested.
      steps: that were planned.
      seconds: that the seed took; its share, where several ran at once.
      settings: how it was fine-tuned.
      provenance: what else tells where the numbers come from.
    """

    task: str
    kind: Kind
    metric: str
    model: str
    seed: int
    test: Mapping[str, float]
    dev: Mapping[str, float]
    best_step: int
    steps: int
    seconds: float
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def score(self) -> float:
        """The score that is compared."""
        return self.test[self.metric]


@dataclasses.dataclass(frozen=True)
class Results:
    """One model's results.

    Attributes:
      directory: where they are.
      model: what was fine-tuned.
      tasks: by name, in alphabetical order; the results by seed, ascending.
    """

    directory: Path
    model: str
    tasks: Mapping[str, Mapping[int, Result]]


def path_of(directory: Path, task: str, seed: int) -> Path:
    """Returns where the result of a seed belongs.

    Raises:
      ValueError: the task's name is none for a folder, or the seed is negative.
    """
    if task in ("", "..") or Path(task).name != task or seed < 0:
        raise ValueError(f"task {task!r}, seed {seed}: no names for a folder and a file")
    return directory / task / f"seed-{seed}.json"


def write(directory: Path, result: Result) -> Path:
    """Writes a result, whole or not at all, over an older one; returns its path.

    Raises:
      ValueError: it is none that ``read`` would take.
      OSError: it cannot be written; nothing is left behind.
    """
    path = path_of(directory, result.task, result.seed)
    text = json.dumps(dataclasses.asdict(result), indent=2, ensure_ascii=False) + "\n"
    _parse(path, text)
    with whole_file(path) as file:
        file.write(text)
    return path


def read(path: Path) -> Result:
    """Returns the result in a file.

    Raises:
      ValueError: it is damaged, no result, or that of another task or seed than its path says;
        names the file.
      OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: damaged: {error}") from error
    return _parse(path, text)


def _parse(path: Path, text: str) -> Result:
    try:
        tree = json.loads(text, parse_constant=_refuse, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged: {error}") from error
    faults: list[str] = []
    result = parse_as(Result, tree, "result", faults)
    if faults:
        raise ValueError(f"{path}: no result of fine-tuning: {'; '.join(faults)}")
    for split in ("test", "dev"):
        for name, score in getattr(result, split).items():
            if not 0 <= score <= 1:
                faults.append(f"result.{split}.{name}: {score!r} is not between 0 and 1")
    if result.metric not in result.test:
        faults.append(f"result.test: has no {result.metric}, which is the metric")
    if not 0 <= result.seconds < math.inf:
        faults.append(f"result.seconds: {result.seconds}")
    if (path.parent.name, path.name) != (result.task, f"seed-{result.seed}.json"):
        faults.append(
            f"holds seed {result.seed} of {result.task}, whose file is "
            f"{result.task}/seed-{result.seed}.json"
        )
    if faults:
        raise ValueError(f"{path}: {'; '.join(faults)}")
    return result


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"twice in one object: {[n for n in tree if names.count(n) > 1]}")
    return tree


def read_directory(directory: Path) -> Results:
    """Returns the results of one model.

    Files and folders that no result is named like are somebody else's and left alone.

    Raises:
      ValueError: there are none; one is damaged; they are of several models; or those of a task
        are of different kinds or metrics. Names the files.
      OSError: it is no directory, or cannot be read.
    """
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory}: no such directory")
    if any(directory.glob(FILES)):
        raise ValueError(f"{directory}: the results of one task; name the directory above it")
    files = sorted(directory.glob(f"*/{FILES}"), key=_order)
    if not files:
        raise ValueError(f"{directory}: holds no results (TASK/seed-SEED.json)")
    tasks: dict[str, dict[int, Result]] = {}
    firsts: dict[str, Path] = {}
    model = None
    for path in files:
        result = read(path)
        model = model or result.model
        if result.model != model:
            raise ValueError(
                f"{directory}: the results of two models: {files[0]} of {model}, {path} of "
                f"{result.model}; each has a directory of its own"
            )
        same = tasks.setdefault(result.task, {})
        first = firsts.setdefault(result.task, path)
        for field in ("kind", "metric"):
            ours, other = (
                getattr(result, field),
                getattr(next(iter([*same.values(), result])), field),
            )
            if ours != other:
                raise ValueError(f"{path}: {field} {ours}, but {other} in {first}")
        same[result.seed] = result
    assert model is not None
    return Results(directory, model, tasks)


def check_model(directory: Path, model: str) -> None:
    """Checks that a directory of results, if it holds any, is this model's.

    Raises:
      ValueError: a result in it is damaged, or of another model; names the file.
      OSError: it cannot be read.
    """
    for path in sorted(directory.glob(f"*/{FILES}"), key=_order)[:1]:
        if (other := read(path).model) != model:
            raise ValueError(
                f"{path}: there is a result of another model: {other}; now {model}. Give another "
                "--out"
            )


def _order(path: Path) -> tuple[str, int, str]:
    number = re.fullmatch(r"seed-(\d+)\.json", path.name)
    return path.parent.name, int(number[1]) if number else -1, path.name
