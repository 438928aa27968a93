"""Documents out of files, object stores and data sets: what `prepare` reads, and refuses in it.

notes/*.jsonl.gz                        files of FORMATS, by path or glob pattern
s3://bucket/notes/*.parquet             the same in any store that fsspec knows
datasets:owner/name,split=train         a data set of Hugging Face `datasets`
tfds:name:1.0.0,split=train             one of TensorFlow Datasets
"""

import contextlib
import glob
import hashlib
import importlib
import io
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cpt_jax.addresses import without_keys

# suffix -> compression
FORMATS = {
    ".jsonl": None,
    ".jsonl.gz": "gzip",
    ".jsonl.zst": "zstd",
    ".parquet": None,
    ".txt": None,
}
# kind of data set -> the library that reads it, the options that may follow its name
DATASETS = {
    "datasets": ("datasets", ("split", "config", "revision", "data_files")),
    "tfds": ("tensorflow_datasets", ("split", "data_dir")),
}
# protocol or kind -> the extra of this package that installs what reads it
EXTRAS = {"datasets": "datasets", "tfds": "tfds", "s3": "s3", "gs": "gs", "gcs": "gs"}
MAX_FACTOR = 1_000_000  # copies of a document


class Input(NamedTuple):
    """A file or a data set to read."""

    name: str  # a path, a URL, or KIND:NAME,OPTION=VALUE
    bytes: int | None  # as stored; None where that is not known


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
    position: int  # bytes of the input read so far, as stored; 0 where that is not known


def hash64(text: str) -> int:
    """64 bits of the text, the same for every corpus, seed and tokenizer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def find_inputs(patterns: Sequence[str]) -> list[Input]:
    """The inputs that paths, URLs, glob patterns and names of data sets stand for, sorted, once.

    Raises:
      FileNotFoundError: a pattern that matches nothing. ValueError: an unknown format or option, or
        a library that is not installed. OSError: a store that does not answer.
    """
    items = [item for pattern in patterns for item in _find(str(pattern))]
    # A file that is named in two ways is one input.
    found = {i.name if kind_of(i.name) else os.path.realpath(i.name): i for i in items}
    for item in found.values():
        if kind_of(item.name) not in DATASETS:
            format_of(item.name)
    return sorted(found.values(), key=lambda item: (kind_of(item.name), PurePath(item.name)))


def kind_of(name: str) -> str:
    """What reads an input that is no file here: a kind of DATASETS, or "url"; "" for a path."""
    prefix = name.split(":", 1)[0]
    return prefix if prefix in DATASETS and ":" in name else "url" if "://" in name else ""


def public_names(inputs: Sequence[Input]) -> list[str]:
    """The names to write down: neither where a corpus lay on a machine, nor a key in a URL."""
    paths = [os.path.abspath(item.name) for item in inputs if not kind_of(item.name)]
    root = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    names = []
    for item in inputs:
        kind, name = kind_of(item.name), without_keys(item.name)
        if kind == "url":
            names.append(name)
        elif kind:
            parts = (part.rpartition("=") for part in name.split(":", 1)[1].split(","))
            short = (a + b + (os.path.basename(c) if os.path.isabs(c) else c) for a, b, c in parts)
            names.append(f"{kind}:{','.join(short)}")
        else:
            names.append(os.path.relpath(os.path.abspath(item.name), root))
    return names


def read_documents(item: Input, fields: Fields) -> Iterator[Document]:
    """Yields the documents of one input, blank lines skipped; the default id is FILE:LINE.

    Raises:
      ValueError: invalid UTF-8 or JSON, a damaged file, a missing field, a text that is no string,
        a factor that is no finite number >= 0. It names the input and the line (in .parquet and
        in data sets the record), counted from 1, and never quotes the text.
    """
    name = without_keys(item.name)
    records = _records(item, fields)
    for line in itertools.count(1):
        try:
            record, position = next(records)
            document = _document(record, fields, f"{PurePath(name).name}:{line}", position)
        except StopIteration:
            return
        except (ValueError, OSError, pa.ArrowException) as error:
            raise ValueError(f"{name}, line {line}: {error}") from error
        if document:
            yield document


def format_of(name: str) -> str:
    """The suffix that names a file's format. Raises ValueError for a name of no known one."""
    path = without_keys(name)
    for suffix in FORMATS:
        if path.endswith(suffix):
            return suffix
    raise ValueError(f"{path}: unknown format; allowed: {', '.join(FORMATS)}")


def _find(pattern: str) -> Iterator[Input]:
    kind = kind_of(pattern)
    if kind in DATASETS:
        _options(pattern)
        _library(DATASETS[kind][0], kind)
        yield Input(pattern, None)
        return
    if kind:
        try:
            found = _find_in_store(pattern)
        except (ValueError, OSError) as error:
            raise type(error)(f"--input {without_keys(pattern)}: {error}") from error
    else:
        names = glob.glob(pattern, recursive=True)
        found = [Input(name, os.path.getsize(name)) for name in names]
    if not found:
        raise FileNotFoundError(f"--input {without_keys(pattern)}: no such file")
    yield from found


def _find_in_store(pattern: str) -> list[Input]:
    with _one_line_errors(pattern):
        store, path = fsspec.url_to_fs(pattern)
        paths = store.glob(path) if glob.has_magic(path) else [path] * store.exists(path)
        # A signed URL keeps its query, which is no part of the path.
        names = [pattern] if paths == [path] else map(store.unstrip_protocol, paths)
        return [Input(name, store.size(path)) for name, path in zip(names, paths, strict=True)]


def _options(name: str) -> tuple[str, dict[str, str]]:
    """'datasets:NAME,split=test' -> (NAME, {"split": "test"}); the split is train by default."""
    kind, rest = name.split(":", 1)
    dataset, *parts = rest.split(",")
    options = {"split": "train"}
    for part in parts:
        option, equals, value = part.partition("=")
        if not equals or option not in DATASETS[kind][1]:
            allowed = ", ".join(f"{option}=..." for option in DATASETS[kind][1])
            raise ValueError(
                f"--input {without_keys(name)}: {without_keys(part)!r}; allowed after the name: "
                f"{allowed}"
            )
        options[option] = value
    if not dataset:
        raise ValueError(f"--input {name}: no name; write {kind}:NAME,split=train")
    return dataset, options


def _library(module: str, kind: str) -> Any:
    """Imported only where an input needs it: some are large, and none is a dependency."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = EXTRAS[kind]
        raise ValueError(f"{kind}:... needs {module}: pip install -e '.[{extra}]'") from error


@contextlib.contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Whatever a store or a library raises, as an OSError or ValueError: one line, without keys."""
    try:
        yield
    except ImportError as error:
        extra = EXTRAS.get(name.split(":", 1)[0])
        install = f": pip install -e '.[{extra}]'" if extra else ""
        raise ValueError(f"{error}{install}") from error
    except Exception as error:
        text = without_keys(str(error).replace(name, without_keys(name))).strip()
        silent = "no answer in time" if isinstance(error, TimeoutError) else "no reason given"
        said = text[:300].splitlines()[0] if text else silent
        raise OSError(f"{type(error).__name__}: {said}") from error


def _records(item: Input, fields: Fields) -> Iterator[tuple[bytes | dict[str, Any], int]]:
    """Yields (line or record, bytes of the input read so far)."""
    kind = kind_of(item.name)
    if kind == "datasets":
        yield from _records_of_datasets(item.name, fields)
    elif kind == "tfds":
        yield from _records_of_tfds(item.name, fields)
    elif kind:
        with _one_line_errors(item.name):
            store, path = fsspec.url_to_fs(item.name)
            with store.open(path, "rb") as file, pa.PythonFile(file, "r") as stream:
                yield from _records_of_file(item, fields, stream)
    else:
        with pa.OSFile(item.name) as stream:
            yield from _records_of_file(item, fields, stream)


def _records_of_file(
    item: Input, fields: Fields, file: pa.NativeFile
) -> Iterator[tuple[bytes | dict[str, Any], int]]:
    suffix = format_of(item.name)
    if suffix == ".txt":
        text = file.read()
        yield {fields.text: text.decode("utf-8-sig")}, len(text)
    elif suffix == ".parquet":
        table, row = pq.ParquetFile(file), 0
        names = table.schema_arrow.names
        columns = [name for name in fields if name in names] if fields.text in names else None
        for batch in table.iter_batches(batch_size=1024, columns=columns):
            for record in batch.to_pylist():
                row += 1
                yield record, (item.bytes or 0) * row // table.metadata.num_rows
    else:
        codec = FORMATS[suffix]
        for line in io.BufferedReader(pa.CompressedInputStream(file, codec) if codec else file):
            yield line, file.tell()


def _records_of_datasets(name: str, fields: Fields) -> Iterator[tuple[dict[str, Any], int]]:
    """Streams a data set in its own order; nothing of it is kept in memory or copied to disk."""
    dataset, options = _options(name)
    library, config = _library("datasets", "datasets"), options.pop("config", None)
    with _one_line_errors(name):
        rows = library.load_dataset(dataset, config, streaming=True, **options)
        names = rows.column_names or ()
        if fields.text in names:  # other columns may hold pictures, and are not decoded
            rows = rows.select_columns([field for field in fields if field in names])
        for record in rows:
            yield record, 0


def _records_of_tfds(name: str, fields: Fields) -> Iterator[tuple[dict[str, Any], int]]:
    """Reads a data set record by record, without TensorFlow."""
    dataset, options = _options(name)
    library = _library("tensorflow_datasets", "tfds")
    with _one_line_errors(name):
        rows = library.data_source(dataset, **options)
    for index in range(len(rows)):
        with _one_line_errors(name):
            record = rows[index]
        yield {field: _plain(record[field]) for field in record}, 0


def _plain(value: Any) -> Any:
    """A number or text of numpy as Python's."""
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


def _document(
    record: bytes | dict[str, Any], fields: Fields, place: str, position: int
) -> Document | None:
    if isinstance(record, bytes):
        line = record.decode("utf-8-sig")  # a byte-order mark may open the file
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except RecursionError:
            raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__}; allowed: an object")
    for name in (fields.text, fields.repeat):
        if name is not None and name not in record:
            # A file without a header has text in their place: names are short words.
            names = sorted(key for key in record if re.fullmatch(r"[A-Za-z_]\w{0,31}", key))
            raise ValueError(f"no field {name!r}; fields are {names}")
    text, factor = record[fields.text], record[fields.repeat] if fields.repeat else 1
    text = "" if text is None else text
    if not isinstance(text, str):
        raise ValueError(f"field {fields.text!r} is {type(text).__name__}; allowed: a string")
    if not isinstance(factor, int | float) or not 0 <= factor <= MAX_FACTOR:
        shown = f"{factor:.6g}" if isinstance(factor, float) else type(factor).__name__
        shown = str(factor)[:20] if type(factor) is int else shown
        allowed = f"a finite number >= 0 and <= {MAX_FACTOR:,}"
        raise ValueError(f"field {fields.repeat!r} is {shown}; allowed: {allowed}")
    name = record.get(fields.id)
    id_hash = hash64(place if name is None else str(name))
    return Document(text, hash64(text), id_hash, float(factor), position)
