"""One attention call for every layer: the choice of kernel, and its placement on a mesh."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from cpt_jax.config import AttentionBackend, Config
from cpt_jax.model.kernels import gpu, tpu, xla
from cpt_jax.model.spec import SLIDING, ModelSpec
from cpt_jax.sharding import BATCH_AXES, HEAD_AXIS, auto_axes

# The fastest kernels of a platform; any other has XLA's alone.
BEST: dict[str, AttentionBackend] = {"gpu": "mosaic", "tpu": "splash"}


class Choice(NamedTuple):
    """The kernels of a model on some devices, and why those."""

    backend: AttentionBackend
    reason: str


def fastest(device: Any) -> AttentionBackend:
    """The kernels to prefer on such a device, for a model that they can serve."""
    return BEST.get(device.platform, "xla")


def choose(config: Config, spec: ModelSpec, device: Any) -> Choice:
    """The kernels that a run's model attends with: the asked for, or the fastest that can.

    Args:
      config: `model.attention` is what is asked for, `model.dtype` and `data.seq_len` what for.
      spec: the model.
      device: one of those that will run it. It need not be here: a topology's will do.

    Raises:
      ValueError: what `config.model.attention` asks for cannot do it, and why.
    """
    asked = config.model.attention
    wanted = asked or fastest(device)
    reason = _refusal(wanted, config, spec, device)
    if asked and reason:
        raise ValueError(
            f"config.model.attention: {asked!r} cannot be used here: {reason}. "
            "Allowed: 'xla', or None for the fastest that can"
        )
    if asked:
        return Choice(asked, "asked for in config.model.attention")
    if reason:
        return Choice("xla", f"{wanted!r} cannot be used here: {reason}")
    return Choice(wanted, f"the fastest on {device.device_kind}")


def _refusal(backend: AttentionBackend, config: Config, spec: ModelSpec, device: Any) -> str | None:
    """Why a backend cannot serve a model on a device, None where it can."""
    dtype, length = config.model.dtype, config.data.seq_len
    if backend == "xla":
        return None
    if backend == "splash":
        return tpu.refusal(device, dtype=dtype, length=length)
    window = spec.window if backend == "mosaic" and SLIDING in spec.layer_types else None
    size = spec.head_size
    return gpu.refusal(device, dtype=dtype, head_size=size, length=length, window=window)


def attention(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int | None,
    causal: bool,
    backend: AttentionBackend = "xla",
) -> Float[Array, "B L H K"]:
    """softmax(q k^T / sqrt(K)) v, query i over the keys [k_start, k_end) of `ranges.key_ranges`.

    Args:
      window: the layer's reach in tokens, which the intervals already obey; None is a global
        layer.
      causal: whether the intervals end at the query.
      backend: whose kernels compute it.

    Returns:
      In q's dtype; softmax in fp32. A query with an empty interval gets exactly 0.

    Raises:
      ValueError: a shape or dtype that the backend's kernel cannot take.

    Under `jax.set_mesh` every device works on its own rows and heads (`shard_map` over the axes
    replica, fsdp and tensor): the kernels' loops over rows would otherwise gather the batch, and
    those of a GPU or TPU cannot be divided by the compiler at all.
    """
    kernel = _kernel(backend, window, causal)
    if sizes := auto_axes():
        rows_axes, head_axis = _dividing(sizes, q.shape[0], q.shape[2])
        array = PartitionSpec(rows_axes or None, None, head_axis)
        ranges = PartitionSpec(rows_axes or None)
        # The kernels' loops start from constants, which do not vary over the mesh as their
        # results do: check_vma would refuse them.
        kernel = jax.shard_map(
            kernel,
            in_specs=(array, array, array, ranges, ranges),
            out_specs=array,
            check_vma=False,
        )
    return kernel(q, k, v, k_start, k_end)


def _kernel(
    backend: AttentionBackend, window: int | None, causal: bool
) -> Callable[..., Float[Array, "B L H K"]]:
    """The function of q, k, v, k_start and k_end that serves such a layer."""
    if backend == "splash":
        return partial(tpu.splash, window=window, causal=causal)
    if backend != "xla" and window is None:
        return partial(gpu.flash, causal=causal)
    if backend == "mosaic":
        return partial(gpu.local, window=window, causal=causal)
    return xla.flash if window is None else partial(xla.banded, window=window, causal=causal)


def _dividing(
    sizes: Mapping[str, int], batch: int, heads: int
) -> tuple[tuple[str, ...], str | None]:
    """Those of the axes that rows and heads are divided over; what does not divide is whole."""
    rows = tuple(axis for axis in BATCH_AXES if axis in sizes)
    rows = rows if batch % math.prod(sizes[axis] for axis in rows) == 0 else ()
    divides = HEAD_AXIS in sizes and heads % sizes[HEAD_AXIS] == 0
    return rows, HEAD_AXIS if divides else None
