"""Targets: next tokens inside documents, masked tokens at fixed rates, keyed by row alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from cpt_jax.training import objectives
from cpt_jax.training.objectives import IGNORE, Vocabulary

# Special ids at both ends and side by side, where an off-by-one would draw them.
SPECIAL = (0, 1, 7, 8, 9, 30, 49)
PAD, CLS, SEP, MASK = 0, 1, 7, 8
VOCABULARY = Vocabulary(size=50, mask_id=MASK, special_ids=SPECIAL)
ORDINARY = np.setdiff1d(np.arange(50), SPECIAL)


def packed_rows(rng, rows: int, length: int):
    """Rows of documents `[CLS] words [SEP]` of random lengths, with a padded tail."""
    ids = np.full((rows, length), PAD, np.int32)
    segments = np.zeros((rows, length), np.int32)
    for row in range(rows):
        start, document = 0, 0
        while start < length - 20:
            stop = min(start + int(rng.integers(3, max(4, length // 3))), length - 5)
            document += 1
            ids[row, start:stop] = rng.choice(ORDINARY, stop - start)
            ids[row, start], ids[row, stop - 1] = CLS, SEP
            segments[row, start:stop] = document
            start = stop
    return ids, segments


# One compilation per shape and options: most tests share their rows' shape, [8 256].
MASKED_TOKEN = jax.jit(
    objectives.masked_token,
    static_argnames=("rate", "vocabulary"),
)


def mask(ids, segments, ordinals, *, key=0, **options):
    options = {"rate": 0.3, "vocabulary": VOCABULARY, **options}
    arrays = (jnp.asarray(ids), jnp.asarray(segments), jnp.asarray(ordinals, jnp.uint32))
    return jax.tree.map(np.asarray, MASKED_TOKEN(*arrays, jax.random.key(key), **options))


# Next token


def test_next_token_by_hand():
    # Two documents and padding; then one document that fills its row; pad == end-of-sequence.
    ids = jnp.array([[5, 6, 2, 5, 2, 2, 2], [5, 6, 7, 8, 9, 3, 2]], jnp.int32)
    segments = jnp.array([[1, 1, 1, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1]], jnp.int32)
    targets = objectives.next_token(ids, segments)
    x = IGNORE
    expected = [[6, 2, x, 2, x, x, x], [6, 7, 8, 9, 3, 2, x]]
    assert targets.labels.tolist() == expected
    assert targets.input_ids.tolist() == ids.tolist()
    assert targets.positions is None
    assert targets.overflow == 0


def test_next_token_has_one_target_fewer_than_each_document_has_tokens():
    ids, segments = packed_rows(np.random.default_rng(0), 16, 128)
    labels = np.asarray(objectives.next_token(jnp.asarray(ids), jnp.asarray(segments)).labels)
    lengths = [(segments == d).sum(1) for d in range(1, segments.max() + 1)]
    assert (labels != IGNORE).sum() == sum(n - 1 for row in lengths for n in row if n)
    # Every document's end-of-sequence token is predicted, and no [CLS] is: it only starts one.
    assert (labels == SEP).sum() == (ids == SEP).sum()
    assert (labels == CLS).sum() == 0


# Masked token


def test_a_million_tokens_are_corrupted_at_the_stated_rates():
    rng = np.random.default_rng(1)
    ids, segments = packed_rows(rng, 130, 8192)
    out = mask(ids, segments, np.arange(130))
    assert ids.size > 1e6
    eligible = (segments != 0) & ~np.isin(ids, SPECIAL)
    target = np.zeros_like(eligible)
    rows, slots = np.nonzero(out.labels != IGNORE)
    target[rows, out.positions[rows, slots]] = True

    assert out.overflow == 0
    assert len(rows) == target.sum(), "a position is predicted twice"
    assert not (target & ~eligible).any(), "padding or a special token is predicted"
    np.testing.assert_array_equal(out.input_ids[~target], ids[~target])
    np.testing.assert_array_equal(out.labels[rows, slots], ids[target])
    np.testing.assert_allclose(target.sum() / eligible.sum(), 0.3, atol=0.003)

    new, old = out.input_ids[target], ids[target]
    drawn = new[(new != MASK) & (new != old)]
    assert not np.isin(drawn, SPECIAL).any(), "a special token is drawn"
    # One draw in 43 gives the token that was there and looks like "unchanged".
    same = 1 / len(ORDINARY)
    np.testing.assert_allclose((new == MASK).mean(), 0.8, atol=0.003)
    np.testing.assert_allclose(len(drawn) / len(new), 0.1 * (1 - same), atol=0.003)
    counts = np.bincount(drawn, minlength=50)[ORDINARY]
    spread = np.abs(counts - counts.mean()) / np.sqrt(counts.mean())
    assert spread.max() < 5, f"not uniform over the ordinary tokens: {counts}"


def test_positions_are_in_order_and_unused_slots_point_at_the_start():
    ids, segments = packed_rows(np.random.default_rng(3), 8, 256)
    out = mask(ids, segments, range(8))
    assert out.positions.shape == out.labels.shape == (8, objectives.capacity(256, 0.3))
    for positions, labels in zip(out.positions, out.labels, strict=True):
        count = (labels != IGNORE).sum()
        assert (labels[:count] != IGNORE).all()
        assert (np.diff(positions[:count]) > 0).all()
        assert (positions[count:] == 0).all()


def test_masks_depend_on_the_row_and_not_on_its_place():
    ids, segments = packed_rows(np.random.default_rng(4), 8, 256)
    ordinals = np.arange(1000, 1008)
    whole = mask(ids, segments, ordinals)

    order = np.random.default_rng(5).permutation(8)
    shuffled = mask(ids[order], segments[order], ordinals[order])
    piece = mask(ids[3:5], segments[3:5], ordinals[3:5])  # a smaller batch, a micro-batch
    mesh = jax.make_mesh((8,), ("replica",), axis_types=(AxisType.Auto,))
    placed = NamedSharding(mesh, PartitionSpec("replica"))
    rows = jax.device_put((ids, segments, ordinals.astype(np.uint32)), placed)
    spread = MASKED_TOKEN(*rows, jax.random.key(0), rate=0.3, vocabulary=VOCABULARY)
    for field in ("input_ids", "positions", "labels"):
        expected = getattr(whole, field)
        np.testing.assert_array_equal(getattr(shuffled, field), expected[order])
        np.testing.assert_array_equal(getattr(piece, field), expected[3:5])
        np.testing.assert_array_equal(getattr(spread, field), expected)


def test_a_row_met_again_gets_other_masks():
    ids, segments = packed_rows(np.random.default_rng(6), 8, 256)
    first = mask(ids, segments, range(8))
    next_epoch = mask(ids, segments, range(8, 16))
    other_run = mask(ids, segments, range(8), key=1)
    for out in (next_epoch, other_run):
        both = (first.input_ids == MASK) & (out.input_ids == MASK)
        share = both.sum() / (first.input_ids == MASK).sum()
        assert share < 0.4, f"independent masks share 24 % of their places, these {share:.0%}"


def test_selections_beyond_the_capacity_are_left_alone_and_counted(monkeypatch):
    ids, segments = packed_rows(np.random.default_rng(7), 8, 256)
    full = mask(ids, segments, range(8))
    monkeypatch.setattr(objectives, "capacity", lambda length, rate: 8)
    anew = functools.partial(objectives.masked_token, rate=0.3, vocabulary=VOCABULARY)
    tight = jax.jit(anew)(ids, segments, np.arange(8, dtype=np.uint32), jax.random.key(0))
    tight = jax.tree.map(np.asarray, tight)
    selected = (full.labels != IGNORE).sum(1)
    assert full.overflow == 0
    assert (selected > 8).all()
    assert tight.overflow == (selected - 8).sum()
    np.testing.assert_array_equal(tight.positions, full.positions[:, :8])
    np.testing.assert_array_equal(tight.labels, full.labels[:, :8])
    for row in range(8):
        last = tight.positions[row, -1]
        np.testing.assert_array_equal(
            tight.input_ids[row, : last + 1], full.input_ids[row, : last + 1]
        )
        np.testing.assert_array_equal(tight.input_ids[row, last + 1 :], ids[row, last + 1 :])


def test_a_row_of_padding_has_no_targets():
    empty = np.zeros((8, 256), np.int32)
    out = mask(np.full_like(empty, 20), empty, range(8))
    assert (out.labels == IGNORE).all()
    assert (out.input_ids == 20).all()


@pytest.mark.parametrize(
    ("length", "rate", "expected"),
    [
        (8192, 0.3, 2712),  # 2457.6 + 6 * 41.48 = 2706.5
        (8192, 0.15, 1424),  # 1228.8 + 6 * 32.32 = 1422.7
        (16, 0.9, 16),  # 14.4 + 6 * 1.2 = 21.6, but a row has 16
        (100, 1.0, 100),
    ],
)
def test_capacity_by_hand(length, rate, expected):
    assert objectives.capacity(length, rate) == expected


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match=r"special_ids \[50\].*size=50"):
        Vocabulary(size=50, mask_id=8, special_ids=(8, 50))
    with pytest.raises(ValueError, match="mask_id 5 is not one of"):
        Vocabulary(size=50, mask_id=5, special_ids=(8,))
    ids = np.full((1, 16), 20, np.int32)
    with pytest.raises(ValueError, match="rate 30"):
        mask(ids, ids, [0], rate=30)
    with pytest.raises(ValueError, match="threefry"):
        objectives.masked_token(
            jnp.asarray(ids),
            jnp.asarray(ids),
            jnp.zeros(1, jnp.uint32),
            jax.random.key(0, impl="rbg"),
            rate=0.3,
            vocabulary=VOCABULARY,
        )
