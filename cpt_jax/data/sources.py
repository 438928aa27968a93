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
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

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
        "mask_id", "pad_id"}; an id the tokenizer lacks is None.
    """

    def __init__(self, path: Path, split: str, manifest: dict[str, Any], fingerprint: str):
        self.path, self.split, self.name = path, split, path.name
        self.manifest, self.fingerprint = manifest, fingerprint
        self.seq_len: int = manifest["seq_len"]
        self.tokens: int = manifest["splits"][split]["row_tokens"]
        self.tokenizer: dict[str, Any] = manifest["tokenizer"]
        self._pieces = np.load(path / f"{split}.pieces.npy", mmap_mode="r")
        self._row_offsets = np.load(path / f"{split}.row_offsets.npy", mmap_mode="r")
        self._files = [path / shard["file"] for shard in manifest["shards"]]
        self._first_document = np.cumsum([0] + [shard["records"] for shard in manifest["shards"]])
        self._readers: dict[int, ArrayRecordReader] = {}
        self._lock = threading.Lock()
        self._pad_id = self.tokenizer["pad_id"] or 0

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
        input_ids = np.full(self.seq_len, self._pad_id, np.int32)
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

    def _read(self, shard: int, records: list[int]) -> list[bytes]:
        try:
            return self._reader(shard).read(records)
        except Exception:  # the reader's own error names neither file nor record
            for record in records:
                try:
                    self._reader(shard).read([record])
                except Exception as error:
                    raise OSError(f"{self._files[shard]}: record {record}: {error}") from error
            raise

    def _reader(self, shard: int) -> ArrayRecordReader:
        if shard not in self._readers:
            with self._lock:
                if shard not in self._readers:
                    file = str(self._files[shard])
                    self._readers[shard] = ArrayRecordReader(file, **READER_OPTIONS)
        return self._readers[shard]


def open_source(path: str | Path, split: str = "train") -> Source:
    """Opens one split of a prepared corpus; reads no record.

    Raises:
      FileNotFoundError: no corpus there (with the command that makes one), or a shard is missing.
      ValueError: another layout version, an unknown or empty split, a shard of another size.
    """
    path = Path(path)
    if split not in SPLITS:
        raise ValueError(f"{split=}; allowed: {', '.join(SPLITS)}")
    if not (path / "manifest.json").is_file():
        raise FileNotFoundError(
            f"{path}: not a prepared corpus (no manifest.json). Make it with\n"
            f"  {prepare_command(path)}"
        )
    content = (path / "manifest.json").read_bytes()
    manifest = json.loads(content)
    if manifest["version"] != VERSION:
        raise ValueError(f"{path}: layout version {manifest['version']}; this code reads {VERSION}")
    if not manifest["splits"][split]["rows"]:
        raise ValueError(
            f"{path}: split {split!r} has no rows: --heldout-fraction was"
            f" {manifest['heldout_fraction']}, of {manifest['documents']} documents"
        )
    for shard in manifest["shards"]:
        file = path / shard["file"]
        if file.stat().st_size != shard["bytes"]:
            raise ValueError(
                f"{file}: {file.stat().st_size} bytes; the manifest says {shard['bytes']}"
            )
    return Source(path, split, manifest, hashlib.sha256(content).hexdigest())


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
