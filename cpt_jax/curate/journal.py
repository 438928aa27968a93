"""Answers that were paid for, each on the disk before the next thing is done."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """A file of JSON lines that only grows, and whose owner is one process.

    The first line says what the answers are of; another's file is refused. A last line that was
    cut by a kill is taken off: its answer is asked for again.

    Args:
      path: of the file.
      about: what the answers are of, as JSON types.

    Attributes:
      answers: by key, those that are there.

    Raises:
      ValueError: the file is of something else, damaged, or another process's.
      OSError: it cannot be read or written.
    """

    def __init__(self, path: Path, about: dict[str, Any]):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{path}: another process is writing it") from None
        self.answers: dict[str, dict[str, Any]] = {}
        try:
            self._read(about)
        except ValueError:
            self._file.close()
            raise

    def _read(self, about: dict[str, Any]) -> None:
        self._file.seek(0)
        raw = self._file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            self._file.truncate(len(whole))
        lines = whole.splitlines()
        if not lines:
            self._append(about)
            return
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
                if number == 1:
                    there = value
                else:
                    self.answers[value["key"]] = value
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{self._path}:{number}: damaged") from None
        changed = [name for name in about | there if about.get(name) != there.get(name)]
        if changed:
            told = "; ".join(f"{n}: {there.get(n)!r}, now {about.get(n)!r}" for n in changed)
            raise ValueError(f"{self._path}: holds answers of another {told}. Give another --out")

    def add(self, key: str, **answer: Any) -> None:
        """Keeps an answer; it is on the disk when this returns."""
        self._append({"key": key, **answer})
        self.answers[key] = {"key": key, **answer}

    def _append(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()
