"""The chunked loss against torch, and against its own promises: sums, memory, sharding."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from cpt_jax.training.loss import linear_cross_entropy
from cpt_jax.training.objectives import IGNORE

BATCH, POSITIONS, VOCAB, WIDTH = 4, 13, 50, 16


def example(seed=0, *, batch=BATCH, positions=POSITIONS, vocab=VOCAB, width=WIDTH):
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(batch, positions, width)).astype(np.float32)
    kernel = rng.normal(size=(vocab, width)).astype(np.float32)
    bias = rng.normal(size=vocab).astype(np.float32)
    labels = rng.integers(0, vocab, (batch, positions)).astype(np.int32)
    labels[rng.random((batch, positions)) < 0.3] = IGNORE
    return hidden, kernel, bias, labels


@functools.partial(jax.jit, static_argnames=("chunk", "shards"))
def loss_and_gradients(hidden, kernel, bias, labels, scale=1.0, *, chunk=1024, shards=1):
    def nll(hidden, kernel, bias):
        sums = linear_cross_entropy(hidden, kernel, bias, labels, chunk=chunk, shards=shards)
        return sums.nll * scale, sums

    wrt = (0, 1) if bias is None else (0, 1, 2)
    (_, sums), gradients = jax.value_and_grad(nll, wrt, has_aux=True)(hidden, kernel, bias)
    return sums, gradients


@pytest.mark.torch
@pytest.mark.parametrize(
    ("chunk", "shards", "with_bias"),
    [(1024, 1, True), (8, 1, True), (1, 1, True), (10, 2, True), (20, 1, False)],
    ids=["one chunk", "uneven chunks", "a token a time", "two shards", "no bias"],
)
def test_equals_torch(chunk, shards, with_bias):
    import torch

    hidden, kernel, bias, labels = example()
    leaves = [torch.tensor(a, requires_grad=True) for a in (hidden, kernel, bias)]
    logits = leaves[0] @ leaves[1].T + (leaves[2] if with_bias else 0)
    expected = torch.nn.functional.cross_entropy(
        logits.reshape(-1, VOCAB), torch.tensor(labels).reshape(-1).long(), reduction="sum"
    )
    (0.25 * expected).backward()

    used = jnp.asarray(bias) if with_bias else None
    cut = {"chunk": chunk, "shards": shards}
    sums, gradients = loss_and_gradients(hidden, kernel, used, labels, 0.25, **cut)
    h, k, y = jnp.asarray(hidden), jnp.asarray(kernel), jnp.asarray(labels)
    alone = linear_cross_entropy(h, k, used, y, **cut)
    best = logits.argmax(-1).numpy()
    for result in (sums, alone):  # with and without its gradient
        np.testing.assert_allclose(result.nll, expected.item(), rtol=1e-5)
        assert result.count == (labels != IGNORE).sum()
        assert result.correct == ((best == labels) & (labels != IGNORE)).sum()
    for ours, theirs in zip(gradients, leaves, strict=False):
        assert theirs.grad is not None
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_bf16_inputs_give_float32_sums_and_a_float32_kernel_gradient():
    hidden, kernel, bias, labels = example()
    low = jnp.asarray(hidden, jnp.bfloat16)
    sums, (d_hidden, d_kernel, d_bias) = loss_and_gradients(low, kernel, bias, labels, chunk=8)
    exact, (_, e_kernel, _) = loss_and_gradients(hidden, kernel, bias, labels)
    assert (d_hidden.dtype, d_kernel.dtype, d_bias.dtype) == (jnp.bfloat16, *(jnp.float32,) * 2)
    assert {leaf.dtype for leaf in sums} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(sums.nll, exact.nll, rtol=5e-3)
    np.testing.assert_allclose(d_kernel, e_kernel, atol=0.02 * np.abs(e_kernel).max())


def test_a_batch_without_targets_gives_zero_and_zero_gradients():
    hidden, kernel, bias, labels = example()
    sums, gradients = loss_and_gradients(hidden, kernel, bias, np.full_like(labels, IGNORE))
    assert [float(leaf) for leaf in sums] == [0, 0, 0]
    assert all((np.asarray(leaf) == 0).all() for leaf in gradients)


def test_large_logits_stay_finite():
    hidden, kernel, bias, labels = example()
    sums, gradients = loss_and_gradients(hidden * 1e4, kernel, bias, labels)
    assert all(np.isfinite(leaf).all() for leaf in (sums.nll, *gradients))


def test_micro_batches_add_up_to_the_batch():
    hidden, kernel, bias, labels = example()
    for row, kept in enumerate((1, 13, 0, 6)):  # uneven counts, one of them nothing
        labels[row] = np.where(np.arange(POSITIONS) < kept, labels[row] % VOCAB, IGNORE)
    whole, (_, *gradients) = loss_and_gradients(hidden, kernel, bias, labels)
    pieces = [
        loss_and_gradients(hidden[i : i + 1], kernel, bias, labels[i : i + 1]) for i in range(BATCH)
    ]
    total = jax.tree.map(lambda *leaves: sum(leaves), *pieces)
    assert [int(piece[0].count) for piece in pieces] == [1, 13, 0, 6]
    assert total[0].count == whole.count
    np.testing.assert_allclose(total[0].nll, whole.nll, rtol=1e-6)
    for ours, expected in zip(total[1][1:], gradients, strict=True):
        mean, expected = ours / total[0].count, expected / whole.count
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_no_tokens_by_vocabulary_array_exists():
    # 4,096 tokens x 1,024 words: 16.8 MB in float32, against 0.5 MB for a chunk of 128.
    hidden, kernel, bias, labels = example(batch=4, positions=1024, vocab=1024)
    compiled: Any = loss_and_gradients.lower(hidden, kernel, bias, labels, chunk=128).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4e6
    largest = max(
        int(np.prod([int(n) for n in shape.split(",")]))
        for shape in re.findall(r"\[([\d,]+)\]", compiled.as_text())
    )
    assert largest == 128 * 1024


def test_split_over_devices_the_gradient_is_reduced_once():
    arrays = example(batch=16, positions=64, vocab=512, width=32)
    expected = loss_and_gradients(*arrays, chunk=1024)
    mesh = jax.make_mesh((8,), ("replica",), axis_types=(AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("replica",), ()))
    placed = jax.device_put(arrays, (rows, whole, whole, rows))

    compiled: Any = loss_and_gradients.lower(*placed, chunk=32, shards=8).compile()
    loops, entry = compiled.as_text().split("\nENTRY ")
    assert "all-reduce" in entry
    for collective in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
        assert f"{collective}(" not in loops, "devices wait for each other in every chunk"
    actual = loss_and_gradients(*placed, chunk=32, shards=8)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_impossible_cuts_are_refused():
    hidden, kernel, bias, labels = map(jnp.asarray, example())
    with pytest.raises(ValueError, match="chunk 0"):
        linear_cross_entropy(hidden, kernel, bias, labels, chunk=0)
    with pytest.raises(ValueError, match="shards 3 does not divide the batch of 4"):
        linear_cross_entropy(hidden, kernel, bias, labels, shards=3)
