"""Rows of a prepared corpus by index. `prepare` writes the directory; this is its layout:

manifest.json            counts, checksums, tokenizer, template: what makes the corpus this one
tokenizer.json           and tokenizer_config.json where the tokenizer had one: copies
shards/*.array_record    one record per document: its token ids, little-endian uint16 or uint32
documents.npy            DOCUMENT, one per document, in the order of the shards' records
SPLIT.pieces.npy         [P, 3] uint32: document, first token, number of tokens
SPLIT.row_offsets.npy    [R + 1] int64: row r is pieces[row_offsets[r] : row_offsets[r + 1]]
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from cpt_jax.data.tokenizer import check_roles

VERSION = 1
DOCUMENT = np.dtype(
    [
        ("length", "<u4"),  # tokens, the template's among them
        ("factor", "<f4"),  # copies wanted in an epoch
        ("heldout", "?"),
        ("text_hash", "<u8"),
        ("id_hash", "<u8"),
    ]
)
SPLITS = ("train", "heldout")
MANIFEST = (  # what a manifest must have to be read
    *("template", "seq_len", "heldout_fraction", "tokenizer", "dtype", "documents", "tokens"),
    *("splits", "shards", "files"),
)
DAMAGED = "copy it again, or prepare the corpus again (python -m cpt_jax.data.verify lists all)"
# Rows hit documents at random: no readahead, and a buffer near the size of a record.
READER_OPTIONS = {
    "options": "readahead_buffer_size:0,max_parallelism:0",
    "file_reader_buffer_size": 1 << 15,
}


class Source:
    """The rows of one split: `source[i]` for 0 <= i < len(source).

    A row is {"input_ids": int32 [L], "segment_ids": int32 [L], "row": int}; segments count from 1
    in the order of the row, 0 marks padding. Reading is thread-safe; pickling keeps the path alone.

    Attributes:
      name: the directory's name.
      manifest: manifest.json as a dict.
      fingerprint: sha256 of manifest.json, which holds the sha256 of every other file.
      seq_len: L.
      tokens: of all rows of the split, copies counted, padding not.
      tokenizer: the manifest's {"sha256", "vocab_size", "special_ids", "cls_id", "sep_id",
        "mask_id", "pad_id"}.
    """

    def __init__(self, path: Path, split: str, manifest: dict[str, Any], fingerprint: str):
        self.path, self.split, self.name = path, split, path.name
        self.manifest, self.fingerprint = manifest, fingerprint
        self.seq_len: int = manifest["seq_len"]
        self.tokens: int = manifest["splits"][split]["row_tokens"]
        self.tokenizer: dict[str, Any] = manifest["tokenizer"]
        self._pieces, self._row_offsets = _open_plan(path, split, manifest)
        self._files = [path / shard["file"] for shard in manifest["shards"]]
        self._first_document = np.cumsum([0] + [shard["records"] for shard in manifest["shards"]])
        self._readers: dict[int, ArrayRecordReader] = {}
        self._lock = threading.Lock()
        self._reading: dict[int, tuple[int, list[int]]] = {}  # by thread: shard, records

    def __reduce__(self):
        return open_source, (self.path, self.split)

    def __len__(self) -> int:
        return len(self._row_offsets) - 1

    @property
    def tokens_per_row(self) -> float:
        """Mean tokens of a row, below seq_len by the padding of each pass's last row."""
        return self.tokens / len(self)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Returns a row. Raises IndexError, and OSError with the file and record it cannot read."""
        row = range(len(self))[index]
        pieces = self._pieces[self._row_offsets[row] : self._row_offsets[row + 1]].astype(np.int64)
        input_ids = np.full(self.seq_len, self.tokenizer["pad_id"], np.int32)
        segment_ids = np.zeros(self.seq_len, np.int32)
        ends = np.cumsum(pieces[:, 2])
        segment_ids[: ends[-1]] = np.repeat(np.arange(1, len(pieces) + 1), pieces[:, 2])
        documents = self._documents(pieces[:, 0])
        for tokens, (_, start, length), end in zip(documents, pieces, ends, strict=True):
            input_ids[end - length : end] = tokens[start : start + length]
        return {"input_ids": input_ids, "segment_ids": segment_ids, "row": row}

    def _documents(self, documents: np.ndarray) -> list[np.ndarray]:
        """Token ids of some documents, with one read per shard they lie in."""
        shards = np.searchsorted(self._first_document, documents, side="right") - 1
        tokens: list[Any] = [None] * len(documents)
        for shard in np.unique(shards).tolist():
            (places,) = np.nonzero(shards == shard)
            records = (documents[places] - self._first_document[shard]).tolist()
            for place, record in zip(places, self._read(shard, records), strict=True):
                tokens[place] = np.frombuffer(record, self.manifest["dtype"])
        return tokens

    def reading(self) -> list[str]:
        """The file and the records that each thread now waits for."""
        return [
            f"{self._files[shard]}: {'record' if len(records) == 1 else 'records'}"
            f" {', '.join(map(str, records))}"
            for shard, records in list(self._reading.values())
        ]

    def _read(self, shard: int, records: list[int]) -> list[bytes]:
        thread = threading.get_ident()
        self._reading[thread] = shard, records
        try:
            return self._reader(shard).read(records)
        except Exception:  # the reader's own error names neither file nor record
            for record in records:
                try:
                    self._reader(shard).read([record])
                except Exception as error:
                    raise OSError(f"{self._files[shard]}: record {record}: {error}") from error
            raise
        finally:
            del self._reading[thread]

    def _reader(self, shard: int) -> ArrayRecordReader:
        if shard not in self._readers:
            with self._lock:
                if shard not in self._readers:
                    file = str(self._files[shard])
                    self._readers[shard] = ArrayRecordReader(file, **READER_OPTIONS)
        return self._readers[shard]


def open_source(path: str | Path, split: str = "train") -> Source:
    """Opens one split of a prepared corpus, after the checks that need no record of it.

    Raises:
      FileNotFoundError: no corpus there (with the command that makes one), or a file is missing.
      ValueError: a damaged manifest or one of another layout version, an unknown or empty split, a
        shard or a plan of another size than the manifest's, another tokenizer.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ValueError(f"{split=}; allowed: {', '.join(SPLITS)}")
    manifest, fingerprint = read_manifest(path)
    if not manifest["splits"][split]["rows"]:
        raise ValueError(nothing_held_out(path, manifest))
    for shard in manifest["shards"]:
        _check_shard(path / shard["file"], shard)
    tokenizer = path / "tokenizer.json"  # goes into the exported model
    if sha256(tokenizer) != manifest["tokenizer"]["sha256"]:
        raise ValueError(f"{tokenizer}: not the one that the text was prepared with: {DAMAGED}")
    return Source(path, split, manifest, fingerprint)


def read_manifest(path: Path) -> tuple[dict[str, Any], str]:
    """What a corpus is, as a dict, and its fingerprint. Raises what `open_source` does."""
    file = path / "manifest.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"{path}: not a prepared corpus (no manifest.json). Make it with\n"
            f"  {prepare_command(path)}"
        )
    content = file.read_bytes()
    try:
        manifest = json.loads(content)
        version = manifest["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{file}: damaged ({error!r}); prepare the corpus again") from error
    if version != VERSION:
        raise ValueError(
            f"{path}: layout version {version}; this code reads {VERSION}: prepare the corpus again"
        )
    if missing := [key for key in MANIFEST if key not in manifest]:
        raise ValueError(f"{file}: damaged (no {', '.join(missing)}); prepare the corpus again")
    check_roles(manifest["tokenizer"], path)
    return manifest, hashlib.sha256(content).hexdigest()


def nothing_held_out(path: str | Path, manifest: Mapping[str, Any]) -> str:
    """What to say of a corpus without held-out rows (one without training rows is never made)."""
    return (
        f"{path}: no document is held out (--heldout-fraction {manifest['heldout_fraction']} of"
        f" {manifest['documents']:,} documents), and training needs some for its held-out loss:"
        " prepare the corpus again with a larger --heldout-fraction, such as 0.05"
    )


def shared_tokenizer(sources: Mapping[str, Source], seq_len: int) -> dict[str, Any]:
    """The manifest's entry of the tokenizer that all sources were prepared with.

    Raises:
      ValueError: sources of different tokenizers or templates, or of rows of another length.
    """
    for what, values in {
        "tokenizers": {name: s.tokenizer["sha256"][:12] for name, s in sources.items()},
        "templates": {name: s.manifest["template"] for name, s in sources.items()},
    }.items():
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value}" for name, value in values.items())
            raise ValueError(f"the sources were prepared with different {what} ({listed})")
    for name, source in sources.items():
        if source.seq_len != seq_len:
            raise ValueError(
                f"source {name!r} ({source.path}) has rows of {source.seq_len} tokens and "
                f"config.data.seq_len is {seq_len}: prepare it with --seq-len {seq_len}"
            )
    return next(iter(sources.values())).tokenizer


def _check_shard(file: Path, shard: Mapping[str, Any]) -> None:
    """Raises ValueError if a shard is not of the size and the number of records it should be."""
    size = file.stat().st_size
    if size != shard["bytes"]:
        raise ValueError(f"{file}: {size} bytes; the manifest says {shard['bytes']}: {DAMAGED}")
    try:
        reader = ArrayRecordReader(str(file), **READER_OPTIONS)
        records = reader.num_records()
        reader.close()
    except Exception as error:
        raise ValueError(f"{file}: not readable: {error}: {DAMAGED}") from error
    if records != shard["records"]:
        raise ValueError(
            f"{file}: {records} records; the manifest says {shard['records']}: {DAMAGED}"
        )


def _open_plan(
    path: Path, split: str, manifest: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces and row offsets of a split, mapped into memory. Raises ValueError."""
    arrays = []
    for name in ("pieces", "row_offsets"):
        file = path / f"{split}.{name}.npy"
        try:
            arrays.append(np.asarray(np.load(file, mmap_mode="r")))
        except (ValueError, EOFError) as error:
            raise ValueError(f"{file}: not readable: {error}: {DAMAGED}") from error
    pieces, offsets = arrays
    rows = manifest["splits"][split]["rows"]
    if len(offsets) != rows + 1 or offsets[-1] != len(pieces):
        raise ValueError(
            f"{path}: {split} has {len(offsets) - 1} rows of {len(pieces)} pieces and the manifest"
            f" says {rows}: {DAMAGED}"
        )
    return pieces, offsets


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare_command(
    path: str | Path,
    raw: str | None = None,
    tokenizer: str | None = None,
    seq_len: int | None = None,
) -> str:
    """Returns the command that makes a corpus; what is not known stands in capitals."""
    return (
        f"python -m cpt_jax.data.prepare --input '{raw or 'TEXTS/*.jsonl.gz'}' "
        f"--tokenizer {tokenizer or 'TOKENIZER_DIR'} --out {path} --seq-len {seq_len or 8192}"
    )
