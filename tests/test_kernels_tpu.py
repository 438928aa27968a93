"""Splash attention in interpret mode against the dense oracle; on a TPU it has not run."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from cpt_jax.model.attention import attention
from cpt_jax.model.kernels import tpu
from cpt_jax.model.ranges import MASK_MODES, key_ranges
from tests.model_oracle import dense_attention, quick_jit, segments, visible

# A packed row whose documents cross blocks of 128, with padding; a row of one document.
PACKED = segments([120, 1, 100], [256], length=256)


@pytest.mark.parametrize(
    ("mask_mode", "window"), [(mode, window) for mode in MASK_MODES for window in (None, 20)]
)
def test_splash_equals_the_oracle(monkeypatch, mask_mode, window):
    monkeypatch.setattr(tpu, "GLOBAL_BLOCK", 128)  # several blocks, at a length that is quick
    monkeypatch.setattr(tpu, "LOCAL_BLOCK", 128)
    tpu._kernel.cache_clear()
    rng = np.random.default_rng(0)
    q, k, v, d_out = (
        jnp.asarray(rng.standard_normal((2, 256, 1, 16)), jnp.float32) for _ in "qkvd"
    )
    start, end = key_ranges(jnp.asarray(PACKED), mask_mode, window)
    layer = functools.partial(
        tpu.splash,
        k_start=start,
        k_end=end,
        window=window,
        causal=mask_mode == "causal",
        interpret=True,
    )
    oracle = functools.partial(dense_attention, seen=visible(PACKED, mask_mode, window))

    def with_gradients(function):
        def run(q, k, v):
            out, transpose = jax.vjp(function, q, k, v)
            return out, *transpose(d_out)

        return run

    got = quick_jit(with_gradients(layer))(q, k, v)
    expected = quick_jit(with_gradients(oracle))(q, k, v)
    for what, ours, theirs in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
        # fp32 sums over at most 256 keys, in another order
        np.testing.assert_allclose(ours, theirs, atol=5e-6, err_msg=what)
        assert not np.asarray(ours)[PACKED == 0].any(), f"{what} of padding"


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("mask_mode", MASK_MODES)
def test_splash_lowers_for_tpus_on_a_mesh(mask_mode, window):
    """Forward, dq, dk and dv as kernels of a TPU, each device on its own rows and heads."""
    mesh = jax.make_mesh((2, 2, 2), ("replica", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3)
    causal = mask_mode == "causal"

    def run(q, k, v, d_out, segment_ids):
        start, end = key_ranges(segment_ids, mask_mode, window)
        kind = {"window": window, "causal": causal, "backend": "splash"}
        layer = functools.partial(attention, k_start=start, k_end=end, **kind)
        out, transpose = jax.vjp(layer, q, k, v)
        return out, *transpose(d_out)

    array = jax.ShapeDtypeStruct((4, 512, 2, 64), jnp.bfloat16)
    segment_ids = jax.ShapeDtypeStruct((4, 512), jnp.int32)
    with jax.set_mesh(mesh):
        traced = jax.jit(run).trace(array, array, array, array, segment_ids)
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 3
    # a row and a head a device, and no scores of a whole row
    assert "tensor<1x512x1x64xbf16>" in text
    assert "512x512x" not in text


@pytest.mark.parametrize(
    ("platform", "dtype", "length", "reason"),
    [
        ("tpu", jnp.bfloat16, 8192, None),
        ("gpu", jnp.bfloat16, 8192, "it needs a TPU, and 'some gpu' is none"),
        ("tpu", jnp.float32, 8192, "for bfloat16, not float32"),
        ("tpu", jnp.bfloat16, 8200, "multiples of 128 tokens, and 8200 is not"),
    ],
)
def test_what_splash_cannot_do_is_refused(platform, dtype, length, reason):
    device = types.SimpleNamespace(platform=platform, device_kind=f"some {platform}")
    assert tpu.refusal(device, dtype=dtype, length=length) == reason or (
        reason is not None and reason in str(tpu.refusal(device, dtype=dtype, length=length))
    )


def test_a_length_is_refused_where_the_kernel_is_called():
    x = jnp.zeros((1, 100, 1, 16))
    ranges = key_ranges(jnp.ones((1, 100), jnp.int32), "causal", None)
    with pytest.raises(ValueError, match="multiples of 128 tokens, and 100 is not"):
        tpu.splash(x, x, x, *ranges, window=None, causal=True)
