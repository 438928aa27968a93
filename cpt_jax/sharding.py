"""The device mesh, and where arrays live on it: docs/sharding.md.

Rows of a batch are spread over the axes ``replica`` and ``fsdp``. Parameters are cut over ``fsdp``
and ``tensor`` by one table of patterns on their paths; Adam's moments are cut like them and over
``replica`` as well (ZeRO: Rajbhandari et al. 2019, arXiv 1910.02054, stage 1 and 2).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from cpt_jax import config, trees

BATCH_AXES, HEAD_AXIS = ("replica", "fsdp"), "tensor"
AXES = (*BATCH_AXES, HEAD_AXIS)
BATCH = PartitionSpec(BATCH_AXES)
WHOLE = PartitionSpec()
OPEN = PartitionSpec.UNCONSTRAINED  # of a dimension: as the compiler likes

Shapes = Mapping[str, tuple[int, ...]]
Specs = dict[str, PartitionSpec]

# Which axes cut which dimension of a matrix, by patterns on its path. Whatever has one dimension
# (norms, biases) is whole on every device: it is small, and fetching it would cost more.
#
# What `tensor` cuts is what a device of that axis computes with: the words of the vocabulary, the
# channels that its heads gave (attn.Wo) or its columns of the gated unit (mlp.Wo). In the fused
# Wqkv and Wi, runs of equal length would be q's and half of k's: they are stored cut along their
# inputs, and re-laid by heads or columns where they are used (`model.layers.columns`).
RULES: Mapping[str, PartitionSpec] = {
    "model.embeddings.tok_embeddings.embedding": PartitionSpec("tensor", "fsdp"),  # [V, D]
    "model.layers.*.attn.Wqkv.kernel": PartitionSpec(("fsdp", "tensor"), None),  # [D, 3 D]
    "model.layers.*.attn.Wo.kernel": PartitionSpec("tensor", "fsdp"),  # [D, D]
    "model.layers.*.mlp.Wi.kernel": PartitionSpec(("fsdp", "tensor"), None),  # [D, 2 F]
    "model.layers.*.mlp.Wo.kernel": PartitionSpec("tensor", "fsdp"),  # [F, D]
    "head.dense.kernel": PartitionSpec("fsdp", "tensor"),  # [D, D]
}
UNTIED: Mapping[str, PartitionSpec] = {"decoder.kernel": PartitionSpec("fsdp", "tensor")}  # [D, V]


class Placement(NamedTuple):
    """Where arrays go, by path."""

    params: Specs
    moments: Specs  # of Adam's two moments, and of gradients as they are added up


def make_mesh(devices: Sequence[Any] | None = None, axes: config.Mesh | None = None) -> Mesh:
    """Returns a mesh over some JAX devices (default: all of them), which may be of a topology.

    Devices that share a host or a slice are neighbours along ``tensor`` first, then ``fsdp``, then
    ``replica``: the order in which the axes are in need of a fast network.

    Args:
      devices: what to spread over.
      axes: sizes (``config.mesh``); default: all devices on ``replica``.

    Raises:
      ValueError: sizes that are not those of so many devices, or of so many slices.
    """
    devices = jax.devices() if devices is None else devices
    arranged = arrange(mesh_shape(axes or config.Mesh(), len(devices)), devices)
    # Auto: under Explicit axes each operation would have to name its sharding.
    return Mesh(arranged, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arrange(shape: tuple[int, int, int], devices: Sequence[Any]) -> np.ndarray:
    """Returns the devices in that shape; raises ValueError for slices that it cannot span."""
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices > 1:  # joined by a slow network; `jax.make_mesh` refuses them
        across = _over_slices(shape, slices)
        within = tuple(size // count for size, count in zip(shape, across, strict=True))
        by_network = partial(mesh_utils.create_hybrid_device_mesh, within, across, devices)
    else:
        by_network = partial(mesh_utils.create_device_mesh, shape, devices)
    try:
        return by_network()
    except NotImplementedError:  # a TPU's torus, one side of which has to serve two axes
        return by_network(allow_split_physical_axes=True)


def mesh_shape(axes: config.Mesh, devices: int) -> tuple[int, int, int]:
    """Returns the sizes of the three axes over so many devices.

    Raises:
      ValueError: naming the field of ``config.mesh``, its value and what is allowed.
    """
    given = {name: size for name, size in dataclasses.asdict(axes).items() if size is not None}
    for name, size in given.items():
        if devices % size:
            allowed = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
            raise ValueError(
                f"config.mesh.{name}: {size} does not divide the number of devices, {devices}; "
                f"allowed: {allowed}"
            )
    product = math.prod(given.values())
    text = " x ".join(f"{name}={size}" for name, size in given.items())
    if len(given) == len(AXES) and product != devices:
        raise ValueError(
            f"config.mesh: {text} are {product} devices, and there are {devices}; allowed: a "
            f"product of {devices}, or None for replica or fsdp, which takes what the others leave"
        )
    if devices % product:
        raise ValueError(
            f"config.mesh: {text} are {product}, which does not divide the number of devices, "
            f"{devices}; allowed: a product that does"
        )
    rest = devices // product
    replica, fsdp, tensor = (given.get(name, rest) for name in AXES)
    return replica, fsdp, tensor


def _over_slices(shape: Sequence[int], slices: int) -> tuple[int, ...]:
    """Returns in how many parts each axis is spread over slices, the outermost axis first."""
    across, rest = [], slices
    for size in shape:
        across.append(math.gcd(size, rest))
        rest //= across[-1]
    if rest > 1:
        raise ValueError(
            f"config.mesh: axes of {dict(zip(AXES, shape, strict=True))} cannot be spread over "
            f"{slices} slices evenly; allowed: a replica that is a multiple of {slices}"
        )
    return tuple(across)


def check_model(mesh: Mesh, shapes: Shapes, heads: int) -> None:
    """Raises ValueError unless a model of these parameters and heads can be cut over the mesh."""
    if heads % mesh.shape[HEAD_AXIS]:
        allowed = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ValueError(
            f"config.mesh.tensor: {mesh.shape[HEAD_AXIS]} does not divide the model's {heads} "
            f"attention heads; allowed: {allowed}"
        )
    placement(mesh, shapes)


def placement(
    mesh: Mesh | AbstractMesh, shapes: Shapes, rules: Mapping[str, PartitionSpec] | None = None
) -> Placement:
    """Returns where parameters and moments of these shapes go on a mesh.

    Args:
      mesh: for the sizes of its axes.
      shapes: of all parameters, by path.
      rules: a spec for each pattern on paths; default ``RULES``, and ``UNTIED`` where it is meant.

    Raises:
      ValueError: a rule that matches no parameter; a parameter that two rules match, or a matrix
        that none does; a dimension that its axes do not divide. Names path, shape, axes and sizes.
    """
    if rules is None:
        rules = {**RULES, **(UNTIED if UNTIED.keys() <= shapes.keys() else {})}
    params: Specs = {}
    faults = []
    for path, shape in shapes.items():
        named = [pattern for pattern in rules if trees.matches(pattern, path)]
        if len(named) > 1:
            faults.append(f"{path} is named by two rules: {', '.join(map(repr, named))}")
        elif not named and len(shape) > 1:
            faults.append(f"{path} {list(shape)} is named by no rule")
        params[path] = rules[named[0]] if named else WHOLE
    trees.select(shapes, rules)  # each of them names something
    faults += _indivisible(mesh, shapes, params)
    if faults:
        raise ValueError("parameters cannot be placed on the mesh:\n  " + "\n  ".join(faults))
    moments = {path: _spread(mesh, shapes[path], spec) for path, spec in params.items()}
    return Placement(params, moments)


def _indivisible(mesh: Mesh | AbstractMesh, shapes: Shapes, specs: Specs) -> list[str]:
    """One line for each kind of parameter (all layers are alike) whose axes do not divide it."""
    faults: dict[tuple, str] = {}
    for path, spec in specs.items():
        shape = shapes[path]
        if len(spec) > len(shape):
            faults[spec, shape] = f"{path} {list(shape)} has fewer dimensions than its rule, {spec}"
            continue
        for dim in range(len(spec)):
            axes = _axes(spec, dim)
            parts = math.prod(mesh.shape[axis] for axis in axes)
            if shape[dim] % parts:
                text = " x ".join(f"{axis}={mesh.shape[axis]}" for axis in axes)
                line = f"{path} {list(shape)}: {shape[dim]} (dimension {dim}) is not divisible by "
                faults.setdefault((spec, shape, dim), f"{line}config.mesh's {text}")
    return list(faults.values())


def _axes(spec: PartitionSpec, dim: int) -> tuple[str, ...]:
    """The axes that cut one dimension, outermost first."""
    axes = spec[dim] if dim < len(spec) else None
    return () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


def _spread(
    mesh: Mesh | AbstractMesh, shape: tuple[int, ...], spec: PartitionSpec
) -> PartitionSpec:
    """A matrix's spec with ``replica`` on one more of its dimensions, as the innermost axis.

    On that of ``fsdp``, as gradients are added up over both and compilers make one reduce-scatter
    of a sum that is then cut along one dimension; without ``fsdp``, on the first. On another where
    ``replica`` does not divide it; where it divides none, the moments are as the parameters.
    """
    replicas = mesh.shape["replica"]
    if replicas == 1 or len(shape) < 2:
        return spec
    dims = [_axes(spec, dim) for dim in range(len(shape))]
    with_fsdp = [mesh.shape["fsdp"] > 1 and "fsdp" in axes for axes in dims]
    for dim in sorted(range(len(shape)), key=lambda dim: not with_fsdp[dim]):
        axes = dims[dim]
        if shape[dim] % (replicas * math.prod(mesh.shape[axis] for axis in axes)) == 0:
            dims[dim] = (*axes, "replica")
            return PartitionSpec(*(axes or None for axes in dims))
    return spec


def named(mesh: Mesh, specs: Specs) -> dict[str, NamedSharding]:
    """Returns the shardings of ``specs`` on a mesh."""
    return {path: NamedSharding(mesh, spec) for path, spec in specs.items()}


def auto_axes() -> dict[str, int]:
    """Returns the axes of the current mesh that the compiler divides work over, and their sizes.

    None for one device, without `jax.set_mesh` or within a `shard_map`; else those of size 1 as
    well, as the gradients of a `shard_map` are added up over axes that its specs leave out.
    """
    mesh = jax.sharding.get_abstract_mesh()
    sizes = {
        name: size
        for name, size, kind in zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
        if kind == AxisType.Auto
    }
    return sizes if math.prod(sizes.values()) > 1 else {}


def constrain(x: Array, *dims: Any) -> Array:
    """Returns ``x``, told to the compiler to be cut over the current mesh in this way.

    Args:
      x: an array under `jit`.
      dims: for each dimension, the axes that cut it, None where none does, or OPEN; dimensions
        beyond are not cut. Axes that the mesh lacks, or that do not divide ``x``, are left out.
    """
    sizes = auto_axes()
    if not sizes:
        return x
    spec: list[Any] = []
    for size, axes in zip(x.shape, dims, strict=False):
        if axes is not None and axes is not OPEN:
            wanted = (axes,) if isinstance(axes, str) else axes
            there = tuple(axis for axis in wanted if axis in sizes)
            divides = size % math.prod(sizes[axis] for axis in there) == 0
            axes = there or None if divides else OPEN
        spec.append(axes)
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*spec))


def constrain_all(arrays: Mapping[str, Array], specs: Specs) -> dict[str, Array]:
    """Returns arrays by path, each told to the compiler to be cut as its spec says."""
    return {path: constrain(leaf, *specs[path]) for path, leaf in arrays.items()}


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that keeps a whole copy on every device."""
    return NamedSharding(mesh, WHOLE)


def place(
    arrays: Mapping[str, Any], shardings: Mapping[str, NamedSharding]
) -> dict[str, jax.Array]:
    """Returns host arrays, whole and the same on every host, as global ones by path.

    Each device is sent its own part.
    """
    whole = {path: np.asarray(array) for path, array in arrays.items()}
    return {
        path: jax.make_array_from_callback(array.shape, shardings[path], array.__getitem__)
        for path, array in whole.items()
    }


def number(mesh: Mesh, value: np.generic) -> jax.Array:
    """Returns a number that is the same on every host, whole on every device."""
    return jax.make_array_from_callback((), replicated(mesh), lambda _: np.asarray(value))


def place_batch(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Returns this host's rows as global arrays, the leading dimension spread over the mesh."""
    sharding = NamedSharding(mesh, BATCH)
    return {
        name: jax.make_array_from_process_local_data(sharding, array)
        for name, array in batch.items()
    }


def host_part(mesh: Mesh) -> tuple[int, int]:
    """Returns which part of a batch's rows this host's devices hold, and of how many.

    Hosts that ``tensor`` joins hold the same rows, and have the same part.

    Raises:
      ValueError: devices of two hosts that hold some rows in common and others not.
    """
    blocks: dict[int, set[int]] = {}
    for (replica, fsdp, _), device in np.ndenumerate(mesh.devices):
        block = replica * mesh.shape["fsdp"] + fsdp
        blocks.setdefault(device.process_index, set()).add(block)
    parts = sorted({frozenset(held) for held in blocks.values()}, key=min)
    if len(frozenset.union(*parts)) != sum(map(len, parts)) or len(set(map(len, parts))) > 1:
        raise ValueError(
            f"config.mesh: with {dict(mesh.shape)}, hosts share some rows and not others; allowed: "
            "a tensor that divides a host's devices, or is a multiple of them"
        )
    return parts.index(frozenset(blocks[jax.process_index()])), len(parts)


def check_divisible(mesh: Mesh, rows: int, where: str) -> None:
    """Raises ValueError unless ``rows`` can be spread evenly over the mesh."""
    shards = batch_shards(mesh)
    if rows % shards:
        raise ValueError(
            f"{where}: {rows} rows cannot be spread evenly over config.mesh's replica x fsdp, "
            f"{shards}; allowed: multiples of {shards}"
        )


def batch_shards(mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of parts a batch is spread in; 1 where no mesh is set."""
    return math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES)
