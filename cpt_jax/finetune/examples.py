"""What a task is made of: its examples, whatever file they came from, and how it is fine-tuned."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from cpt_jax.parsing import parse_as

# classification: one label a text; multilabel: any number of them; relation: one label for a pair
# of entities marked in the text; tagging: flat entities, a tag a word; spans: entities that may
# nest.
Kind = Literal["classification", "multilabel", "relation", "tagging", "spans"]
KINDS: tuple[str, ...] = get_args(Kind)
Split = Literal["train", "dev", "test"]
SPLITS: tuple[str, ...] = get_args(Split)


class Text(NamedTuple):
    """A text with its labels: of kinds classification and relation (one) and multilabel (any).

    Attributes:
      id: names it in messages and predictions; unique in its split.
      text: as published; of a relation with its markers in it.
      labels: of multilabel in the order of the file.
      pair: a second text that the first is read with, or none.
      markers: of a relation: the characters of `text` at which the two opening markers begin.
      where: the file and line it begins on, for messages.
    """

    id: str
    text: str
    labels: tuple[str, ...]
    pair: str | None = None
    markers: tuple[int, int] | None = None
    where: str = ""


class Words(NamedTuple):
    """A sentence or document that comes in words: of kind tagging.

    Attributes:
      id: names it.
      words: none of them empty.
      tags: strict IOB2, one a word: "O", "B-TYPE", "I-TYPE" after "B-TYPE" or "I-TYPE".
      where: the file and line it begins on.
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str = ""


class Span(NamedTuple):
    """An entity: the characters ``text[start:end]``."""

    start: int
    end: int
    label: str


class Annotated(NamedTuple):
    """A text with its entities, of kind spans, or of kind tagging where none overlap.

    Attributes:
      id: names it.
      text: all of it; windows are the encoder's.
      spans: sorted, none twice.
      where: the file it is in.
      discontinuous: how many of the file's entities had gaps; spans are their hulls.
    """

    id: str
    text: str
    spans: tuple[Span, ...]
    where: str = ""
    discontinuous: int = 0


Example = Text | Words | Annotated


@dataclasses.dataclass(frozen=True)
class Cut:
    """A split that the publisher does not give, cut out of one that is there.

    Of the source's n examples, those at the first `ceil(share n)` places of a permutation become
    `into`; the others stay, in the permutation's order. It is numpy's, of that seed, and by the
    generator as `train_test_split` does it of Hugging Face's datasets ("pcg64") or of scikit-learn
    ("mt19937"), so that a protocol that was written with one of them gets its own splits.
    """

    source: Split
    into: Split
    share: float
    seed: int = 42
    generator: Literal["pcg64", "mt19937"] = "pcg64"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a task is fine-tuned.

    Attributes:
      learning_rate: the encoder's peak; falls in a straight line to 0.
      head_learning_rate: that of what is new; None: the same.
      batch: rows a step.
      epochs: passes over the training rows, or
      steps: that many steps (epochs is None then).
      evaluations: how many times the dev split is scored, evenly spread over the steps, the last
        time at their end; None: after each epoch.
      warmup: share of the steps in which the rate rises.
      weight_decay: torch's AdamW's, of matrices alone.
      clip_norm: of the global gradient norm; None: not clipped.
      max_length: tokens of a row. Longer examples become windows where entities are sought; texts
        are cut (a relation's around its markers), and how many were is told.
      stride: tokens that a window shares with the one before it.
      pooling: what a text's head reads: the first token, or the mean of all.
      dropout: before the last layer of the head; of kind spans, of words and what its LSTMs give.
      positive_weights: of multilabel: each label's positives weigh as much as its negatives.
      tune_threshold: of multilabel and spans: predicted is what is more probable than that of
        `decode.THRESHOLDS` which does best on the dev split, not than one half.
      patience: a seed stops after so many evaluations in a row without a better metric; None:
        never.
    """

    learning_rate: float = 5e-5
    head_learning_rate: float | None = None
    batch: int = 16
    epochs: int | None = 10
    steps: int | None = None
    evaluations: int | None = None
    warmup: float = 0.0
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    max_length: int = 512
    stride: int = 128
    pooling: Literal["cls", "mean"] = "cls"
    dropout: float = 0.0
    positive_weights: bool = False
    tune_threshold: bool = False
    patience: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Others, of which some are changed; of epochs and steps, the given one replaces the other.

        Raises:
          ValueError: a field that there is not, or a value of another type or out of range; names
            both.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if changes.get(one) is not None and other not in changes:
                fields[other] = None
        faults: list[str] = []
        settings: Settings = parse_as(Settings, {**fields, **changes}, "settings", faults)
        faults = faults or [f"settings.{fault}" for fault in settings.faults()]
        if faults:
            raise ValueError("; ".join(faults))
        return settings

    def faults(self) -> list[str]:
        """What is out of range, each as "field: value is not ..."."""
        faults = [
            f"{name}: {value} is not {words}"
            for name, (words, is_right) in _RANGES.items()
            if (value := getattr(self, name)) is not None and not is_right(value)
        ]
        if (self.epochs is None) == (self.steps is None):
            faults.append(f"epochs, steps: {self.epochs} and {self.steps}; one of them is None")
        return faults


# What numbers of `Settings` may be: in words, and as a test.
_RANGES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys(
        ("learning_rate", "head_learning_rate", "clip_norm"),
        ("a number above 0", lambda value: 0 < value < math.inf),
    ),
    **dict.fromkeys(
        ("batch", "epochs", "steps", "evaluations", "max_length", "patience"),
        ("1 or more", lambda value: value >= 1),
    ),
    "weight_decay": ("a number from 0", lambda value: 0 <= value < math.inf),
    "stride": ("0 or more", lambda value: value >= 0),
    "warmup": ("a share, from 0 to 1", lambda value: 0 <= value <= 1),
    "dropout": ("from 0 to below 1", lambda value: 0 <= value < 1),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """One task as declared: data, labels, metric, settings.

    Attributes:
      name: as in ``--task``.
      title: as in tables, the paper's where it has it.
      language: "en" or "fr" ("" where it is another).
      kind: what is predicted.
      read: from a split's files and its name to its examples; raises ValueError naming file, line
        and value.
      files: each split's, relative to the task's folder; globs are allowed. A split that `cuts`
        makes has none.
      folder: names that the task's folder may have under the data directory, the first preferred.
      labels: all that there are; None: those of the training split, sorted. A label of another
        split that is not among them is an error.
      metric: of `metrics`, what the best checkpoint is chosen by and what is compared.
      settings: the paper's.
      source: where to get it.
      licence: of the data; "gated" in it where a signature is needed.
      paper: the column of the paper's tables, if it is one of theirs.
      cuts: how splits that are not published are made, one after the other.
    """

    name: str
    title: str
    language: str
    kind: Kind
    read: Callable[[Sequence[Path], str], list[Example]]
    files: Mapping[str, tuple[str, ...]]
    folder: tuple[str, ...]
    labels: tuple[str, ...] | None
    metric: str
    settings: Settings
    source: str
    licence: str
    paper: str | None = None
    cuts: tuple[Cut, ...] = ()
