"""Which kernels a model attends with, on which device; and that the model asks for those."""

import dataclasses
import functools
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from cpt_jax import config
from cpt_jax.model import attention, modernbert
from cpt_jax.model.kernels import gpu, tpu, xla
from cpt_jax.model.spec import SIZES
from tests.model_oracle import TINY

BASE = SIZES["base"]
CPU = types.SimpleNamespace(platform="cpu", device_kind="cpu")
TPU = types.SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
H100 = types.SimpleNamespace(
    platform="gpu", device_kind="NVIDIA H100 80GB HBM3", compute_capability="9.0"
)
A100 = types.SimpleNamespace(platform="gpu", device_kind="NVIDIA A100", compute_capability="8.0")
WIDE = dataclasses.replace(BASE, local_attention=1024)


def run(asked=None, dtype: Any = "bfloat16", length=8192) -> config.Config:
    model = config.Model(dtype=dtype, attention=asked)
    data = config.Data(sources=(), seq_len=length)
    return config.Config("run", data, config.Init("scratch"), phases=(), model=model)


@pytest.fixture(autouse=True)
def tokamax_is_there(monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: None)


@pytest.mark.parametrize(
    ("device", "how", "spec", "backend", "reason"),
    [
        (CPU, {}, BASE, "xla", "the fastest on cpu"),
        (H100, {}, BASE, "mosaic", "the fastest on NVIDIA H100"),
        (TPU, {}, BASE, "splash", "the fastest on TPU v5 lite"),
        # what the fastest cannot do runs on XLA, and why is said
        (A100, {}, BASE, "xla", "'mosaic' cannot be used here: .* has 8.0"),
        (H100, {"dtype": "float32"}, BASE, "xla", "not float32"),
        (H100, {"length": 1000}, BASE, "xla", "1000 is not"),
        (H100, {}, TINY, "xla", "these have 16"),
        (H100, {}, WIDE, "xla", "window of 512"),
        (TPU, {"dtype": "float32"}, BASE, "xla", "not float32"),
        (TPU, {"length": 1000}, BASE, "xla", "1000 is not"),
        # asked for
        (H100, {"asked": "xla"}, BASE, "xla", "asked for"),
        (H100, {"asked": "mosaic_banded"}, WIDE, "mosaic_banded", "asked for"),
        (TPU, {"asked": "splash"}, WIDE, "splash", "asked for"),
    ],
)
def test_the_fastest_that_can(device, how, spec, backend, reason):
    choice = attention.choose(run(**how), spec, device)
    assert choice.backend == backend
    assert re.search(reason, choice.reason)


@pytest.mark.parametrize(
    ("device", "how", "spec", "reason"),
    [
        (CPU, {"asked": "mosaic"}, BASE, "'mosaic' cannot .* 'cpu' is none"),
        (CPU, {"asked": "splash"}, BASE, "'splash' cannot .* needs a TPU"),
        (A100, {"asked": "mosaic_banded"}, BASE, "'mosaic_banded' cannot .* has 8.0"),
        (H100, {"asked": "mosaic"}, WIDE, "'mosaic' cannot .* window of 512"),
        (H100, {"asked": "mosaic", "dtype": "float32"}, BASE, "not float32"),
        (TPU, {"asked": "mosaic"}, BASE, "Allowed: 'xla', or None"),
    ],
)
def test_what_is_asked_for_and_cannot_be_is_refused(device, how, spec, reason):
    with pytest.raises(ValueError, match=f"config.model.attention: .*{reason}"):
        attention.choose(run(**how), spec, device)


def test_each_backend_has_its_kernel_for_each_kind_of_layer():
    kernels = {
        (backend, window): attention._kernel(backend, window, True)
        for backend in ("xla", "mosaic", "mosaic_banded", "splash")
        for window in (None, 64)
    }
    functions = {
        kind: (getattr(kernel, "func", kernel), getattr(kernel, "keywords", {}))
        for kind, kernel in kernels.items()
    }
    local = {"window": 64, "causal": True}
    assert functions == {
        ("xla", None): (xla.flash, {}),
        ("xla", 64): (xla.banded, local),
        ("mosaic", None): (gpu.flash, {"causal": True}),
        ("mosaic", 64): (gpu.local, local),
        ("mosaic_banded", None): (gpu.flash, {"causal": True}),
        ("mosaic_banded", 64): (xla.banded, local),
        ("splash", None): (tpu.splash, {"window": None, "causal": True}),
        ("splash", 64): (tpu.splash, local),
    }


@pytest.mark.parametrize(("mode", "reach"), [("bidirectional", 4), ("causal", 2)])
@pytest.mark.parametrize("remat", [False, True])
def test_the_model_attends_with_what_it_was_given(monkeypatch, mode, reach, remat):
    """With the reach that a layer has under its mask: splash puts it into the mask itself."""
    asked = []

    def recorded(q, k, v, k_start, k_end, **how):
        asked.append(how)
        return q

    monkeypatch.setattr(modernbert, "attention", recorded)
    spec = dataclasses.replace(TINY, causal_window=2)
    model = modernbert.ModernBert(spec, rngs=nnx.Rngs(0), remat=remat, attention="splash")
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    jax.eval_shape(functools.partial(model.encode, mask_mode=mode), ids)
    how = {"causal": mode == "causal", "backend": "splash"}
    assert asked == [how | {"window": window} for window in (None, reach, reach)]
