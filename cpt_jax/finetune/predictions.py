"""Gold and predicted answers of a split, and the files that keep them.

A file is JSON lines. The first says what the answers are of: `task`, `split`, `kind`, `labels`,
`scores` (of `metrics`, fractions), `rules` (how each was scored) and whatever else tells where they
come from. Every other line is an example: its `id`, what is `gold` and what was `predicted`:

  classification, relation   a label
  multilabel                 a list of labels, in the order of the task's
  tagging                    of words that came apart their IOB2 tags; else as spans
  spans                      a list of [start, end, label], in characters of the text

It holds no text of the examples; ids are those of the data set.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpt_jax.directories import whole_file
from cpt_jax.finetune.examples import KINDS, Kind, Span
from cpt_jax.finetune.tags import OUTSIDE, entities_of

Answer = str | tuple[str, ...] | tuple[Span, ...]
HEAD = ("kind", "labels")
LINE = {"id", "gold", "predicted"}


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A split's answers, in the order of its examples.

    Attributes:
      kind: of the task.
      labels: of the task.
      ids: of the examples.
      gold: as annotated.
      predicted: of the same form.
    """

    kind: Kind
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    gold: tuple[Answer, ...]
    predicted: tuple[Answer, ...]


def write(path: Path, predictions: Predictions, about: Mapping[str, Any]) -> None:
    """Writes a file of predictions, whole or not at all, over an older one.

    Args:
      about: what the first line says besides kind and labels; `metrics.about` gives the scores.
    """
    head = {**about, "kind": predictions.kind, "labels": predictions.labels}
    answers = zip(predictions.ids, predictions.gold, predictions.predicted, strict=True)
    lines = [head, *({"id": i, "gold": g, "predicted": p} for i, g, p in answers)]
    with whole_file(path) as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read(path: Path) -> tuple[Predictions, dict[str, Any]]:
    """The predictions of a file, and the rest of its first line.

    Raises:
      ValueError: it is damaged, or an answer is none of its kind; names file and line.
      OSError: it cannot be read.
    """
    ids, gold, predicted = [], [], []
    number = 1
    with path.open("rb") as file:
        try:
            head = _object(next(file, b""))
            kind, labels = _kind_of(head)
            for number, text in enumerate(file, 2):  # noqa: B007 (told of in the message)
                line = _object(text)
                if line.keys() != LINE or not isinstance(line["id"], str):
                    raise ValueError(f"fields {sorted(line)}; allowed: {sorted(LINE)}")
                ids.append(line["id"])
                gold.append(_answer(line["gold"], kind, labels))
                predicted.append(_answer(line["predicted"], kind, labels))
                _check_alike(gold[-1], predicted[-1], kind)
        except ValueError as error:  # UnicodeDecodeError is one
            raise ValueError(f"{path}:{number}: {error}") from error
    about = {key: value for key, value in head.items() if key not in HEAD}
    return Predictions(kind, labels, tuple(ids), tuple(gold), tuple(predicted)), about


def _object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _kind_of(head: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    kind, labels = head.get("kind"), head.get("labels")
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("labels: not a list of labels")
    return kind, tuple(labels)


def _answer(value: Any, kind: Kind, labels: tuple[str, ...]) -> Answer:
    if kind in ("classification", "relation"):
        _check_labels([value], labels)
        return value
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no answer of kind {kind}")
    if kind == "multilabel":
        _check_labels(value, labels)
        if len(set(value)) != len(value):
            raise ValueError(f"a label is there twice among {value}")
        return tuple(value)
    if kind == "tagging" and value and all(isinstance(tag, str) for tag in value):
        entities_of(value)  # raises for what is no tag
        _check_labels([tag[2:] for tag in value if tag != OUTSIDE], labels)
        return tuple(value)
    spans = tuple(map(_span, value))
    _check_labels([span.label for span in spans], labels)
    return spans


def _check_labels(found: list[Any], labels: tuple[str, ...]) -> None:
    for label in found:
        if label not in labels:
            raise ValueError(f"label {label!r} is none of {', '.join(labels)}")


def _span(value: Any) -> Span:
    match value:
        case [int(start), int(end), str(label)] if 0 <= start < end:
            return Span(start, end, label)
    raise ValueError(f"{value!r} is no [start, end, label]")


def _check_alike(gold: Answer, predicted: Answer, kind: Kind) -> None:
    """That tags are given to the same words."""
    if kind != "tagging":
        return
    forms = [(bool(a) and isinstance(a[0], str), len(a)) for a in (gold, predicted)]
    if forms[0] != forms[1] and any(as_tags for as_tags, _ in forms):
        raise ValueError(f"{forms[0][1]} gold tags and {forms[1][1]} predicted ones")
