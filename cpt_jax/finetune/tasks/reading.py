"""Files as readers see them: strict UTF-8, known lines, faults that name file, line and value."""

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

# Longer than any note; csv refuses fields over 128 KiB unless told.
MAX_FIELD = 2**27


def fault(path: Path, line: int | None, message: str) -> NoReturn:
    """Raises ValueError "PATH:LINE: message"; lines are counted from 1."""
    raise ValueError(f"{path}: {message}" if line is None else f"{path}:{line}: {message}")


def shown(value: str, most: int = 60) -> str:
    """The value quoted for a message, cut where it is long."""
    return repr(value if len(value) <= most else value[: most - 1] + "…")


def text_of(path: Path) -> str:
    """The file's text as it is, line ends and all, without a byte-order mark.

    `.gz` is unpacked. Raises ValueError if it is empty or not UTF-8, with the line.
    """
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    if not raw.strip():
        fault(path, None, "empty")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = f"0x{raw[error.start]:02x}"
        fault(path, line, f"byte {byte} is not UTF-8; convert the file (is it Latin-1?)")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    r"""Number and text of each line, without its end: LF or CRLF.

    Nothing else ends a line: str.splitlines would cut at U+2028, U+0085 and their like, which
    texts do contain.
    """
    lines = text_of(path).split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield number, line.removesuffix("\r")


def table_of(
    path: Path, columns: Sequence[str], *, delimiter: str = "\t", quoted: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and fields by name of each row of a table with a header.

    Args:
      columns: those that must be there; others come too.
      quoted: whether double quotes enclose fields (CSV's rule: such a field may hold line ends);
        if not, a quote is a character like any other.

    Raises ValueError for a column that is missing, or a row of more or fewer fields.
    """
    rows = _quoted_rows(path, delimiter) if quoted else _plain_rows(path, delimiter)
    _, header = next(rows)
    for column in columns:
        if column not in header:
            fault(path, 1, f"no column {column!r} among {', '.join(header)}")
    for line, row in rows:
        if len(row) != len(header):
            fault(path, line, f"{len(row)} fields where the header has {len(header)}")
        yield line, dict(zip(header, row, strict=True))


def _plain_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines_of(path):
        if line:
            yield number, line.split(delimiter)


def _quoted_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Streams: one of these files is of 4 GB."""
    csv.field_size_limit(MAX_FIELD)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        line = 1
        try:
            for row in reader:
                if row:
                    yield line, row
                line = reader.line_num + 1
        except UnicodeDecodeError as error:
            byte = f"0x{error.object[error.start]:02x}"
            fault(path, None, f"byte {byte} is not UTF-8, at line {line} or some lines after it")
        except csv.Error as error:
            fault(path, line, f"not CSV: {error}")
    if line == 1:
        fault(path, None, "empty")


def json_of(path: Path) -> Any:
    """The one JSON value of a file. Raises ValueError with the line where it is not JSON."""
    try:
        return json.loads(text_of(path))
    except json.JSONDecodeError as error:
        fault(path, error.lineno, f"not JSON: {error.msg}")


def json_list_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object of a file that is one JSON list of objects, with the line it begins on."""
    values, text = json_of(path), text_of(path)
    if not isinstance(values, list):
        fault(path, None, f"not a JSON list: {shown(text.lstrip())}")
    decoder, more = json.JSONDecoder(), re.compile(r"[^\s,]")
    at = text.index("[") + 1
    line = 1 + text.count("\n", 0, at)
    for value in values:
        found = more.search(text, at)
        assert found is not None, "the text has as many values as the list"
        start = found.start()
        _, end = decoder.raw_decode(text, start)
        line += text.count("\n", at, start)
        if not isinstance(value, dict):
            fault(path, line, f"not a JSON object: {shown(json.dumps(value))}")
        yield line, value
        at, line = end, line + text.count("\n", start, end)


def json_lines_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line of a JSONL file; blank lines are passed over."""
    for number, line in lines_of(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            fault(path, number, f"not JSON: {error.msg}: {shown(line)}")
        if not isinstance(value, dict):
            fault(path, number, f"not a JSON object: {shown(line)}")
        yield number, value


def field_of(path: Path, line: int | None, record: Mapping[str, Any], name: str) -> str:
    """A string that a record must have, and that is not blank."""
    if name not in record:
        fault(path, line, f"no field {name!r} among {', '.join(record)}")
    value = record[name]
    if not isinstance(value, str):
        fault(path, line, f"{name}: {shown(str(value))} is a {type(value).__name__}, not a text")
    if not value.strip():
        fault(path, line, f"{name}: empty")
    return value


def two_of(files: Sequence[Path], what: str) -> tuple[Path, Path]:
    """The two files of a split that is read from two."""
    if len(files) != 2:
        names = ", ".join(map(str, files[1:]))
        fault(files[0], None, f"and {names or 'no other'}, where {what} are read")
    return files[0], files[1]


def openings_of(path: Path, line: int, text: str, openings: Sequence[str]) -> tuple[int, int]:
    """Where a relation's two opening markers begin; each must be in the text just once."""
    for marker in openings:
        if text.count(marker) != 1:
            fault(path, line, f"{text.count(marker)} times {marker!r}, not once: {shown(text)}")
    first, second = openings
    return text.index(first), text.index(second)
