"""Inputs to token shards, in processes that work side by side and write the same bytes as one."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from cpt_jax.data.inputs import Document, Fields, Input, read_documents
from cpt_jax.data.sources import DOCUMENT, sha256
from cpt_jax.data.tokenizer import read_tokenizer, template_ids, token_dtype

# Small consecutive inputs share a task, and so a shard, of TASK_BYTES; of more where there would be
# over MAX_TASKS of them, since a source keeps a file open per shard.
TASK_BYTES, MAX_TASKS = 64 << 20, 256
BATCH_CHARACTERS = 4 << 20  # tokenised at once, in parallel


class Shard(NamedTuple):
    """A shard as the manifest lists it."""

    file: str
    sha256: str
    bytes: int
    records: int
    tokens: int


class Tokenised(NamedTuple):
    """What a task gives."""

    index: np.ndarray  # DOCUMENT records
    shards: list[Shard]
    empty: int  # documents left out
    documents: list[int]  # of each input, the empty ones among them


class Job(NamedTuple):
    """What every worker needs to know."""

    tokenizer: Path  # tokenizer.json
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
        try:
            if self.writer is None:
                self.file = f"shards/{self.task:05d}-{len(self.done):03d}.array_record"
                self.writer = ArrayRecordWriter(str(self.job.out / self.file), "group_size:1")
            self.writer.write(tokens.tobytes())
        except RuntimeError as error:  # what the library makes of a full disk
            raise OSError(str(error)) from error
        self.records, self.tokens = self.records + 1, self.tokens + len(tokens)
        if self.tokens >= self.job.shard_tokens:
            self.close()

    def close(self) -> None:
        if self.writer is None:
            return
        try:
            self.writer.close()
        except RuntimeError as error:
            raise OSError(str(error)) from error
        path = self.job.out / self.file
        size = path.stat().st_size
        self.done.append(Shard(self.file, sha256(path), size, self.records, self.tokens))
        self.writer, self.records, self.tokens = None, 0, 0


class _Worker:
    """Tokenises tasks; `counters` (documents, tokens, input bytes) is shared by all workers."""

    def __init__(self, job: Job, counters: Any):
        self.job, self.counters = job, counters
        self.tokenizer, info = read_tokenizer(job.tokenizer)
        self.before, self.after = template_ids(job.template, self.tokenizer, info["special_ids"])
        self.dtype = token_dtype(info["vocab_size"])

    def run(self, task: int, inputs: list[Input]) -> Tokenised:
        shards, index, empty, counts = _Shards(self.job, task), [], 0, []
        for item in inputs:
            position = 0
            counts.append(0)
            for batch in _batches(read_documents(item, self.job.fields)):
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
                counts[-1] += len(batch)
        shards.close()
        return Tokenised(np.array(index, DOCUMENT), shards.done, empty, counts)

    def _count(self, *amounts: int) -> None:
        with self.counters.get_lock():
            for i, amount in enumerate(amounts):
                self.counters[i] += amount


_worker: _Worker  # one per process, made by the pool's initializer


def _start_worker(job: Job, counters: Any, threads: int) -> None:
    global _worker
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))  # the tokenizer's threads
    _worker = _Worker(job, counters)


def _run_task(task: int, inputs: list[Input]) -> Tokenised:
    return _worker.run(task, inputs)


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


def _tasks(inputs: list[Input]) -> list[list[Input]]:
    """Consecutive inputs, grouped by size: the same for any number of workers."""
    known = [item.bytes or 0 for item in inputs]
    limit = max(TASK_BYTES, sum(known) // MAX_TASKS)
    tasks, filled = [[]], 0
    for item in inputs:
        size = limit if item.bytes is None else item.bytes  # a data set is a task of its own
        if tasks[-1] and filled + size > limit:
            tasks.append([])
            filled = 0
        tasks[-1].append(item)
        filled += size
    return tasks


def tokenise(job: Job, inputs: list[Input], workers: int) -> list[Tokenised]:
    """Writes the shards of all inputs, with progress on stderr; results in the inputs' order.

    Raises:
      ValueError: a bad record. OSError: an input that cannot be read or a shard not written.
    """
    tasks = _tasks(inputs)
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    counters = context.Array("q", 3)
    sizes = [item.bytes for item in inputs]
    total = 0 if None in sizes else sum(size or 0 for size in sizes)
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
            results = [pool.submit(_run_task, *task) for task in enumerate(tasks)]
            try:
                return [result.result() for result in results]
            except BaseException:
                pool.shutdown(cancel_futures=True)  # the first fault ends it, not the last task
                raise
    except BrokenProcessPool as error:
        raise OSError(
            f"a worker was ended from outside (out of memory?): fewer than --workers {workers}"
            " need less"
        ) from error
    finally:
        done.set()
        _report(counters, total, time.monotonic() - started)


def _report(counters: Any, total: int, seconds: float) -> None:
    documents, tokens, read = counters[:]
    left = f", ETA {seconds * (total - read) / read / 60:.1f} min" if 0 < read < total else ""
    share = f", {100 * read / total:.0f} % of the input" if total else ""
    print(
        f"{documents:,} documents, {tokens:,} tokens, {tokens / seconds:,.0f} tokens/s"
        f"{share}{left}",
        end="\r" if sys.stderr.isatty() and left else "\n",
        file=sys.stderr,
    )
