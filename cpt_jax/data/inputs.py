"""Documents out of text files: the formats `prepare` reads, and what it refuses in them."""

import hashlib
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

# suffix -> compression
FORMATS = {
    ".jsonl": None,
    ".jsonl.gz": "gzip",
    ".jsonl.zst": "zstd",
    ".parquet": None,
    ".txt": None,
}


class Fields(NamedTuple):
    """Names of a record's fields; with no repeat field every factor is 1."""

    text: str
    id: str
    repeat: str | None


class Document(NamedTuple):
    """A text, with what the index keeps of it."""

    text: str
    text_hash: int
    id_hash: int
    factor: float
    position: int  # bytes of the input read so far, as stored


def hash64(text: str) -> int:
    """64 bits of the text, the same for every corpus, seed and tokenizer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def read_documents(path: Path, fields: Fields) -> Iterator[Document]:
    """Yields the documents of one input, blank lines skipped; the default id is FILE:LINE.

    Raises:
      ValueError: invalid UTF-8 or JSON, a damaged file, a missing field, a text that is no string,
        a factor that is no finite number >= 0. It names the file and the line (in .parquet the
        row), counted from 1.
    """
    records = _records(path, fields)
    for line in itertools.count(1):
        try:
            record, position = next(records)
            document = _document(record, fields, f"{path.name}:{line}", position)
        except StopIteration:
            return
        except (ValueError, OSError, pa.ArrowException) as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
        if document:
            yield document


def format_of(path: Path) -> str:
    """The suffix that names a file's format. Raises ValueError for a name of no known one."""
    for suffix in FORMATS:
        if path.name.endswith(suffix):
            return suffix
    raise ValueError(f"{path}: unknown format; allowed: {', '.join(FORMATS)}")


def _records(path: Path, fields: Fields) -> Iterator[tuple[bytes | dict[str, Any], int]]:
    """Yields (line or table row, bytes of the file read so far)."""
    suffix = format_of(path)
    if suffix == ".txt":
        text = path.read_bytes()
        yield {fields.text: text.decode("utf-8-sig")}, len(text)
    elif suffix == ".parquet":
        table, size, row = pq.ParquetFile(path), path.stat().st_size, 0
        columns = [name for name in fields if name in table.schema_arrow.names]
        for batch in table.iter_batches(batch_size=1024, columns=columns):
            for record in batch.to_pylist():
                row += 1
                yield record, size * row // table.metadata.num_rows
    else:
        with pa.OSFile(str(path)) as file:
            codec = FORMATS[suffix]
            for line in io.BufferedReader(pa.CompressedInputStream(file, codec) if codec else file):
                yield line, file.tell()


def _document(
    record: bytes | dict[str, Any], fields: Fields, place: str, position: int
) -> Document | None:
    if isinstance(record, bytes):
        line = record.decode("utf-8-sig")  # a byte-order mark may open the file
        if not line.strip():
            return None
        record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__}; allowed: an object")
    for name in (fields.text, fields.repeat):
        if name is not None and record.get(name) is None:
            raise ValueError(f"no field {name!r}; fields are {sorted(record)}")
    text, factor = record[fields.text], record[fields.repeat] if fields.repeat else 1
    if not isinstance(text, str):
        raise ValueError(f"field {fields.text!r} is {type(text).__name__}; allowed: a string")
    if not isinstance(factor, int | float) or not 0 <= factor < float("inf"):
        raise ValueError(f"{fields.repeat} = {factor!r}; allowed: a finite number >= 0")
    name = record.get(fields.id)
    id_hash = hash64(place if name is None else str(name))
    return Document(text, hash64(text), id_hash, float(factor), position)
