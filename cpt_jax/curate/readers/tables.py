"""JSON lines, Parquet, and instructions in the forms that are published."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
import pyarrow.parquet

from cpt_jax.curate.readers.items import Fault, Record, decoded, plain, record, stem

ROWS = 1000  # of a table at a time
# A question, what it is about, and an answer, by the names that they have in the sets.
ASKED, ABOUT, ANSWERED = (
    ("instruction", "prompt", "question", "definition"),
    ("input", "context"),
    ("output", "response", "answer", "completion"),
)
TURNS, SPOKEN = ("messages", "conversations"), ("content", "value")


def jsonl(file: Any, name: str) -> Iterator[Record | Fault]:
    """Objects with a text, a line each: records as ours, or any others."""
    for number, line in enumerate(file, 1):
        if line.strip():
            yield _plain(_parsed(line), name, number)


def parquet(file: Any, name: str) -> Iterator[Record | Fault]:
    """Rows of a table with a column text.

    A disk's fault cannot be told from a file's here: both are a fault of the file.
    """
    try:
        table = pyarrow.parquet.ParquetFile(file)
        if "text" not in table.schema_arrow.names:
            yield Fault(name, "no column text")
            return
        number = 0
        for batch in table.iter_batches(ROWS):
            for row in batch.to_pylist():
                number += 1
                yield _plain(row, name, number)
    except (pyarrow.ArrowException, OSError, ValueError):  # all of which damage raises
        yield Fault(name, "not Parquet, or damaged")


def _parsed(line: bytes) -> dict[str, Any] | str:
    """The object in a line, or why there is none."""
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError):
        return "not JSON"
    return value if isinstance(value, dict) else "not an object"


def _plain(value: Mapping[str, Any] | str, name: str, number: int) -> Record | Fault:
    """A record of an object: other fields that are texts or numbers are its metadata."""
    if isinstance(value, str):
        return Fault(f"line {number}", value)
    text = value.get("text")
    if not isinstance(text, str):
        return Fault(f"line {number}", "no text")
    inner = value.get("metadata")
    about = {k: v for k, v in value.items() if isinstance(v, str | int | float)}
    about |= inner if isinstance(inner, Mapping) else {}
    about.pop("text", None)
    known = about.pop("id", None)
    article = str(about.pop("article", None) or known or f"{stem(name)}:{number}")
    place = about.pop("place", 0)
    item = record(text, article, place if isinstance(place, int) else 0, about)
    if isinstance(item, Fault):
        return Fault(f"line {number}", item.reason)
    if known is not None:
        item["id"] = plain(str(known))
    return item


def chat(file: Any, name: str) -> Iterator[Record | Fault]:
    """Instructions and dialogues as text: what is said, turn by turn, an empty line between.

    Lines of JSON, or one JSON text: a list, or an object with a ``Definition`` and ``Instances``.
    An object is ``messages`` or ``conversations`` (turns with content or value, or plain texts), or
    has an instruction, an input and an output by one of their names (`ASKED`, `ABOUT`, `ANSWERED`;
    case aside).
    """
    for number, value in _dialogues(file):
        turns = value if isinstance(value, str) else _turns(value)
        if isinstance(turns, str):
            yield Fault(f"dialogue {number}", turns)
            continue
        known = value.get("id") if isinstance(value, Mapping) else None
        article = f"{stem(name)}:{number if known is None else known}"
        yield record("\n\n".join(turns), article, 0, {})


def _dialogues(file: Any) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Objects, or why one is none, with their numbers from 1."""
    lines = (line for line in file if line.strip())
    first = next(lines, b"")
    if isinstance(opening := _parsed(first), Mapping) and "Instances" not in opening:
        yield 1, opening
        for number, line in enumerate(lines, 2):
            yield number, _parsed(line)
        return
    try:
        value = json.loads(decoded(first + b"".join(lines)))
    except (ValueError, RecursionError):
        yield 1, "not JSON, in lines or as a whole"
        return
    definition = value.get("Definition", "") if isinstance(value, Mapping) else ""
    instances = value.get("Instances") if isinstance(value, Mapping) else value
    if not isinstance(instances, list):
        yield 1, "neither a list nor an object with Instances"
        return
    for number, each in enumerate(instances, 1):
        known = isinstance(each, Mapping)
        yield number, {"Definition": definition, **each} if known else "not an object"


def _turns(value: Mapping[str, Any]) -> list[str] | str:
    """What is said in a dialogue, or why that cannot be told; turns without words are left out."""
    fields = {str(name).lower(): each for name, each in value.items()}
    for name in TURNS:
        if isinstance(fields.get(name), list):
            said = [_said(turn) for turn in fields[name]]
            return "a turn without content" if None in said else [s for s in said if s]
    found = [
        next((fields[n] for n in names if n in fields), "") for names in (ASKED, ABOUT, ANSWERED)
    ]
    texts = ["\n".join(map(str, part)) if isinstance(part, list) else part for part in found]
    if not all(isinstance(text, str) for text in texts) or not texts[2].strip():
        return "neither turns nor an answer in a field that is known"
    return [text.strip() for text in texts if text.strip()]


def _said(turn: Any) -> str | None:
    if isinstance(turn, Mapping):
        turn = next((turn[name] for name in SPOKEN if name in turn), None)
    return turn.strip() if isinstance(turn, str) else None
