"""A task's examples from disk: found, read, checked, and split where the publisher does not."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cpt_jax.finetune.checking import check
from cpt_jax.finetune.examples import SPLITS, Annotated, Cut, Example, Task, Text, Words

# How deep under the data directory a task's folder may lie: data/GAD, data/en_tasks/GAD, ...
DEPTH = 3


class Loaded(NamedTuple):
    """A task with its examples.

    Attributes:
      task: as declared.
      labels: all of them, those of the training split where the task declares none.
      splits: train, dev and test.
      warnings: what should be known and is no fault, a line each.
    """

    task: Task
    labels: tuple[str, ...]
    splits: dict[str, list[Example]]
    warnings: tuple[str, ...]


def load(task: Task, data_dir: Path | str) -> Loaded:
    """Reads and checks all of a task.

    Raises:
      FileNotFoundError: the folder or a file is not there; says where to get it.
      ValueError: what a reader finds, an example of another kind than the task's, an id twice in a
        split, a label that is not among the task's, an entity beyond its text or across another;
        with the file and line.
    """
    splits: dict[str, list[Example]] = {}
    for split, files in files_of(task, data_dir).items():
        splits[split] = list(task.read(files, split))
        if not splits[split]:
            raise ValueError(f"{files[0]}: no example of {task.name} in it")
    for cut in task.cuts:
        splits[cut.source], splits[cut.into] = cut_of(splits[cut.source], cut)
    labels = task.labels or tuple(sorted(set(_labels(splits["train"]))))
    for split, examples in splits.items():
        _check(task, split, examples, labels)
    ordered = {split: splits[split] for split in SPLITS}
    return Loaded(task, labels, ordered, tuple(_warnings(task, ordered, labels)))


def files_of(task: Task, data_dir: Path | str) -> dict[str, list[Path]]:
    """The files of each split that is read, sorted by name where one glob gives several.

    Each is looked for in every folder of the task's names, the shallowest first: the publisher's
    splits may have come in parts. Raises FileNotFoundError.
    """
    root = Path(data_dir)
    folders = [
        folder
        for depth in range(DEPTH)
        for name in task.folder
        for folder in sorted(root.glob("*/" * depth + name) if depth else [root / name])
        if folder.is_dir()
    ]
    get = f"get it from {task.source} ({task.licence})"
    if not folders:
        raise FileNotFoundError(
            f"{task.name}: no folder {' or '.join(task.folder)} under {root}; {get}"
        )
    found: dict[str, list[Path]] = {}
    for split, patterns in task.files.items():
        found[split] = []
        for pattern in patterns:
            matches = next((paths for f in folders if (paths := _matches(f, pattern))), [])
            if not matches:
                where = " or ".join(map(str, folders))
                raise FileNotFoundError(f"{task.name}: no {pattern} ({split}) in {where}; {get}")
            found[split] += matches
    return found


def _matches(folder: Path, pattern: str) -> list[Path]:
    """What the pattern names in the folder, without what a Mac adds to an archive."""
    inside = ((path, path.relative_to(folder)) for path in folder.glob(pattern))
    return sorted(
        path
        for path, name in inside
        if path.is_file() and not name.name.startswith("._") and "__MACOSX" not in name.parts
    )


def cut_of(examples: Sequence[Example], cut: Cut) -> tuple[list[Example], list[Example]]:
    """What stays and what is cut out (see `Cut`)."""
    if cut.generator == "pcg64":
        order = np.random.default_rng(cut.seed).permutation(len(examples))
    else:
        order = np.random.RandomState(cut.seed).permutation(len(examples))
    size = math.ceil(cut.share * len(examples))
    return [examples[i] for i in order[size:]], [examples[i] for i in order[:size]]


def _labels(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:
        if isinstance(example, Text):
            yield from example.labels
        elif isinstance(example, Words):
            yield from (tag[2:] for tag in example.tags if tag != "O")
        else:
            yield from (span.label for span in example.spans)


def text_of(example: Example) -> str:
    """What an example's text is told from another's by."""
    if isinstance(example, Words):
        return " ".join(example.words)
    return (
        example.text if isinstance(example, Annotated) else f"{example.text}\0{example.pair or ''}"
    )


def _check(task: Task, split: str, examples: Sequence[Example], labels: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for example in examples:
        where = example.where or f"{task.name}, {split}"
        if example.id in seen:
            raise ValueError(f"{where}: id {example.id!r} again; it was at {seen[example.id]}")
        seen[example.id] = where
        try:
            check(example, task.kind, labels)
        except ValueError as error:
            raise ValueError(f"{where}: {example.id}: {error}") from None


def _warnings(
    task: Task, splits: Mapping[str, Sequence[Example]], labels: Sequence[str]
) -> Iterator[str]:
    texts = {split: Counter(map(text_of, examples)) for split, examples in splits.items()}
    for i, one in enumerate(SPLITS):
        for other in SPLITS[i + 1 :]:
            both = texts[one].keys() & texts[other].keys()
            if both:
                count, of = sum(texts[other][text] for text in both), texts[other].total()
                yield f"{task.name}: {count} of {of} texts of {other} are in {one} too"
    for split, examples in splits.items():
        gaps = sum(e.discontinuous for e in examples if isinstance(e, Annotated))
        if gaps:
            yield f"{task.name}: {gaps} discontinuous entities of {split} are read as their hulls"
        present = set(_labels(examples))
        absent = [label for label in labels if label not in present]
        if absent:
            yield f"{task.name}: no {', '.join(absent)} in {split}"


class Entry(NamedTuple):
    """What `list` says of a task.

    Attributes:
      on_disk: whether its folder and files are there.
      sizes: examples of each split; None where it is not on disk, or does not read.
      fault: why it has none.
    """

    task: Task
    on_disk: bool
    sizes: dict[str, int] | None
    fault: str | None


def entry(task: Task, data_dir: Path | str) -> Entry:
    """Whether a task is on disk, and how large."""
    try:
        loaded = load(task, data_dir)
    except (OSError, ValueError) as error:
        return Entry(task, not isinstance(error, FileNotFoundError), None, str(error))
    return Entry(task, True, {split: len(rows) for split, rows in loaded.splits.items()}, None)
