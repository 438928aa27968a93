"""Packs documents into full rows: shuffled pools, best fit, one cut to close each row.

A corpus-wide sort by length would pack tightest, but it puts like beside like, makes stragglers of
the long rows and lands the copies of an upsampled document side by side. Here documents enter a
bounded pool in shuffled order, and upsampling runs in passes that are shuffled and packed alone, so
no row can hold a document twice.
"""

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

POOL_DOCUMENTS = 16384


class Plan(NamedTuple):
    """The R rows of one epoch as P pieces: row r is pieces[row_offsets[r] : row_offsets[r + 1]]."""

    pieces: np.ndarray  # [P, 3] uint32: document, its first token in the row, number of tokens
    row_offsets: np.ndarray  # [R + 1] int64
    tokens: int  # of all rows, every copy counted
    efficiency: float  # tokens / (R * seq_len); only the last row of each pass takes from 1
    cuts: int  # made inside documents
    copy_distance: int | None  # smallest distance in rows of the plan between copies of a document


def plan_rows(
    lengths: np.ndarray,
    factors: np.ndarray,
    seq_len: int,
    seed: int,
    pool_documents: int = POOL_DOCUMENTS,
) -> Plan:
    """Plans the rows of one epoch.

    A document gets floor(factor) copies, and one more with the probability of the fraction, drawn
    per document from the seed: the factor is exact in expectation. Pass k holds one copy of every
    document with more than k copies. Every row is full except the last of each pass.

    Args:
      lengths: [N] tokens of each document, all positive.
      factors: [N] copies of each document, >= 0.
      seq_len: tokens of a row.
      seed: of the shuffles and of the fractional copies, >= 0.
      pool_documents: how many documents a row may choose from.

    Raises:
      ValueError: an empty document, a negative or non-finite factor, a size below 1.
    """
    lengths, factors = np.asarray(lengths, np.int64), np.asarray(factors, np.float64)
    if seq_len < 1 or pool_documents < 1:
        raise ValueError(f"{seq_len=} and {pool_documents=}; allowed: >= 1")
    if lengths.min(initial=1) < 1:
        raise ValueError(f"document {lengths.argmin()} has {lengths.min()} tokens; allowed: >= 1")
    if not np.all(np.isfinite(factors) & (factors >= 0)):
        raise ValueError("a repeat factor is negative or not finite; allowed: finite and >= 0")

    # default_rng hashes the list: neighbouring seeds and passes share nothing.
    floor = np.floor(factors)
    draws = np.random.default_rng([seed, 0]).random(len(factors))
    copies = floor.astype(np.int64) + (draws < factors - floor)
    pieces, row_ends, pass_ends = array("I"), array("q", [0]), []
    for k in range(copies.max(initial=0)):
        order = np.flatnonzero(copies > k)
        np.random.default_rng([seed, 1, k]).shuffle(order)
        _pack_pass(order, lengths[order], seq_len, pool_documents, pieces, row_ends)
        pass_ends.append(len(row_ends) - 1)

    piece_rows, row_offsets = np.array(pieces, np.uint32).reshape(-1, 3), np.array(row_ends)
    tokens = int(lengths @ copies)
    return Plan(
        pieces=piece_rows,
        row_offsets=row_offsets,
        tokens=tokens,
        efficiency=tokens / max(1, (len(row_offsets) - 1) * seq_len),
        cuts=len(piece_rows) - int(copies.sum()),
        copy_distance=_copy_distance(piece_rows[:, 0], row_offsets, pass_ends),
    )


class _ByLength:
    """Documents by length: a bit per length in one integer, so a best fit costs a mask."""

    def __init__(self):
        self.documents: dict[int, dict[int, None]] = defaultdict(dict)
        self.lengths = 0

    def add(self, document: int, length: int) -> None:
        self.documents[length][document] = None
        self.lengths |= 1 << length

    def remove(self, document: int, length: int) -> None:
        del self.documents[length][document]
        if not self.documents[length]:
            self.lengths &= ~(1 << length)

    def longest(self, limit: int) -> int | None:
        """A document of the greatest length <= limit, or None."""
        length = (self.lengths & ((2 << limit) - 1)).bit_length() - 1
        return next(reversed(self.documents[length])) if length >= 0 else None


class _Pool:
    """What the next rows may take: whole documents, and the tails of those that were cut."""

    def __init__(self, seq_len: int, size: int, stream: Iterator[tuple[int, int]]):
        self.seq_len, self.size, self.stream = seq_len, size, stream
        self.items: OrderedDict[int, tuple[int, int]] = OrderedDict()  # document: start, length
        self.fitting, self.tails = _ByLength(), _ByLength()

    def refill(self) -> bool:
        """Takes whole documents from the stream; false when it and the pool are empty."""
        for document, length in islice(self.stream, max(0, self.size - len(self.items))):
            self.add(document, 0, length)
        return bool(self.items)

    def add(self, document: int, start: int, length: int) -> None:
        self.items[document] = (start, length)
        if length <= self.seq_len:
            self.fitting.add(document, length)
            if start:
                self.tails.add(document, length)
        if start and length >= self.seq_len:
            # The rest of a long document goes on in the next rows, in full pieces.
            self.items.move_to_end(document, last=False)

    def take(self, gap: int) -> tuple[int, int, int]:
        """Removes and returns (document, start, length) of the item that goes into a gap.

        The next in order if it fits or opens a row; else the longest that fits; else one to cut:
        the longest tail, so that whole documents keep their [CLS] and their beginning, or, without
        tails, the next in order.
        """
        document = next(iter(self.items))
        if self.items[document][1] > gap and gap < self.seq_len:
            choices = self.fitting.longest(gap), self.tails.longest(self.seq_len), document
            document = next(choice for choice in choices if choice is not None)
        start, length = self.items.pop(document)
        if length <= self.seq_len:
            self.fitting.remove(document, length)
            if start:
                self.tails.remove(document, length)
        return document, start, length


def _pack_pass(
    order: np.ndarray,
    lengths: np.ndarray,
    seq_len: int,
    pool_documents: int,
    pieces: array,
    row_ends: array,
) -> None:
    """Appends the rows that hold each document of `order` once."""
    stream = zip(order.tolist(), lengths.tolist(), strict=True)
    pool = _Pool(seq_len, pool_documents, stream)
    gap = seq_len
    while pool.refill():
        document, start, length = pool.take(gap)
        size = min(length, gap)
        pieces.extend((document, start, size))
        if size < length:
            pool.add(document, start + size, length - size)
        gap -= size
        if not gap:
            row_ends.append(len(pieces) // 3)
            gap = seq_len
    if gap < seq_len:
        row_ends.append(len(pieces) // 3)


def _copy_distance(
    documents: np.ndarray, row_offsets: np.ndarray, pass_ends: list[int]
) -> int | None:
    """The smallest distance in rows between pieces of one document that lie in two passes."""
    rows = np.repeat(np.arange(len(row_offsets) - 1), np.diff(row_offsets))
    passes = np.searchsorted(pass_ends, rows, side="right")
    order = np.argsort(documents, kind="stable")  # pieces of a document stay in row order
    copies = (np.diff(documents[order]) == 0) & (np.diff(passes[order]) > 0)
    distances = np.diff(rows[order])[copies]
    return int(distances.min()) if len(distances) else None
