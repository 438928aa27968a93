"""Buckets against a search of all choices; orders by what they promise; batches by hand."""

import itertools

import numpy as np
import pytest

from cpt_jax.finetune import batches
from cpt_jax.finetune.batches import Shapes, TrainingOrder, bucket_lengths, in_order
from cpt_jax.finetune.rows import Row


def rows_of(lengths) -> list[Row]:
    """Rows whose first token is their place."""
    return [
        Row(
            i,
            np.concatenate([[i], np.arange(1, n)]).astype(np.int32),
            {"label": np.array(i % 3, np.int32)},
        )
        for i, n in enumerate(lengths)
    ]


def tokens(lengths, buckets) -> int:
    """Tokens of all rows, each padded to the smallest bucket that holds it."""
    return sum(min(bucket for bucket in buckets if bucket >= n) for n in lengths)


@pytest.mark.parametrize("seed", range(6))
def test_buckets_pad_least_of_all_choices_of_so_many(seed):
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.geometric(1 / 60, 200) + 2, 500).tolist()
    chosen = bucket_lengths(lengths, 64)
    assert list(chosen) == sorted(set(chosen))
    assert all(bucket % 64 == 0 for bucket in chosen)
    longest = -(-max(lengths) // 64) * 64
    others = range(64, longest, 64)
    least = {
        count: min(
            tokens(lengths, (*choice, longest)) for choice in itertools.combinations(others, count)
        )
        for count in range(min(len(others), batches.MAX_BUCKETS) + 1)
    }
    own = len(chosen) - 1
    assert tokens(lengths, chosen) == least[own]
    # each is worth being compiled, and one more is not, or too many
    assert all(least[n] <= 0.95 * least[n - 1] for n in range(1, own + 1))
    assert own + 1 == batches.MAX_BUCKETS or least[own + 1] > 0.95 * least[own]


def test_buckets_by_hand():
    assert bucket_lengths([5, 60, 64], 64) == (64,)
    assert bucket_lengths([65], 64) == (128,)
    assert bucket_lengths([10] * 9 + [300], 64) == (64, 320)
    assert bucket_lengths([10] * 9 + [300], 128) == (128, 384)
    # nothing to gain by 448 beside 512: three of a thousand rows
    assert bucket_lengths([510] * 1000 + [440] * 3, 64) == (512,)


LENGTHS = [20] * 70 + [100] * 37 + [400] * 12  # 119 rows
SIZE = 8


@pytest.fixture(scope="module")
def order() -> TrainingOrder:
    rows = rows_of(LENGTHS)
    return TrainingOrder("task", rows, Shapes(rows, SIZE))


def epoch(order, seed, number) -> list[list[int]]:
    steps = range(number * order.steps_per_epoch, (number + 1) * order.steps_per_epoch)
    return [order.rows(seed, step).tolist() for step in steps]


def test_every_row_once_an_epoch_in_as_few_batches_as_there_can_be(order):
    assert order.steps_per_epoch == 15  # 119 / 8, rounded up
    for seed, number in [(0, 0), (0, 1), (7, 3)]:
        found = epoch(order, seed, number)
        assert sorted(itertools.chain(*found)) == list(range(119))
        assert [len(batch) for batch in found] == [8] * 14 + [7]


def test_lengths_are_the_same_for_all_seeds_and_hold_their_rows(order):
    for step in range(2 * order.steps_per_epoch):
        length = order.length(step)
        assert length in (32, 112, 400)
        for seed in (1, 2):
            assert max(LENGTHS[i] for i in order.rows(seed, step)) <= length
        assert order.batch([1, 2], step)["input_ids"].shape == (2, SIZE, length)
    # 70 rows of 20 are 8 full batches; the 6 that are left go with the next longer, and so on
    first = [order.length(step) for step in range(order.steps_per_epoch)]
    assert [first.count(length) for length in (32, 112, 400)] == [8, 5, 2]


def test_orders_are_each_seeds_and_each_epochs_own(order):
    """No seed's epoch is another's next, as it is where the epoch is added to the seed."""
    drawn = [epoch(order, seed, number) for seed in (0, 1, 2) for number in (0, 1, 2)]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))
    rows = rows_of(LENGTHS)
    again = TrainingOrder("task", rows, Shapes(rows, SIZE))
    assert epoch(again, 1, 2) == epoch(order, 1, 2)


def test_lengths_are_drawn_anew_for_each_epoch_and_task(order):
    rows = rows_of(LENGTHS)
    other = TrainingOrder("another", rows, Shapes(rows, SIZE))
    count = order.steps_per_epoch
    sequences = [[o.length(s) for s in range(2 * count)] for o in (order, other)]
    first, second = sequences[0][:count], sequences[0][count:]
    assert first != second
    assert sorted(first) == sorted(second)
    assert sequences[0] != sequences[1]


def test_rows_that_are_left_over_are_not_always_the_same(order):
    """Which of the short rows are padded to more is drawn, too."""
    padded = [
        {
            i
            for s in range(15)
            for i in order.rows(seed, s)
            if LENGTHS[i] == 20 < order.length(s) - 44
        }
        for seed in (0, 1)
    ]
    assert [len(rows) for rows in padded] == [6, 6]
    assert padded[0] != padded[1]


def test_a_batch_by_hand():
    ids = [np.array([1, 5, 2], np.int32), np.array([1, 2], np.int32)]
    labels = [np.array([-1, 3, -1], np.int32), np.array([-1, -1], np.int32)]
    words = [np.array([-1, 0, -1], np.int32), np.array([-1, -1], np.int32)]
    spans = [np.array([[0, 0, 4]], np.int32), np.zeros((0, 3), np.int32)]
    names, arrays = ("labels", "word_ids", "spans"), zip(labels, words, spans, strict=True)
    targets = [dict(zip(names, of_row, strict=True)) for of_row in arrays]
    rows = [Row(0, ids[0], targets[0]), Row(1, ids[1], targets[1])]
    batch = Shapes(rows, 3, multiple=4, pad_id=9).collate(rows, 4)
    expected = {
        "input_ids": [[1, 5, 2, 9], [1, 2, 9, 9], [1, 5, 2, 9]],
        "segment_ids": [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]],
        "labels": [[-1, 3, -1, -1], [-1] * 4, [-1, 3, -1, -1]],
        "word_ids": [[-1, 0, -1, -1], [-1] * 4, [-1, 0, -1, -1]],
        "spans": [[[0, 0, 4]], [[-1] * 3], [[0, 0, 4]]],
        "weight": [1, 1, 0],
    }
    assert batch.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array, err_msg=name)
    assert {name: array.dtype for name, array in batch.items()} == {
        **dict.fromkeys(expected, np.dtype(np.int32)),
        "weight": np.dtype(np.float32),
    }


def test_labels_of_a_text_and_numbers_are_not_padded():
    targets = {
        "labels": np.array([0, 1, 1], np.float32),
        "label": np.int32(4),
        "markers": np.array([1, 3], np.int32),
    }
    rows = [Row(0, np.arange(5, dtype=np.int32), targets)]
    batch = Shapes(rows, 2).collate(rows, 64)
    np.testing.assert_array_equal(batch["labels"], [[0, 1, 1]] * 2)
    np.testing.assert_array_equal(batch["label"], [4, 4])
    np.testing.assert_array_equal(batch["markers"], [[1, 3]] * 2)


def test_evaluation_goes_through_the_buckets_in_order():
    lengths = [20, 400, 30, 20, 20]
    rows = rows_of(lengths)
    found = list(in_order(rows, Shapes(rows, 3, multiple=32)))
    assert [places for places, _ in found] == [[0, 2, 3], [4], [1]]
    assert [batch["input_ids"].shape[1] for _, batch in found] == [32, 32, 416]
    assert [batch["weight"].tolist() for _, batch in found] == [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    for places, batch in found:
        assert batch["input_ids"][: len(places), 0].tolist() == places
