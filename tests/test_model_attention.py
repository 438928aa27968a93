"""Every attention backend against a dense oracle: values, gradients, skipping, memory, mesh."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from cpt_jax.model import modernbert
from cpt_jax.model.attention import attention
from cpt_jax.model.kernels import xla
from cpt_jax.model.ranges import MASK_MODES, key_ranges
from tests.model_oracle import (
    TINY,
    dense_attention,
    noisy_params,
    quick_jit,
    relative,
    segments,
    visible,
)

# 300 tokens are no multiple of a block; two rows are padded, one of them packed.
PACKED = segments([300], [120, 1, 100], [7], length=300)


def arrays(shape, count, dtype=jnp.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for _ in range(count)]


def backends(mask_mode, window):
    """Every way to compute the attention of a layer with this window."""
    found = {
        "chosen": functools.partial(attention, window=window, causal=mask_mode == "causal"),
        "flash": functools.partial(xla.flash, blocks=((64, 1.0),)),
    }
    if window is not None:
        causal = mask_mode == "causal"
        found["banded"] = functools.partial(xla.banded, window=window, causal=causal, block=16)
    return found


def with_gradients(function):
    """Of q, k, v and d_out: the output, and d_out taken back to q, k and v."""

    def run(q, k, v, d_out):
        out, transpose = jax.vjp(function, q, k, v)
        return out, *transpose(d_out)

    return run


@pytest.mark.parametrize(
    ("mask_mode", "window"),
    [(mode, window) for mode in MASK_MODES for window in (None, 4)] + [("bidirectional", 100)],
)
def test_values_and_gradients_equal_the_dense_oracle(mask_mode, window):
    q, k, v, d_out = arrays((3, 300, 2, 16), 4)
    start, end = key_ranges(jnp.asarray(PACKED), mask_mode, window)
    seen = visible(PACKED, mask_mode, window)
    dense = functools.partial(dense_attention, seen=seen)
    expected = quick_jit(with_gradients(dense))(q, k, v, d_out)
    for name, backend in backends(mask_mode, window).items():
        layer = functools.partial(backend, k_start=start, k_end=end)
        got = quick_jit(with_gradients(layer))(q, k, v, d_out)
        for what, ours, oracle in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
            np.testing.assert_allclose(ours, oracle, atol=5e-6, err_msg=f"{name} {what}")
        assert not np.asarray(got[0])[PACKED == 0].any(), f"{name}: padding attends"
        assert not np.asarray(got[1])[PACKED == 0].any(), f"{name}: padding has a gradient"


BLOCKS = ((16, 1.0), (64, 1.2))


def test_each_row_takes_the_blocks_that_suit_it():
    """Large ones for a long document, small ones for short documents and for causal ones."""
    packed = segments([128], [16] * 8, [], length=128)
    q, k, v, d_out = arrays((3, 128, 2, 16), 4)
    for mask_mode, chosen in (("bidirectional", [1, 0, 0]), ("causal", [0, 0, 0])):
        ranges = key_ranges(jnp.asarray(packed), mask_mode, None)
        assert [int(xla._choice(*row, BLOCKS)) for row in zip(*ranges, strict=True)] == chosen
        layer = functools.partial(xla.flash, k_start=ranges[0], k_end=ranges[1], blocks=BLOCKS)
        dense = functools.partial(dense_attention, seen=visible(packed, mask_mode, None))
        expected = quick_jit(with_gradients(dense))(q, k, v, d_out)
        got = quick_jit(with_gradients(layer))(q, k, v, d_out)
        for what, ours, oracle in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
            np.testing.assert_allclose(ours, oracle, atol=5e-6, err_msg=f"{mask_mode} {what}")


@pytest.mark.parametrize("window", [None, 4])
def test_bf16_inputs_keep_fp32_softmax_and_sums(window):
    q, k, v, d_out = arrays((3, 300, 2, 16), 4, jnp.bfloat16)
    start, end = key_ranges(jnp.asarray(PACKED), "causal", window)
    seen = visible(PACKED, "causal", window)
    wide = (x.astype(jnp.float32) for x in (q, k, v, d_out))
    dense = functools.partial(dense_attention, seen=seen)
    exact = quick_jit(with_gradients(dense))(*wide)
    layer = functools.partial(attention, k_start=start, k_end=end, window=window, causal=True)
    got = quick_jit(with_gradients(layer))(q, k, v, d_out)
    for what, ours, oracle in zip(("out", "dq", "dk", "dv"), got, exact, strict=True):
        assert ours.dtype == jnp.bfloat16
        # bf16 rounds to 2^-9; a sum over 300 keys kept in bf16 would be off by far more.
        assert relative(ours.astype(jnp.float32), oracle) < 2.0**-7, what


def test_local_window_reaches_exactly_four_tokens():
    """With `local_attention` 8, key j moves outputs i with |i - j| <= 4 and no others."""
    length, j = 40, 20
    q, k, v = arrays((1, length, 2, 16), 3)
    moved_v = v.at[:, j].add(1.0)
    for mask_mode in ("bidirectional", "causal"):
        ranges = key_ranges(jnp.ones((1, length), jnp.int32), mask_mode, 4)
        reach = range(j if mask_mode == "causal" else j - 4, j + 5)
        for name, backend in backends(mask_mode, 4).items():
            moved = backend(q, k, moved_v, *ranges) != backend(q, k, v, *ranges)
            assert set(np.flatnonzero(moved[0].any((-1, -2)))) == set(reach), name


@pytest.mark.parametrize("window", [None, 4])
def test_all_padding_row_is_silent(window):
    """Zero, hence finite, values and gradients, and no influence on other rows."""
    packed = segments([], [50], length=50)
    q, k, v, d_out = arrays((2, 50, 2, 16), 4)
    start, end = key_ranges(jnp.asarray(packed), "bidirectional", window)
    for name, backend in backends("bidirectional", window).items():
        layer = functools.partial(backend, k_start=start, k_end=end)
        run = quick_jit(with_gradients(layer))
        first = run(q, k, v, d_out)
        other = run(*(x.at[0].set(1e6) for x in (q, k, v, d_out)))
        for one, two in zip(first, other, strict=True):
            assert not np.asarray(one[0]).any(), name
            assert not np.asarray(two[0]).any(), name
            np.testing.assert_array_equal(one[1], two[1], err_msg=name)


def blocks_visited(segment_ids, mask_mode, block):
    bounds = xla.block_bounds(*key_ranges(jnp.asarray(segment_ids), mask_mode, None), block)
    first, last = (np.asarray(x) for x in bounds)
    return np.maximum(last - first, 0)


def test_rows_visit_their_own_blocks_only():
    """A row of short documents costs the same beside a row of one long document."""
    short, long = [64] * 8, [512]
    counts = blocks_visited(segments(short, long, [64], length=512), "bidirectional", 64)
    assert counts.tolist() == [[1] * 8, [8] * 8, [1] + [0] * 7]
    counts = blocks_visited(segments(short, long, length=512), "causal", 64)
    assert counts.tolist() == [[1] * 8, [1, 2, 3, 4, 5, 6, 7, 8]]
    # Where borders do not fall on blocks, a block meets those its two documents lie in.
    assert blocks_visited(segments([96, 32], length=128), "bidirectional", 64).tolist() == [[2, 2]]


def test_flash_never_reads_a_block_outside_its_bounds():
    """On the kernel: NaN in a block that is read would reach the output, 0 * NaN = NaN.

    Row 1 visits the very blocks that are poisoned in row 0, so the loops are per row.
    """
    packed = segments([64, 64, 128], [256], length=256)
    start, end = key_ranges(jnp.asarray(packed), "bidirectional", None)
    clean = arrays((2, 256, 2, 16), 4)
    first, last = slice(0, 64), slice(128, 256)
    poisoned = [x.at[0, last].set(jnp.nan) for x in clean]
    layer = functools.partial(xla.flash, k_start=start, k_end=end, blocks=((64, 1.0),))
    run = quick_jit(with_gradients(layer))
    for ours, expected in zip(run(*poisoned), run(*clean), strict=True):
        assert np.isnan(ours[0, last]).any()
        np.testing.assert_array_equal(ours[0, first], expected[0, first])
        np.testing.assert_array_equal(ours[1], expected[1])


def buffers(hlo: str) -> set[tuple[int, ...]]:
    """The shapes of every array in a compiled program's text."""
    shapes = re.findall(r"\b(?:pred|[subf]+\d+)\[([\d,]*)\]", hlo)
    return {tuple(int(n) for n in shape.split(",") if n) for shape in shapes}


def square(shapes, length):
    """Those with two dimensions of at least `length`, or as many elements as those would have."""
    return [s for s in shapes if sum(n >= length for n in s) > 1 or np.prod(s) >= length**2]


def compiled_loss_and_gradient(length) -> tuple[str, int]:
    """The text and the bytes of temporary memory of a small model's, on one row."""
    kinds = ("full_attention", "sliding_attention")
    spec = dataclasses.replace(TINY, num_hidden_layers=2, layer_types=kinds)
    graphdef = modernbert.structure(spec)
    params = noisy_params(spec.param_shapes())

    def loss(params, input_ids, segment_ids):
        return modernbert.merge(graphdef, params)(input_ids, segment_ids).logits.var()

    row = jax.ShapeDtypeStruct((1, length), jnp.int32)
    compiled = quick_jit(jax.value_and_grad(loss)).lower(params, row, row).compile()
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text is not None
    assert memory is not None
    return text, memory.temp_size_in_bytes


def test_no_buffer_is_quadratic_at_8192(monkeypatch):
    """And the same check fails on dense attention."""
    length = 8192
    text, temporary = compiled_loss_and_gradient(length)
    assert square(buffers(text), length) == []
    # One L x L buffer alone, in fp32 and for two heads, would be 512 MiB.
    assert temporary < 128 * 2**20

    def dense(q, k, v, k_start, k_end, *, window, causal, backend):
        keys = jnp.arange(q.shape[1])
        seen = (keys >= k_start[..., None]) & (keys < k_end[..., None])
        return dense_attention(q, k, v, seen)

    monkeypatch.setattr(modernbert, "attention", dense)
    text, temporary = compiled_loss_and_gradient(length)
    assert square(buffers(text), length)
    assert temporary > 512 * 2**20


@pytest.mark.parametrize("window", [None, 4])
def test_sharded_attention_equals_one_device_and_moves_nothing(window):
    """On a mesh every device keeps its rows and heads: no collective, forward or backward."""
    mesh = jax.make_mesh((2, 2, 2), ("replica", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    packed = segments([60, 40], [100], [30], [], length=100)
    q, k, v, d_out = arrays((4, 100, 2, 16), 4)
    ranges = key_ranges(jnp.asarray(packed), "causal", window)

    def run(q, k, v, d_out, *ranges):
        band = {"window": window, "causal": True}
        return with_gradients(lambda q, k, v: attention(q, k, v, *ranges, **band))(q, k, v, d_out)

    expected = jax.jit(run)(q, k, v, d_out, *ranges)
    heads = NamedSharding(mesh, PartitionSpec(("replica", "fsdp"), None, "tensor"))
    rows = NamedSharding(mesh, PartitionSpec(("replica", "fsdp")))
    q, k, v, d_out, *ranges = jax.device_put((q, k, v, d_out, *ranges), (heads,) * 4 + (rows,) * 2)
    with jax.set_mesh(mesh):
        compiled = jax.jit(run).lower(q, k, v, d_out, *ranges).compile()
    for ours, single in zip(compiled(q, k, v, d_out, *ranges), expected, strict=True):
        np.testing.assert_allclose(ours, single, atol=1e-6)
        assert ours.sharding.is_equivalent_to(heads, ours.ndim)
    assert not re.findall(r"all-gather|all-reduce|all-to-all|collective", str(compiled.as_text()))


def test_a_batch_that_does_not_divide_still_runs_on_a_mesh():
    mesh = jax.make_mesh((1, 8, 1), ("replica", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    q, k, v = arrays((1, 30, 2, 16), 3)
    ranges = key_ranges(jnp.ones((1, 30), jnp.int32), "bidirectional", None)
    expected = attention(q, k, v, *ranges, window=None, causal=False)
    with jax.set_mesh(mesh):
        got = jax.jit(functools.partial(attention, window=None, causal=False))(q, k, v, *ranges)
    np.testing.assert_allclose(got, expected, atol=1e-6)
