"""Rows to batches of a few fixed shapes, in an order that each seed draws for itself.

A program is compiled for each length that a batch may have, so there are few of them. Which lengths
come after one another is the same for all seeds of a task, so that one program takes a step of
all of them; which rows are in a batch is each seed's own.

Batches are of rows of like length, which is not how rows would fall at random: it is the price
of not computing padding, as with transformers' `group_by_length`.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cpt_jax.finetune.rows import Row
from cpt_jax.seeds import hash_seed

MAX_BUCKETS = 4
WORTHWHILE = 0.05  # share of the tokens that another length has to save, as it is compiled for

Batch = dict[str, np.ndarray]

NOTHING = -1  # pads word_ids, spans and the labels of tokens


def bucket_lengths(lengths: Sequence[int], multiple: int) -> tuple[int, ...]:
    """The lengths, rising, that rows are padded to: each to the smallest that holds it.

    Of all choices of so many lengths that one which pads least; at most `MAX_BUCKETS`, and fewer
    where the next would save less than `WORTHWHILE`.

    Args:
      lengths: of the rows, in tokens.
      multiple: what each of them is a multiple of.
    """
    whole = -(-np.asarray(lengths) // multiple) * multiple
    found, counts = np.unique(whole, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])  # rows shorter than the i-th length
    # cost[i]: tokens of the rows shorter than found[i], in so many buckets; where[-1][i]: the
    # number of lengths that all buckets but the last take
    cost = np.concatenate([[0.0], below[1:] * found])
    where = [np.zeros(len(found) + 1, int)]
    chosen = (int(found[-1]),)
    for _ in range(1, min(MAX_BUCKETS, len(found))):
        # tokens[i, j]: with lengths j .. i - 1 in the last bucket, of length found[i - 1]
        last = np.concatenate([[0], found])[:, None] * (below[:, None] - below[None])
        tokens = np.where(np.tri(len(below), k=-1, dtype=bool), cost[None] + last, np.inf)
        tokens[0, 0] = 0
        where.append(tokens.argmin(axis=1))
        before, cost = cost[-1], tokens.min(axis=1)
        if cost[-1] > before * (1 - WORTHWHILE):
            break
        chosen, end = (), len(found)
        for back in reversed(where):
            chosen, end = (int(found[end - 1]), *chosen), int(back[end])
            if end == 0:
                break
    return chosen


class Shapes:
    """What the arrays of a task's batches are padded to.

    Args:
      rows: of all splits.
      size: rows of a batch.
      multiple: what the lengths of batches are multiples of.
      pad_id: the token that pads.
    """

    def __init__(self, rows: Sequence[Row], size: int, *, multiple: int = 16, pad_id: int = 0):
        self.lengths = bucket_lengths([len(row.input_ids) for row in rows], multiple)
        self.size, self.pad_id = size, pad_id
        # One number for all, as spans are small: it must not multiply the programs.
        self._spans = max((len(row.targets.get("spans", ())) for row in rows), default=0)

    def bucket(self, row: Row) -> int:
        """Which of the lengths holds a row."""
        return int(np.searchsorted(self.lengths, len(row.input_ids)))

    def collate(self, rows: Sequence[Row], length: int) -> Batch:
        """A batch of that length; filled, where rows are few, with the first one at weight 0.

        Filled with a row and not with padding: what is computed of a row without tokens may be
        NaN, which a weight of 0 does not make 0.
        """
        filled = [*rows, *[rows[0]] * (self.size - len(rows))]
        arrays = [
            {"input_ids": row.input_ids, "segment_ids": np.ones_like(row.input_ids), **row.targets}
            for row in filled
        ]
        fills = {"input_ids": self.pad_id, "segment_ids": 0}
        batch = {
            name: np.stack(
                [self._padded(name, np.asarray(array[name]), length, fills) for array in arrays]
            )
            for name in arrays[0]
        }
        weight = np.zeros(self.size, np.float32)
        weight[: len(rows)] = 1
        return {**batch, "weight": weight}

    def _padded(
        self, name: str, array: np.ndarray, length: int, fills: Mapping[str, int]
    ) -> np.ndarray:
        """One row's part of a batch's array."""
        # "labels" are of tokens where they are numbers of tags, and of classes where they are 0 / 1
        of_tokens = name in (*fills, "word_ids") or (name == "labels" and array.dtype.kind == "i")
        size = length if of_tokens else self._spans if name == "spans" else None
        if size is None:
            return array
        pad = ((0, size - len(array)), *((0, 0),) * (array.ndim - 1))
        return np.pad(array, pad, constant_values=fills.get(name, NOTHING))


class TrainingOrder:
    """Which rows are in the batch of a step, for each seed.

    Each epoch has every row once, in as few batches as there can be. What is left of a bucket's
    rows when its batches are full goes into the next longer one; what is left of all is the
    epoch's last batch.

    Args:
      task: its name. The sequence of lengths is drawn from it, and so the same for all seeds.
      rows: of the training split.
      shapes: of their batches.
    """

    def __init__(self, task: str, rows: Sequence[Row], shapes: Shapes):
        self._task, self._rows, self._shapes, self._size = task, rows, shapes, shapes.size
        buckets = np.array([shapes.bucket(row) for row in rows])
        self._members = [np.flatnonzero(buckets == b) for b in range(buckets.max() + 1)]
        self._counts, left = [], 0
        for members in self._members:
            full, left = divmod(left + len(members), self._size)
            self._counts.append(full)
        self._short = left > 0
        self.steps_per_epoch = sum(self._counts) + self._short
        self._epoch = functools.lru_cache(maxsize=64)(self._draw)  # the last of each seed

    def length(self, step: int) -> int:
        """The length of the batches of a step, counted from 0."""
        bucket, _ = self._place(step)
        return self._shapes.lengths[bucket]

    def rows(self, seed: int, step: int) -> np.ndarray:
        """The rows in a seed's batch of a step, by their place in the split."""
        bucket, number = self._place(step)
        return self._epoch(seed, step // self.steps_per_epoch)[bucket][number]

    def batch(self, seeds: Sequence[int], step: int) -> Batch:
        """The batches of a step, stacked: arrays [S, B, ...]."""
        length = self.length(step)
        batches = [
            self._shapes.collate([self._rows[i] for i in self.rows(seed, step)], length)
            for seed in seeds
        ]
        return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}

    def _place(self, step: int) -> tuple[int, int]:
        """Which bucket the step's batch is of, and which of its batches."""
        epoch, index = divmod(step, self.steps_per_epoch)
        rng = np.random.default_rng(hash_seed(self._task, epoch, "lengths"))
        sequence = rng.permutation(np.repeat(np.arange(len(self._counts)), self._counts))
        if self._short:
            sequence = np.append(sequence, len(self._counts) - 1)
        return int(sequence[index]), int((sequence[:index] == sequence[index]).sum())

    def _draw(self, seed: int, epoch: int) -> list[list[np.ndarray]]:
        """The rows of each batch of each bucket."""
        rng = np.random.default_rng(hash_seed(seed, self._task, epoch, "rows"))
        epoch_batches, left = [], np.zeros(0, int)
        for members, full in zip(self._members, self._counts, strict=True):
            queue = rng.permutation(np.concatenate([left, members]))
            cut = full * self._size
            epoch_batches.append(list(queue[:cut].reshape(full, self._size)))
            left = queue[cut:]
        if self._short:
            epoch_batches[-1].append(left)
        return epoch_batches


def in_order(rows: Sequence[Row], shapes: Shapes) -> Iterator[tuple[list[int], Batch]]:
    """Batches to evaluate on: rows of a bucket in their order, bucket after bucket.

    Yields:
      The rows' places in ``rows``, fewer than the batch has where it is filled; and the batch.
    """
    buckets = [shapes.bucket(row) for row in rows]
    for bucket, length in enumerate(shapes.lengths):
        members = [i for i, own in enumerate(buckets) if own == bucket]
        for first in range(0, len(members), shapes.size):
            places = members[first : first + shapes.size]
            yield places, shapes.collate([rows[i] for i in places], length)
