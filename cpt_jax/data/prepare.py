"""Text files to a prepared corpus: token shards, an index of documents, row plans, a manifest.

    python -m cpt_jax.data.prepare --input 'notes/*.jsonl.gz' --tokenizer TOK --out data/notes

Inputs: .jsonl (plain, .gz or .zst; a document per line), .parquet (a document per table row) and
.txt (a file is one document). The layout is described in `sources`. What is written depends on the
inputs and the options alone, never on the number of workers.
"""

import argparse
import glob
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from cpt_jax.data.inputs import Document, Fields, format_of, read_documents
from cpt_jax.data.packing import POOL_DOCUMENTS, plan_rows
from cpt_jax.data.sources import DOCUMENT, SPLITS, VERSION
from cpt_jax.data.tokenizer import read_tokenizer, template_ids, token_dtype, tokenizer_file

# Small consecutive inputs share a task, and so a shard, of TASK_BYTES; of more where there would be
# over MAX_TASKS of them, since a source keeps a file open per shard.
TASK_BYTES, MAX_TASKS = 64 << 20, 256
BATCH_CHARACTERS = 4 << 20  # tokenised at once, in parallel
SHARD_TOKENS = 1 << 28
TEMPLATE = "[CLS] text [SEP]"


class Shard(NamedTuple):
    """A shard as the manifest lists it."""

    file: str
    sha256: str
    bytes: int
    records: int
    tokens: int


class Tokenised(NamedTuple):
    """What a task gives: DOCUMENT records, shards, the number of empty documents."""

    index: np.ndarray
    shards: list[Shard]
    empty: int


class Job(NamedTuple):
    """What every worker needs to know."""

    tokenizer: Path
    template: str
    fields: Fields
    shard_tokens: int
    out: Path


class _Shards:
    """Writes one task's records into shards of about shard_tokens."""

    def __init__(self, job: Job, task: int):
        self.job, self.task, self.done = job, task, list[Shard]()
        self.writer, self.records, self.tokens = None, 0, 0

    def write(self, tokens: np.ndarray) -> None:
        if self.writer is None:
            self.file = f"shards/{self.task:05d}-{len(self.done):03d}.array_record"
            self.writer = ArrayRecordWriter(str(self.job.out / self.file), "group_size:1")
        self.writer.write(tokens.tobytes())
        self.records, self.tokens = self.records + 1, self.tokens + len(tokens)
        if self.tokens >= self.job.shard_tokens:
            self.close()

    def close(self) -> None:
        if self.writer is None:
            return
        self.writer.close()
        path = self.job.out / self.file
        size = path.stat().st_size
        self.done.append(Shard(self.file, _sha256(path), size, self.records, self.tokens))
        self.writer, self.records, self.tokens = None, 0, 0


class _Worker:
    """Tokenises tasks; `counters` (documents, tokens, input bytes) is shared by all workers."""

    def __init__(self, job: Job, counters: Any):
        self.job, self.counters = job, counters
        self.tokenizer, info = read_tokenizer(job.tokenizer)
        self.before, self.after = template_ids(job.template, self.tokenizer, info["special_ids"])
        self.dtype = token_dtype(info["vocab_size"])

    def run(self, task: int, paths: list[Path]) -> Tokenised:
        shards, index, empty = _Shards(self.job, task), [], 0
        for path in paths:
            position = 0
            for batch in _batches(read_documents(path, self.job.fields)):
                texts = [document.text if document.text.strip() else "" for document in batch]
                encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
                tokens = 0
                for document, encoding in zip(batch, encodings, strict=True):
                    if not encoding.ids:
                        empty += 1
                        continue
                    ids = np.array(self.before + encoding.ids + self.after, self.dtype)
                    shards.write(ids)
                    tokens += len(ids)
                    hashes = document.text_hash, document.id_hash
                    index.append((len(ids), document.factor, False, *hashes))
                self._count(len(batch), tokens, batch[-1].position - position)
                position = batch[-1].position
        shards.close()
        return Tokenised(np.array(index, DOCUMENT), shards.done, empty)

    def _count(self, *amounts: int) -> None:
        with self.counters.get_lock():
            for i, amount in enumerate(amounts):
                self.counters[i] += amount


_worker: _Worker  # one per process, made by the pool's initializer


def _start_worker(job: Job, counters: Any, threads: int) -> None:
    global _worker
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))  # the tokenizer's threads
    _worker = _Worker(job, counters)


def _run_task(task: int, paths: list[Path]) -> Tokenised:
    return _worker.run(task, paths)


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    batch, characters = [], 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _find_inputs(patterns: Sequence[str]) -> list[Path]:
    paths = set[Path]()
    for pattern in patterns:
        found = {Path(name) for name in glob.glob(str(pattern), recursive=True)}
        if not found:
            raise FileNotFoundError(f"--input {pattern}: no such file")
        paths |= found
    for path in paths:
        format_of(path)
    return sorted(paths)


def _tasks(paths: list[Path]) -> list[list[Path]]:
    """Consecutive inputs, grouped by size: the same for any number of workers."""
    sizes = [path.stat().st_size for path in paths]
    limit = max(TASK_BYTES, sum(sizes) // MAX_TASKS)
    tasks, filled = [[]], 0
    for path, size in zip(paths, sizes, strict=True):
        if tasks[-1] and filled + size > limit:
            tasks.append([])
            filled = 0
        tasks[-1].append(path)
        filled += size
    return tasks


def _tokenise(job: Job, tasks: list[list[Path]], workers: int) -> list[Tokenised]:
    """Runs the tasks, with progress on stderr, and returns their results in order."""
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    counters = context.Array("q", 3)
    total = sum(path.stat().st_size for task in tasks for path in task)
    started, done = time.monotonic(), threading.Event()

    def report() -> None:
        while not done.wait(1 if sys.stderr.isatty() else 30):
            _report(counters, total, time.monotonic() - started)

    threading.Thread(target=report, daemon=True).start()
    workers = min(workers, len(tasks))
    try:
        if workers == 1:
            worker = _Worker(job, counters)
            return [worker.run(*task) for task in enumerate(tasks)]
        start = job, counters, max(1, (os.cpu_count() or 1) // workers)
        with ProcessPoolExecutor(workers, context, _start_worker, start) as pool:
            return list(pool.map(_run_task, range(len(tasks)), tasks))
    finally:
        done.set()
        _report(counters, total, time.monotonic() - started)


def _report(counters: Any, total: int, seconds: float) -> None:
    documents, tokens, read = counters[:]
    left = f", ETA {seconds * (total - read) / read / 60:.1f} min" if 0 < read < total else ""
    print(
        f"{documents:,} documents, {tokens:,} tokens, {tokens / seconds:,.0f} tokens/s,"
        f" {100 * read / max(1, total):.0f} % of the input{left}",
        end="\r" if sys.stderr.isatty() and left else "\n",
        file=sys.stderr,
    )


def prepare(
    inputs: Sequence[str],
    tokenizer: str | Path,
    out: str | Path,
    *,
    seq_len: int = 8192,
    text_field: str = "text",
    id_field: str = "id",
    repeat_field: str | None = None,
    heldout_fraction: float = 0.005,
    seed: int = 0,
    template: str = TEMPLATE,
    workers: int = 1,
    shard_tokens: int = SHARD_TOKENS,
    pool_documents: int = POOL_DOCUMENTS,
) -> dict[str, Any]:
    """Prepares a corpus in the new directory `out` and returns its manifest.

    Documents keep the order of the sorted input files and of the lines in them. A document is held
    out by the hash of its text, so copies of a text stay on one side of the split, in every corpus
    and for every seed; repeat factors are for training, and a factor of 0 leaves a document out of
    both splits. Nothing is called `out` until all of it is written.

    Args:
      inputs: paths or glob patterns, `**` allowed.
      tokenizer: a tokenizer.json, or the directory that holds it.
      workers: processes; above 1 the calling script needs the `__main__` guard that Python's
        multiprocessing asks for. One worker tokenises on all cores too, but parses on one.

    Raises:
      FileExistsError: `out` exists. FileNotFoundError: an input or the tokenizer does not.
      ValueError: a bad record (by file and line), template or option; no document to train on.
    """
    out, tokenizer = Path(out), Path(tokenizer)
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new directory")
    if not 0 <= heldout_fraction < 1:
        raise ValueError(f"{heldout_fraction=}; allowed: 0 <= fraction < 1")
    least = {"seq_len": 2, "seed": 0, "workers": 1, "shard_tokens": 1, "pool_documents": 1}
    for (name, low), value in zip(
        least.items(), (seq_len, seed, workers, shard_tokens, pool_documents), strict=True
    ):
        if value < low:
            raise ValueError(f"{name}={value}; allowed: at least {low}")
    paths = _find_inputs(inputs)
    codec, info = read_tokenizer(tokenizer)
    template_ids(template, codec, info["special_ids"])
    options = {
        "version": VERSION,
        "template": template,
        "seq_len": seq_len,
        "seed": seed,
        "heldout_fraction": heldout_fraction,
        "pool_documents": pool_documents,
        "tokenizer": info,
        "dtype": token_dtype(info["vocab_size"]),
    }
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had the same number
    (partial / "shards").mkdir(parents=True)
    try:
        fields = Fields(text_field, id_field, repeat_field)
        job = Job(tokenizer, template, fields, shard_tokens, partial)
        results = _tokenise(job, _tasks(paths), workers)
        manifest = options | _write_index(partial, results, options) | {"inputs": _names(paths)}
        file = tokenizer_file(tokenizer)
        shutil.copyfile(file, partial / "tokenizer.json")
        if (config := file.with_name("tokenizer_config.json")).is_file():
            shutil.copyfile(config, partial / config.name)
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial)
        raise
    return manifest


def _names(paths: list[Path]) -> list[dict[str, Any]]:
    """The inputs by their names below their common directory: a corpus is no tale of a machine."""
    paths = [path.absolute() for path in paths]
    root = os.path.commonpath([path.parent for path in paths])
    return [{"name": os.path.relpath(path, root), "bytes": path.stat().st_size} for path in paths]


def _write_index(out: Path, results: list[Tokenised], options: dict[str, Any]) -> dict[str, Any]:
    """Writes the documents and the row plans; returns what the manifest says of them."""
    documents = np.concatenate([result.index for result in results])
    documents["heldout"] = documents["text_hash"] / 2.0**64 < options["heldout_fraction"]
    np.save(out / "documents.npy", documents)
    splits = {split: _write_plan(out, documents, split, options) for split in SPLITS}
    if not splits["train"]["rows"]:
        raise ValueError(f"no document to train on: {len(documents)} documents, {splits}")
    edges = 2 ** np.arange(33)
    return {
        "documents": len(documents),
        "tokens": int(documents["length"].sum(dtype=np.int64)),
        "empty": sum(result.empty for result in results),
        "duplicates": len(documents) - len(np.unique(documents["text_hash"])),
        "splits": splits,
        "length_histogram": {
            "edges": edges.tolist(),
            "counts": np.histogram(documents["length"], edges)[0].tolist(),
        },
        "shards": [shard._asdict() for result in results for shard in result.shards],
        "files": {file.name: _sha256(file) for file in sorted(out.glob("*.npy"))},
    }


def _write_plan(
    out: Path, documents: np.ndarray, split: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes a split's row plan; returns its counts. Held-out documents are never repeated."""
    factors = documents["factor"] if split == "train" else np.sign(documents["factor"])
    mine = (documents["heldout"] == (split == "heldout")) & (factors > 0)
    sizes = options["seq_len"], options["seed"], options["pool_documents"]
    plan = plan_rows(documents["length"], np.where(mine, factors, 0), *sizes)
    np.save(out / f"{split}.pieces.npy", plan.pieces)
    np.save(out / f"{split}.row_offsets.npy", plan.row_offsets)
    return {
        "documents": int(mine.sum()),
        "tokens": int(documents["length"][mine].sum(dtype=np.int64)),
        "rows": len(plan.row_offsets) - 1,
        "row_tokens": plan.tokens,
        "efficiency": plan.efficiency,
        "cuts": plan.cuts,
        "copy_distance": plan.copy_distance,
    }


def main() -> None:
    """The command line: every argument of `prepare`, by its name."""
    parser = argparse.ArgumentParser("cpt_jax.data.prepare", description=__doc__)
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--text-field", default="text")
    parser.add_argument("--id-field", default="id")
    parser.add_argument("--repeat-field")
    parser.add_argument("--heldout-fraction", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--template", default=TEMPLATE)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--shard-tokens", type=int, default=SHARD_TOKENS)
    parser.add_argument("--pool-documents", type=int, default=POOL_DOCUMENTS)
    options = vars(parser.parse_args())
    inputs = options.pop("input")
    try:
        manifest = prepare(inputs, **options)
    except (ValueError, OSError) as error:
        parser.exit(1, f"error: {error}\n")
    for split in SPLITS:
        print(split, json.dumps(manifest["splits"][split]))


if __name__ == "__main__":
    main()
