"""Windows of long documents, and what is kept of texts that are cut."""

import itertools

import numpy as np
import pytest

from cpt_jax.finetune.windows import around, longest_first, owners_of, windows_of

WINDOWS = list(itertools.product(range(8), (0, 1, 7, 15)))


@pytest.mark.parametrize(("seed", "stride"), WINDOWS)
def test_windows_hold_every_word_once_as_their_own(seed, stride):
    rng = np.random.default_rng(seed)
    budget = 16
    # Words of 1 to 5 tokens, some longer than a window; tokens that belong to no word before them.
    sizes = np.where(rng.random(60) < 0.05, rng.integers(17, 60, 60), rng.integers(1, 6, 60))
    firsts = np.cumsum(sizes) - sizes + rng.integers(0, 3)
    tokens = int(firsts[-1] + sizes[-1])
    windows = windows_of(firsts, tokens, budget, stride)
    ends = np.append(firsts[1:], tokens)
    fits = ends - firsts <= budget

    assert windows[0].start == 0
    for before, after in itertools.pairwise(windows):
        assert before.start < after.start
        assert before.end < after.end
        assert before.end - after.start <= stride
    for start, end in windows:
        assert 0 < end - start <= budget
        assert start == 0 or start in firsts
    for first, end in zip(firsts[fits], ends[fits], strict=True):
        assert any(a <= first and end <= b for a, b in windows), "a word in no window"

    owners = owners_of(firsts, firsts + 1, windows)
    for word, first in enumerate(firsts):
        best = {}
        for place, (start, end) in enumerate(windows):
            if start <= first < end:
                left = first - start if start > 0 else tokens
                right = end - 1 - first if end < tokens else tokens
                best[place] = min(left, right)
        assert owners[word] == max(best, key=lambda place: (best[place], -place))


def test_windows_written_out_by_hand():
    firsts = np.array([0, 3, 4, 8, 10, 11])
    assert windows_of(firsts, 12, 12, 4) == [(0, 12)]
    # Words of 3, 1, 4, 2, 1 and 1 tokens: the second window goes back by whole words.
    assert windows_of(firsts, 12, 8, 4) == [(0, 8), (4, 12)]
    assert windows_of(firsts, 12, 8, 3) == [(0, 8), (8, 12)]
    assert windows_of(firsts, 12, 5, 2) == [(0, 4), (3, 8), (8, 12)]
    assert windows_of(np.array([0, 1, 9]), 10, 4, 2) == [(0, 1), (1, 5), (9, 10)]
    assert windows_of(np.array([], int), 0, 4, 2) == [(0, 0)]


def test_the_longer_of_two_texts_is_cut_first():
    for text, pair, budget in itertools.product(range(7), range(7), range(2, 12)):
        expected = [text, pair]
        while sum(expected) > budget:
            expected[expected[0] <= expected[1]] -= 1
        kept = longest_first(text, pair, budget)
        assert sorted(kept) == sorted(expected), (text, pair, budget)
        assert kept[0] <= text
        assert kept[1] <= pair


def test_a_relation_keeps_its_markers():
    """Wherever they are in a text longer than a row, whichever comes first."""
    for tokens, budget in [(30, 10), (30, 11), (13, 12), (9, 12)]:
        for markers in itertools.product(range(tokens), range(tokens)):
            kept = around(markers, tokens, budget)
            assert set(markers) <= set(kept.tolist())
            assert (np.diff(kept) > 0).all()
            assert 0 <= kept[0] <= kept[-1] < tokens
            assert len(kept) == min(tokens, budget) or (len(kept) == budget - 1 and budget % 2)
            gaps = (np.diff(kept) > 1).sum()
            assert gaps <= (abs(markers[0] - markers[1]) >= budget // 2)
