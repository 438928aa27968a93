"""Mixtures of sources and batches of rows, as pure functions of (seed, weights, cursors, index)."""

import contextlib
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, cast

import grain
import numpy as np

from cpt_jax.data.sources import Source
from cpt_jax.seeds import hash_seed

# Row shares are integers over this scale, so that interleaving and cursors are exact at any index.
SHARE_SCALE = 1 << 40
STALL_SECONDS = 300.0  # without a batch, after which a run stops rather than wait for ever


class Interleaving(grain.transforms.DatasetSelectionMap):
    """Which source gives element k of an endless mixture, and how many it gave before.

    The same interleaving as `grain.MapDataset.mix`, with shares exact to 2^-40 where mix truncates
    them to 1 % of the smallest weight, and with the counts in closed form.
    """

    def __init__(self, shares: list[int]):
        self.shares = shares

    def __len__(self) -> int:
        return 1 << 62

    def counts(self, n: int) -> list[int]:
        """Elements that each source gives to the first n."""
        counts, remaining = [], sum(self.shares)
        for share in self.shares:
            rest = n * (remaining - share) // remaining
            counts.append(n - rest)
            n, remaining = rest, remaining - share
        return counts

    def __getitem__(self, index: int) -> tuple[int, int]:
        before = self.counts(index)
        after = self.counts(index + 1)
        source = next(i for i in range(len(before)) if after[i] > before[i])
        return source, before[source]


class Mixture:
    """An endless stream of rows from several sources: `mixture[i]`, i counted from the cursors.

    Each source is shuffled anew in every epoch and repeated for ever, so nothing ends with the
    smallest source. A row is the source's row with "source": the position of its name in `names`.

    Args:
      sources: by the name the run gives them; the shuffle is keyed by it. They go together
        (`sources.shared_tokenizer`).
      weights: shares of TOKENS, in any scale; a source left out or of weight 0 gives nothing.
      seed: the run's.
      cursors: rows already taken from each source in the run, 0 for a source left out.

    Raises:
      ValueError: an unknown source name, a negative weight or cursor, weights that sum to 0.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        weights: Mapping[str, float],
        seed: int,
        cursors: Mapping[str, int] | None = None,
    ):
        # Sorted: the stream must not depend on the order in which a config lists its sources.
        self.names = tuple(sorted(sources))
        self.sources = dict(sources)
        self.cursors = {name: (cursors or {}).get(name, 0) for name in self.names}
        _check(self.sources, weights, cursors or {})
        self._active = [name for name in self.names if weights.get(name, 0) > 0]
        # Rows of a source with padding hold fewer tokens: more of them make up its share.
        rows = [weights[name] / sources[name].tokens_per_row for name in self._active]
        shares = [max(1, round(SHARE_SCALE * row / sum(rows))) for row in rows]
        self._interleaving = Interleaving(shares)
        self._rows = grain.MapDataset.select_from_datasets(
            [self._rows_of(name, seed) for name in self._active], self._interleaving
        )

    def _rows_of(self, name: str, seed: int) -> grain.MapDataset[dict[str, Any]]:
        position = self.names.index(name)
        return (
            grain.MapDataset.source(self.sources[name])
            .shuffle(seed=hash_seed(seed, name, "rows"))
            .repeat()[self.cursors[name] :]
            .map(lambda row: row | {"source": position})
        )

    def __getitem__(self, index: int) -> dict[str, Any]:
        return cast(dict[str, Any], self._rows[index])  # None is for filters, which we have none of

    def reading(self) -> list[str]:
        """The files and records that readers now wait for."""
        return [place for source in self.sources.values() for place in source.reading()]

    def cursors_after(self, n_rows: int) -> dict[str, int]:
        """Rows taken from each source in the whole run once n_rows of this mixture are."""
        counts = dict(zip(self._active, self._interleaving.counts(n_rows), strict=True))
        return {name: self.cursors[name] + counts.get(name, 0) for name in self.names}

    def epochs_after(self, n_rows: int) -> dict[str, float]:
        """Passes over each source's rows in the whole run once n_rows of this mixture are taken."""
        cursors = self.cursors_after(n_rows)
        return {name: cursors[name] / len(self.sources[name]) for name in self.names}


def _check(
    sources: Mapping[str, Source], weights: Mapping[str, float], cursors: Mapping[str, int]
) -> None:
    if unknown := sorted((set(weights) | set(cursors)) - set(sources)):
        raise ValueError(f"weights or cursors for {unknown}; sources are {sorted(sources)}")
    for what, values in {"weights": weights, "cursors": cursors}.items():
        if bad := {name: value for name, value in values.items() if not 0 <= value < math.inf}:
            raise ValueError(f"{what} {bad}; allowed: finite and >= 0")
    if not sum(weights.values()):
        raise ValueError(f"weights {dict(weights)} sum to 0")


class _HostBatches:
    """Random access to one host's slices of the batches."""

    def __init__(
        self, mixture: Mixture, batch_size: int, first_ordinal: int, steps: range, rows: range
    ):
        self.mixture, self.batch_size, self.first_ordinal = mixture, batch_size, first_ordinal
        self.steps, self.rows = steps, rows

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start = self.steps[index] * self.batch_size
        rows = [self.mixture[start + j] for j in self.rows]
        ordinals = [(self.first_ordinal + start + j) % 2**32 for j in self.rows]
        return {
            "input_ids": np.stack([row["input_ids"] for row in rows]),
            "segment_ids": np.stack([row["segment_ids"] for row in rows]),
            "ordinals": np.array(ordinals, np.uint32),
            "sources": np.array([row["source"] for row in rows], np.int32),
            "rows": np.array([row["row"] for row in rows], np.int64),
        }


def batches(
    mixture: Mixture,
    *,
    batch_size: int,
    first_ordinal: int,
    start_step: int,
    stop_step: int,
    process_index: int = 0,
    process_count: int = 1,
    num_threads: int = 4,
    prefetch: int = 4,
    stall_seconds: float = STALL_SECONDS,
) -> Generator[dict[str, np.ndarray], None, None]:
    """This host's part of the batches of steps start_step .. stop_step - 1, in order.

    The batch of step s, counted in the phase, is rows s*B .. (s+1)*B - 1 of the mixture; host p of
    P takes the p-th of its P equal parts, so any P that divides B gives the same global batches.

    Args:
      first_ordinal: ordinal of the mixture's row 0 in the run's stream.
      num_threads: readers, one at least; prefetch: batches kept ready.
      stall_seconds: how long a batch may take to come.

    Returns:
      Dicts of "input_ids" and "segment_ids" int32 [B/P, L], "ordinals" uint32 [B/P] (of the rows in
      the run's stream, modulo 2^32: keys of the corruption), "sources" int32 [B/P] (positions in
      mixture.names) and "rows" int64 [B/P].

    Raises:
      ValueError: a batch that the hosts cannot share evenly. When the batch is asked for, OSError:
      an unreadable record, by file and record; TimeoutError (an OSError too): one that does not
      come within stall_seconds, by the files and records that the readers wait for.
    """
    if batch_size < 1 or batch_size % process_count or not 0 <= process_index < process_count:
        raise ValueError(
            f"{batch_size=} rows for host {process_index=} of {process_count=}; allowed: a multiple"
            " of process_count, and an index below it"
        )
    size = batch_size // process_count
    host = range(process_index * size, (process_index + 1) * size)
    steps = range(start_step, stop_step)
    source = _HostBatches(mixture, batch_size, first_ordinal, steps, host)
    return _read_ahead(
        source.__getitem__, len(source), mixture.reading, num_threads, prefetch, stall_seconds
    )


def rows_at(
    source: Source, rows: Sequence[int], stall_seconds: float = STALL_SECONDS
) -> Generator[dict[str, Any], None, None]:
    """Yields these rows of a source, in this order. Raises what `batches` raises, when asked."""
    return _read_ahead(lambda i: source[rows[i]], len(rows), source.reading, 1, 4, stall_seconds)


def _read_ahead(
    element: Callable[[int], dict[str, Any]],
    count: int,
    reading: Callable[[], list[str]],
    num_threads: int,
    prefetch: int,
    stall_seconds: float,
) -> Generator[dict[str, Any], None, None]:
    """Yields elements 0 .. count - 1 in order.

    Its threads are daemons: those of an executor, which Grain uses, would keep a program with a
    stalled read from ending.
    """
    asked: queue.SimpleQueue[tuple[int, Future] | None] = queue.SimpleQueue()

    def read() -> None:
        while task := asked.get():
            index, result = task
            try:
                result.set_result(element(index))
            except BaseException as error:
                result.set_exception(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(max(1, num_threads))]
    for thread in threads:
        thread.start()
    indices, waiting = iter(range(count)), deque[Future]()

    def ask(n: int) -> None:
        for index in islice(indices, n):
            waiting.append(Future())
            asked.put((index, waiting[-1]))

    patience = 5.0  # seconds for what is being read when the caller stops
    try:
        ask(1 + prefetch)
        while waiting:
            result = waiting.popleft()
            try:
                found = result.result(stall_seconds)
            except TimeoutError as error:
                if result.done():
                    raise
                patience = 0.0
                places = "; ".join(reading()) or "no read is under way"
                raise TimeoutError(
                    f"no data for {stall_seconds:g} s: a disk or network that does not answer?"
                    f" Waiting for {places}"
                ) from error
            ask(1)
            yield found
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                asked.get_nowait()
        for _ in threads:
            asked.put(None)
        for thread in threads:
            thread.join(patience)
