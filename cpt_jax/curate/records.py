"""Records on disk: JSON lines of ``text``, ``id`` and ``metadata``, as datatrove writes them.

Files are .jsonl or .jsonl.gz, at any depth of a directory. Metadata that all steps agree on:
``source`` (the corpus), ``licence``, ``article`` (what a paragraph is a part of), ``section``,
``place`` (the paragraph's number in the article) and the grades (`grades`).
"""

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cpt_jax.directories import whole_file

ASIDE = "aside"  # the folder, in what a step writes, of records that it could not go on with


def files_of(directory: Path) -> list[Path]:
    """The record files under a directory, sorted, but what an earlier step set aside there.

    Raises: NotADirectoryError, ValueError where there is none.
    """
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory}: no such directory")
    files = sorted(
        path
        for pattern in ("*.jsonl", "*.jsonl.gz")
        for path in directory.rglob(pattern)
        if ASIDE not in path.relative_to(directory).parts[:-1]
    )
    if not files:
        raise ValueError(f"{directory}: no file .jsonl or .jsonl.gz under it")
    return files


def lines_of(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, from 1, unpacked; blank ones are passed over."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line


def record_of(line: bytes) -> dict[str, Any]:
    """The record in a line.

    Raises:
      ValueError: it is none, or has no text; says why, without quoting any.
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError("no record: an object with a text is wanted")
    if not isinstance(record.setdefault("metadata", {}), dict):
        raise ValueError("metadata: not an object")
    if not record["text"].strip():
        raise ValueError("empty text")
    return record


def set_aside(file: Path, number: int, line: bytes, reason: str) -> str:
    """The line, of JSON, that says of another why it cannot go on."""
    raw = line.decode("utf-8", "replace")
    return json.dumps({"file": file.name, "line": number, "reason": reason, "raw": raw}) + "\n"


@contextlib.contextmanager
def whole_lines(target: Path) -> Iterator[Callable[[str], Any]]:
    """What writes to a file that is there whole or not at all, packed where it ends in .gz."""
    with whole_file(target) as file:
        if target.suffix != ".gz":
            yield file.write
            return
        # Without the time, which gzip notes: the same records give the same bytes.
        with gzip.GzipFile(fileobj=file.buffer, mode="wb", filename="", mtime=0) as packed:
            yield lambda text: packed.write(text.encode())
