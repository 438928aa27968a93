"""A task of one's own, by a file and without code.

name: wards                      # as in results
kind: classification             # or multilabel, relation, tagging, spans
format: jsonl                    # one of `FORMATS`; `options` are its reader's
options: {text: note, label: ward}
files:                           # of each split, beside this file or under `folder`; globs may be
  train: train-*.jsonl
  test: test.jsonl
cuts: [{source: train, into: dev, share: 0.1}]
settings: {learning_rate: 3e-5, epochs: 5}
"""

import dataclasses
import difflib
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cpt_jax.finetune.examples import SPLITS, Cut, Example, Kind, Settings, Task
from cpt_jax.finetune.metrics import check_metric
from cpt_jax.finetune.tasks import brat, chemprot, conll, deid, jsonl, personal, tables
from cpt_jax.parsing import parse_as

Reader = Callable[..., list[Example]]
FORMATS: dict[str, Reader] = {
    "conll": conll.read,
    "table": tables.read,
    "jsonl": jsonl.read,
    "brat": brat.read,
    "presidio": personal.read,
    "hoc": tables.read_hoc,
    "chemprot_scibert": chemprot.read_scibert,
    "chemprot_blue": chemprot.read_blue,
    "csabstruct": jsonl.read_abstracts,
    "pubmedqa": jsonl.read_pubmedqa,
    "deid_physionet": deid.read_physionet,
    "deid_i2b2_2006": deid.read_2006,
    "deid_i2b2_2014": deid.read_2014,
}
# What a kind is scored by unless the file says otherwise.
METRICS: dict[str, str] = {
    "classification": "macro_f1",
    "multilabel": "macro_f1",
    "relation": "macro_f1",
    "tagging": "entity_f1",
    "spans": "span_f1",
}


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What a file may say; `Task` says what it means."""

    name: str
    kind: Kind
    format: str
    files: Mapping[str, str | tuple[str, ...]]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    folder: str = "."  # where the files are, from the declaration's own folder
    labels: tuple[str, ...] | None = None
    metric: str | None = None
    settings: Settings = dataclasses.field(default_factory=Settings)
    cuts: tuple[Cut, ...] = ()
    title: str | None = None
    language: str = ""
    source: str = "its declaration"
    licence: str = "not stated"


def read(path: Path) -> Task:
    """The task that a YAML file declares.

    Raises:
      FileNotFoundError: no such file.
      ValueError: what is wrong with it, all of it, a line each: a field, split, format or option
        that there is not (with the nearest), one that is missing, a value of the wrong type, or
        something that is there twice.
    """
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: values within values, too deep to be read") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a mapping of fields to values")
    faults: list[str] = []
    declared: Declaration = parse_as(Declaration, value, path.name, faults)
    if not faults:
        faults += _faults(declared, path.name)
    options = {} if faults else _options(declared, path.name, faults)
    if faults:
        raise ValueError(f"{path}:\n" + "\n".join(faults))
    files = {
        split: (patterns,) if isinstance(patterns, str) else patterns
        for split, patterns in declared.files.items()
    }
    return Task(
        name=declared.name,
        title=declared.title or declared.name,
        language=declared.language,
        kind=declared.kind,
        read=functools.partial(FORMATS[declared.format], **options),
        files=files,
        folder=(str((path.parent / declared.folder).absolute()),),
        labels=declared.labels,
        metric=declared.metric or METRICS[declared.kind],
        settings=declared.settings,
        source=declared.source,
        licence=declared.licence,
        cuts=declared.cuts,
    )


class _Loader(yaml.SafeLoader):
    """YAML's, but 3e-5 is a number; a key that is there twice, or an alias, is an error.

    A short file of aliases may stand for more than memory holds.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                problem = f"{key.value!r} is there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def _nearest(name: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0)[0]


def _faults(declared: Declaration, path: str) -> list[str]:
    """What is wrong with values that are of the right types."""
    faults = []
    if not re.fullmatch(r"\w[\w.-]*", declared.name):
        allowed = "a letter or digit first, then . _ - too"
        faults.append(f"{path}.name: {declared.name!r} names a folder; {allowed}")
    if declared.format not in FORMATS:
        nearest = _nearest(declared.format, FORMATS)
        faults.append(f"{path}.format: {declared.format!r} is unknown; did you mean {nearest!r}?")
    try:
        check_metric(declared.metric or METRICS[declared.kind], declared.kind)
    except ValueError as error:
        faults.append(f"{path}.{error}")
    faults += [f"{path}.settings.{fault}" for fault in declared.settings.faults()]
    splits = list(declared.files)
    for split, patterns in declared.files.items():
        if split not in SPLITS:
            faults.append(f"{path}.files.{split}: is not one of {', '.join(SPLITS)}")
        faults += _pattern_faults(f"{path}.files.{split}", patterns)
    labels = declared.labels
    if labels is not None and (not labels or len(set(labels)) < len(labels) or "" in labels):
        faults.append(f"{path}.labels: {list(labels)}: at least one, none empty, no two the same")
    for number, cut in enumerate(declared.cuts):
        if cut.source not in splits or cut.into in splits:
            there = f"from {cut.source} into {cut.into}, when there are {', '.join(splits)}"
            faults.append(f"{path}.cuts[{number}]: {there}")
        if not 0 < cut.share < 1:
            faults.append(f"{path}.cuts[{number}].share: {cut.share} is not between 0 and 1")
        splits.append(cut.into)
    for split in SPLITS:
        if split not in splits:
            faults.append(f"{path}.files.{split}: missing; give files, or a cut into it")
    return faults


def _pattern_faults(path: str, patterns: str | tuple[str, ...]) -> list[str]:
    """What is wrong with the names of a split's files."""
    several = (patterns,) if isinstance(patterns, str) else patterns
    faults = [] if several else [f"{path}: no file"]
    for pattern in several:
        parts = Path(pattern).parts
        if not parts or Path(pattern).is_absolute():
            faults.append(f"{path}: {pattern!r} is no path from `folder`")
        elif any("**" in part and part != "**" for part in parts):
            faults.append(f"{path}: {pattern!r}: ** stands for whole folders, between two /")
    return faults


def _options(declared: Declaration, path: str, faults: list[str]) -> dict[str, Any]:
    """The reader's keyword arguments, checked against what it takes."""
    reader = FORMATS[declared.format]
    hints = typing.get_type_hints(reader)
    fields = [
        (name, hints[name], dataclasses.field())
        if option.default is option.empty
        else (name, hints[name], dataclasses.field(default=option.default))
        for name, option in inspect.signature(reader).parameters.items()
        if option.kind is option.KEYWORD_ONLY and name != "labels"
    ]
    if not fields:
        faults += [
            f"{path}.options.{name}: {declared.format} has none" for name in declared.options
        ]
        return {}
    group = dataclasses.make_dataclass("Options", fields, kw_only=True)
    parsed = parse_as(group, declared.options, f"{path}.options", faults)
    return (
        {}
        if faults
        else {field.name: getattr(parsed, field.name) for field in dataclasses.fields(group)}
    )
