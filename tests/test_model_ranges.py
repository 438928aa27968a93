"""The interval mask, against masks written out by hand and against the definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from cpt_jax.model.ranges import key_ranges, positions
from tests.model_oracle import segments, visible


def as_mask(segment_ids, mask_mode, window) -> np.ndarray:
    start, end = (np.asarray(x) for x in key_ranges(jnp.asarray(segment_ids), mask_mode, window))
    keys = np.arange(segment_ids.shape[1])
    return (keys >= start[..., None]) & (keys < end[..., None])


# Two documents, of three and two tokens, and one token of padding.
ROW = np.array([[1, 1, 1, 2, 2, 0]])
BY_HAND = {
    ("bidirectional", None): "111000 111000 111000 000110 000110 000000",
    ("causal", None): "100000 110000 111000 000100 000110 000000",
    ("bidirectional", 1): "110000 111000 011000 000110 000110 000000",
    ("causal", 1): "100000 110000 011000 000100 000110 000000",
    ("bidirectional", 0): "100000 010000 001000 000100 000010 000000",
}


@pytest.mark.parametrize(("mask_mode", "window"), BY_HAND)
def test_masks_written_out_by_hand(mask_mode, window):
    rows = BY_HAND[mask_mode, window].split()
    expected = np.array([[int(bit) for bit in row] for row in rows], bool)
    np.testing.assert_array_equal(as_mask(ROW, mask_mode, window)[0], expected)


@pytest.mark.parametrize("mask_mode", ["bidirectional", "causal"])
@pytest.mark.parametrize("window", [None, 0, 4, 64, 1000])
def test_intervals_are_the_mask_by_definition(mask_mode, window):
    packed = segments([300], [120, 1, 100], [7, 203], [], length=300)
    expected = visible(packed, mask_mode, window)
    np.testing.assert_array_equal(as_mask(packed, mask_mode, window), expected)


def test_padding_has_an_empty_interval_at_itself():
    start, end = key_ranges(jnp.asarray(ROW), "bidirectional", 1)
    assert (start[0, 5], end[0, 5]) == (5, 5)
    assert start.dtype == end.dtype == jnp.int32


def test_positions_restart_with_each_document():
    np.testing.assert_array_equal(positions(jnp.asarray(ROW))[0, :5], [0, 1, 2, 0, 1])
    packed = segments([3000, 100], length=3100)
    np.testing.assert_array_equal(positions(jnp.asarray(packed))[0, 3000:], np.arange(100))


def test_unknown_mode_and_negative_window_are_refused():
    with pytest.raises(
        ValueError, match=r"mask_mode: 'prefix' is not one of bidirectional, causal"
    ):
        key_ranges(jnp.asarray(ROW), "prefix", None)
    with pytest.raises(ValueError, match=r"window: -1"):
        key_ranges(jnp.asarray(ROW), "causal", -1)
