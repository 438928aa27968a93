"""Coding systems: ICD-10 (CIM-10), CCAM and ATC, read from tables of codes and labels.

A table is a text file, a code a line, cells parted by a comma, a semicolon, a tab or a bar: the one
that parts its first line into the wanted columns. A column is named by its header, or by its number
from 1 in a file without header lines. Where there is no column of parents, they are derived:

- ICD-10, ATC: the longest beginning of the code that is itself one of the table (dots, + and -
  aside): E11.9 is in E11, A10BA02 in A10BA. Chapters and blocks (II, A00-A09) have no such
  beginning and are none: they are parents only in tables that say so.
- CCAM: an act is in the heading (01.01.03) above it in the file, a heading in the longest one that
  it begins with, by numbers: 01.01 in 1.
"""

import csv
import dataclasses
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DELIMITERS = ",;\t|"
SHOWN = 20  # faults of a table


class System(NamedTuple):
    """A coding system.

    Attributes:
      names: by language.
      code: what its codes look like, in a table.
      found: what looks like one in a text; wider: what no such code can be is seen too.
      whole: those of its codes that no part of is the code of a parent.
      headed: whether such a code's parent is the last other code above it in the file.
    """

    names: Mapping[str, str]
    code: re.Pattern[str]
    found: re.Pattern[str]
    whole: re.Pattern[str]
    headed: bool = False


def _found(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])")


SYSTEMS = {
    "icd10": System(
        {"en": "ICD-10", "fr": "CIM-10"},
        re.compile(
            r"[IVX]+|[A-Z]\d\d-[A-Z]\d\d"
            r"|[A-Z]\d[\dAB](\.?[\dA-Z]{1,4}|\.(?=[+-]))?([+-]\d{1,2}(\.\d)?)?"
        ),
        _found(
            r"[A-Z]\d\d-[A-Z]\d\d"
            r"|[A-Z]\d[\dAB](?:\.?[\dA-Z]+|\.(?=[+-]\d))?(?:[+-]\d+(?:\.\d+)?)?"
        ),
        re.compile(r"[IVX]+|[A-Z]\d\d-[A-Z]\d\d"),
    ),
    "ccam": System(
        {"en": "CCAM", "fr": "CCAM"},
        re.compile(r"[A-Z]{4}\d{3}(-\d\d)?|\d{1,2}(\.\d\d)*"),
        _found(r"[A-Z]{4}\d{3,}(?:-\d+)?|\d\d(?:\.\d\d)+"),
        re.compile(r"[A-Z].*"),
        headed=True,
    ),
    "atc": System(
        {"en": "ATC", "fr": "ATC"},
        re.compile(r"[A-Z](\d\d([A-Z]([A-Z](\d\d)?)?)?)?"),
        _found(r"[A-Z]\d\d[A-Z]*\d*"),
        re.compile(r"(?!)"),
    ),
}


class Columns(NamedTuple):
    """Which columns there are, by header or by number; parent None: "parent", if there is one."""

    code: str = "code"
    label: str = "label"
    parent: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """Codes with their labels and relations, in the order of the file.

    Attributes:
      system: name, of `SYSTEMS`.
      labels: by code.
      parents: by code, of those that have one.
      children: by code, of those that have some.
      passed_over: lines without a code.
      digest: of the file.
    """

    system: str
    labels: Mapping[str, str]
    parents: Mapping[str, str]
    children: Mapping[str, Sequence[str]]
    passed_over: int
    digest: str


class _Row(NamedTuple):
    line: int
    code: str
    label: str
    parent: str


def read_table(path: Path, system: str, columns: Columns, encoding: str) -> Table:
    """Reads a table.

    Args:
      path: of the file.
      system: name, of `SYSTEMS`.
      columns: where codes, labels and parents are.
      encoding: "utf-8" (with or without a byte order mark), "cp1252", or any that Python knows.

    Raises:
      ValueError: it is none; a line for each of the first 20 faults, with the number of the line.
      OSError: it cannot be read.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise ValueError(f"encoding: {encoding!r} is none that there is") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: not {encoding}; give --encoding (cp1252?)") from None
    rows, passed_over, has_parents = _rows(path, text, columns)
    faults: list[tuple[int, str]] = []
    kept = _kept(rows, SYSTEMS[system], faults)
    if has_parents:
        parents = {row.code: row.parent for row in kept.values() if row.parent}
        faults += _lost(kept, parents)
    else:
        parents = _derived(list(kept), SYSTEMS[system])
    if not rows:
        faults.append((1, "no code in the table"))
    if faults:
        shown = [f"{path}:{line}: {fault}" for line, fault in sorted(faults)[:SHOWN]]
        more = len(faults) - len(shown)
        raise ValueError("\n".join(shown + ([f"and {more:,} more"] if more else [])))
    children: dict[str, list[str]] = {}
    for code, parent in parents.items():
        children.setdefault(parent, []).append(code)
    labels = {code: row.label for code, row in kept.items()}
    digest = hashlib.sha256(raw).hexdigest()[:16]
    return Table(system, labels, parents, children, passed_over, digest)


def _rows(path: Path, text: str, columns: Columns) -> tuple[list[_Row], int, bool]:
    """The rows that have a code, how many have none, and whether there is a column of parents."""
    wanted = [name for name in columns if name is not None]
    by_number = all(name.isdecimal() for name in wanted)
    first = text.partition("\n")[0]

    def header(delimiter: str) -> list[str]:
        cells = next(csv.reader([first], delimiter=delimiter), [])
        return [str(i + 1) if by_number else cell.strip() for i, cell in enumerate(cells)]

    def fit(delimiter: str) -> tuple[int, int]:
        cells = header(delimiter)
        return sum(name in cells for name in wanted), len(cells)

    delimiter = max(DELIMITERS, key=fit)
    names = header(delimiter)
    if missing := [name for name in wanted if name not in names]:
        told = f"{len(names)} columns" if by_number else ", ".join(map(repr, names))
        raise ValueError(f"{path}:1: no column {', '.join(map(repr, missing))}; there are {told}")
    if twice := [name for name in wanted if names.count(name) > 1]:
        raise ValueError(f"{path}:1: more than one column {', '.join(map(repr, twice))}")
    parent = columns.parent or ("parent" if "parent" in names else None)
    places = [names.index(name) for name in (columns.code, columns.label, parent) if name]
    rows, passed_over = [], 0
    for line, cells in _lines(path, text, delimiter):
        if line == 1 and not by_number:
            continue
        values = [cells[place].strip() if place < len(cells) else "" for place in places]
        if values[0]:
            rows.append(_Row(line, values[0], " ".join(values[1].split()), (*values, "")[2]))
        else:
            passed_over += any(cell.strip() for cell in cells)
    return rows, passed_over, parent is not None


def _lines(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row with the number of the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"{path}:{line}: {error}") from None


def _kept(rows: Sequence[_Row], system: System, faults: list[tuple[int, str]]) -> dict[str, _Row]:
    """The rows by code, each code once."""
    kept: dict[str, _Row] = {}
    for row in rows:
        if not system.code.fullmatch(row.code):
            faults.append((row.line, f"{row.code!r} is no code of {system.names['en']}"))
        elif not row.label:
            faults.append((row.line, f"{row.code}: no label"))
        before = kept.setdefault(row.code, row)
        if before.label != row.label:
            faults.append((row.line, f"{row.code}: another label than on line {before.line}"))
        elif before.parent != row.parent:
            faults.append((row.line, f"{row.code}: another parent than on line {before.line}"))
    return kept


def _lost(kept: Mapping[str, _Row], parents: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """The faults of codes whose parent is not there, and of cycles, each once."""
    for code, parent in parents.items():
        if parent not in kept:
            yield kept[code].line, f"{code}: its parent {parent} is not in the table"
    done = set[str]()
    for start in parents:
        path: dict[str, None] = {}
        code: str | None = start
        while code is not None and code not in done and code not in path:
            path[code] = None
            code = parents.get(code)
        if code in path:
            names = list(path)
            cycle = [*names[names.index(code) :], code]
            yield kept[code].line, f"{code}: a cycle of parents: {' in '.join(cycle)}"
        done |= path.keys()


def _derived(codes: Sequence[str], system: System) -> dict[str, str]:
    """Parents by the rules above."""
    by_parts = {_parts(code): code for code in codes if not system.whole.fullmatch(code)}
    parents: dict[str, str] = {}
    heading = None
    for code in codes:
        if system.whole.fullmatch(code):
            parent = heading if system.headed else None
        else:
            parts, heading = _parts(code), code
            before = (by_parts.get(parts[:n]) for n in range(len(parts) - 1, 0, -1))
            parent = next(filter(None, before), None)
        if parent is not None:
            parents[code] = parent
    return parents


def _parts(code: str) -> tuple[str | int, ...]:
    """What a code is made of, of which its parent has the first ones: numbers, or characters."""
    numbers = code.split(".")
    if all(number.isdecimal() for number in numbers):
        return tuple(map(int, numbers))
    return tuple(re.sub(r"[.+-]", "", code))
