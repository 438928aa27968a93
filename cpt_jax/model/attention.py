"""One attention call for every layer: the choice of kernel, and its placement on a mesh."""

from functools import partial

import jax
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Float, Int

from cpt_jax.model.kernels import xla
from cpt_jax.sharding import BATCH_AXES, HEAD_AXIS


def attention(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int | None,
    causal: bool,
) -> Float[Array, "B L H K"]:
    """softmax(q k^T / sqrt(K)) v, query i over the keys [k_start, k_end) of `ranges.key_ranges`.

    Args:
      window: the layer's reach in tokens, which the intervals already obey; None is a global
        layer. Local layers run banded, global ones flash.
      causal: whether the intervals end at the query.

    Returns:
      In q's dtype; softmax in fp32. A query with an empty interval gets exactly 0.

    Under `jax.set_mesh` every device works on its own rows and heads (`shard_map` over the axes
    replica, fsdp and tensor), as the kernels' loops over rows would otherwise gather the batch.
    """
    if window is None:
        kernel = xla.flash
    else:
        kernel = partial(xla.banded, window=window, causal=causal)
    batch, _, heads, _ = q.shape
    rows_axes, head_axis = _mesh_axes(batch, heads)
    if rows_axes or head_axis:
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


def _mesh_axes(batch: int, heads: int) -> tuple[tuple[str, ...], str | None]:
    """The axes of the current mesh that rows and heads are divided over, where they divide."""
    mesh = jax.sharding.get_abstract_mesh()
    sizes = {
        name: size
        for name, size, kind in zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
        if kind == AxisType.Auto and size > 1
    }
    rows, count = tuple(a for a in BATCH_AXES if a in sizes), 1
    for axis in rows:
        count *= sizes[axis]
    rows = rows if batch % count == 0 else ()
    divides = HEAD_AXIS in sizes and heads % sizes[HEAD_AXIS] == 0
    return rows, HEAD_AXIS if divides else None
