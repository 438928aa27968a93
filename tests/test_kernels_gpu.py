"""The GPU backend on a CPU: its fold around a dense kernel, and tokamax's own dense operator.

The Mosaic kernel itself runs on Hopper and Blackwell alone: docs/kernels.md.
"""

import functools
import importlib.metadata
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpt_jax.model.kernels import gpu
from cpt_jax.model.ranges import MASK_MODES, key_ranges
from tests.model_oracle import dense_attention, quick_jit, segments, visible

# A whole row, packed rows whose documents cross blocks of 128, a block without any token, none.
PACKED = segments([256], [120, 1, 100], [7], [], length=256)
KINDS = [(mode, window) for mode in MASK_MODES for window in (None, 4, 64)]

needs_tokamax = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))


def arrays(count, shape=(4, 256, 2, 16), seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(count)]


def dense(q, k, v, k_start, k_end):
    """Attention of any number of queries and keys over their intervals."""
    keys = jnp.arange(k.shape[1])
    return dense_attention(q, k, v, (keys >= k_start[..., None]) & (keys < k_end[..., None]))


def with_gradients(function):
    def run(q, k, v, d_out):
        out, transpose = jax.vjp(function, q, k, v)
        return out, *transpose(d_out)

    return run


def assert_equals_oracle(layer, mask_mode, window):
    """Values and gradients, with exactly 0 of both at padding."""
    q, k, v, d_out = arrays(4)
    start, end = key_ranges(jnp.asarray(PACKED), mask_mode, window)
    oracle = functools.partial(dense_attention, seen=visible(PACKED, mask_mode, window))
    expected = quick_jit(with_gradients(oracle))(q, k, v, d_out)
    ours = functools.partial(layer, k_start=start, k_end=end)
    got = quick_jit(with_gradients(ours))(q, k, v, d_out)
    for what, one, two in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
        # fp32 sums over at most 256 keys, in another order
        np.testing.assert_allclose(one, two, atol=5e-6, err_msg=what)
        assert not np.asarray(one)[PACKED == 0].any(), f"{what} of padding"


@pytest.mark.parametrize(
    ("mask_mode", "window"), [kind for kind in KINDS if kind[1]] + [("bidirectional", 100)]
)
def test_fold_equals_the_oracle(mask_mode, window):
    causal = mask_mode == "causal"
    layer = functools.partial(gpu.fold, dense, window=window, causal=causal)
    assert_equals_oracle(layer, mask_mode, window)


@needs_tokamax
@pytest.mark.parametrize(("mask_mode", "window"), KINDS)
def test_tokamax_reads_the_intervals_as_they_are_meant(mask_mode, window):
    """Through its dense operator, which takes the same mask as the Mosaic kernel."""
    how = {"causal": mask_mode == "causal", "implementation": "xla"}
    if window is None:
        layer = functools.partial(gpu.flash, **how)
    else:
        layer = functools.partial(gpu.local, window=window, **how)
    assert_equals_oracle(layer, mask_mode, window)


@pytest.mark.parametrize("mask_mode", MASK_MODES)
def test_the_kernel_is_never_given_an_empty_interval(mask_mode):
    """Over one it would divide 0 by 0, or give the mean of keys that nobody may see."""
    seen = []

    def inner(q, k, v, k_start, k_end):
        keys = jnp.arange(k.shape[1])
        seen.append(((keys >= k_start[..., None]) & (keys < k_end[..., None])).any(-1))
        return jnp.ones_like(q)

    ranges = key_ranges(jnp.asarray(PACKED), mask_mode, 64)
    q, k, v = arrays(3)
    out = gpu.fold(inner, q, k, v, *ranges, window=64, causal=mask_mode == "causal")
    assert len(seen) == 1
    assert seen[0].all()
    np.testing.assert_array_equal(out[..., 0, 0], PACKED != 0)


def device(platform="gpu", kind="NVIDIA H100 80GB HBM3", capability: str | None = "9.0"):
    return types.SimpleNamespace(platform=platform, device_kind=kind, compute_capability=capability)


FITS = {"dtype": jnp.bfloat16, "head_size": 64, "length": 8192, "window": 64}


@pytest.mark.parametrize(
    ("where", "change", "reason"),
    [
        (device(), {}, None),
        (device(kind="NVIDIA B200", capability="10.0"), {}, None),
        (device(), {"window": None, "length": 128}, None),
        (device(kind="NVIDIA A100", capability="8.0"), {}, "'NVIDIA A100' has 8.0"),
        (device("cpu", "cpu", None), {}, "'cpu' is none"),
        (device(), {"dtype": jnp.float32}, "not float32"),
        (device(), {"head_size": 128}, "these have 128"),
        (device(), {"length": 300}, "multiples of 128 tokens, and 300 is not"),
        (device(), {"window": 200}, "strips of 640 keys; allowed: 512"),
        (device(), {"length": 128}, "strips of 256 keys; allowed: 128"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(monkeypatch, where, change, reason):
    monkeypatch.setattr(gpu, "missing", lambda: None)
    said = gpu.refusal(where, **FITS | change)
    assert (said is None) if reason is None else (reason in str(said))


@pytest.mark.parametrize(
    ("installed", "reason"),
    [
        ("0.0.12", None),
        ("0.0.17", None),
        ("0.0.13", "tokamax 0.0.13 is installed; supported: 0.0.12 (Python 3.11) and 0.0.17"),
        (None, "needs the package tokamax; supported: 0.0.12 (Python 3.11) and 0.0.17"),
    ],
)
def test_other_versions_of_tokamax_are_refused_by_name(monkeypatch, installed, reason):
    def version(name):
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    gpu._internals.cache_clear()
    said = gpu.refusal(device(), **FITS)
    if reason is None:
        assert said is None
        return
    assert reason in str(said)
    q, k, v = arrays(3)
    with pytest.raises(ValueError, match="attention through tokamax"):
        gpu.tokamax(q, k, v, *key_ranges(jnp.asarray(PACKED), "causal", None))


def test_shapes_are_refused_where_the_kernel_is_called():
    """Whatever chose the backend: at another length or dtype, before anything is computed."""
    q, k, v = arrays(3)
    ranges = key_ranges(jnp.asarray(PACKED), "causal", None)
    with pytest.raises(ValueError, match="bfloat16 or float16, not float32"):
        gpu.flash(q, k, v, *ranges, causal=True)
    with pytest.raises(ValueError, match="bfloat16 or float16, not float32"):
        gpu.local(q, k, v, *ranges, window=64, causal=True)
