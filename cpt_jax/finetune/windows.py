"""Which tokens of a long text the model reads: windows, and what is left of one that is cut."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Window(NamedTuple):
    """The tokens from `start` to before `end` of a document."""

    start: int
    end: int


def windows_of(
    firsts: Int[np.ndarray, " m"], tokens: int, budget: int, stride: int
) -> list[Window]:
    """Windows that hold every word's first token, each at most `budget` tokens long.

    They begin and end where words do, and a window shares at most `stride` tokens with the one
    before it: as many whole words as fit there, none if that would not take it any further. Of a
    word longer than a window, a window of its own holds what fits, and the rest is in none.

    Args:
      firsts: the first token of each word, ascending.
      tokens: how many there are.
      budget: tokens of a window, without the special ones.
      stride: less than `budget`.
    """
    # Where a window may begin or end; tokens before the first word go with it.
    borders = np.concatenate([[0], firsts[firsts > 0], [tokens]]).astype(np.int64)

    def end_from(start: int) -> int:
        end = start + budget
        if end >= tokens:
            return tokens
        border = int(borders[np.searchsorted(borders, end, "right") - 1])
        return border if border > start else end

    windows = [Window(0, end_from(0))]
    while windows[-1].end < tokens:
        last = windows[-1]
        beyond = int(borders[np.searchsorted(borders, last.end)])
        start = int(borders[np.searchsorted(borders, max(last.end - stride, last.start + 1))])
        if end_from(start) <= last.end:
            start = beyond
        if start >= tokens:
            break
        windows.append(Window(start, end_from(start)))
    return windows


def owners_of(
    starts: Int[np.ndarray, " m"], ends: Int[np.ndarray, " m"], windows: list[Window]
) -> Int[np.ndarray, " m"]:
    """From which window stretches of a document are predicted, each within one window at least.

    It is the one in which the stretch is further from the nearer edge, of equals the earlier one.
    (Not to count the ends of the document as edges would come to the same: a window that begins or
    ends there has more on that side than any other.)

    Args:
      starts, ends: the first token of each stretch, and the one after its last.
    """
    begin, end = np.array(windows, np.int64).reshape(-1, 2).T[:, :, None]
    # Below 0 where the stretch is not within the window.
    return np.minimum(starts - begin, end - ends).argmax(axis=0)


def around(markers: tuple[int, int], tokens: int, budget: int) -> Int[np.ndarray, " n"]:
    """Which tokens of a text with two markers are kept, at most `budget` of them, in order.

    Up to `budget` all. Of a longer text a half of the budget around each marker, which lies in
    the middle of its half; halves that meet are one stretch, shifted where the text ends.

    Args:
      markers: their tokens.
    """
    if tokens <= budget:
        return np.arange(tokens)
    first, second = sorted(markers)
    half = budget // 2
    if second - first < half:
        start = min(max((first + second) // 2 - half, 0), tokens - budget)
        return np.arange(start, start + budget)
    later = min(max(second - half // 2, half), tokens - half)
    earlier = min(max(first - half // 2, 0), later - half)
    return np.concatenate([np.arange(earlier, earlier + half), np.arange(later, later + half)])


def longest_first(text: int, pair: int, budget: int) -> tuple[int, int]:
    """How many tokens of a text and its pair are kept: the longer is cut, down to the other."""
    if text + pair <= budget:
        return text, pair
    short = min(text, pair, budget // 2)
    return (short, budget - short) if text <= pair else (budget - short, short)
