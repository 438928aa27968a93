"""The device mesh, and where arrays live on it.

Rows of a batch are spread over the axes ``replica`` and ``fsdp``; parameters and optimizer
state are replicated, which is the fast layout for a model that fits on one device.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

BATCH_AXES, HEAD_AXIS = ("replica", "fsdp"), "tensor"
AXES = (*BATCH_AXES, HEAD_AXIS)
BATCH = PartitionSpec(BATCH_AXES)


def make_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """Returns a data-parallel mesh over some JAX devices (default: all of them)."""
    devices = jax.devices() if devices is None else devices
    # make_mesh would choose Explicit axes, under which each operation must name its sharding.
    types = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh((len(devices), 1, 1), AXES, axis_types=types, devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that keeps a whole copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def place_batch(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Returns this host's rows as global arrays, the leading dimension spread over the mesh."""
    sharding = NamedSharding(mesh, BATCH)
    return {
        name: jax.make_array_from_process_local_data(sharding, array)
        for name, array in batch.items()
    }


def check_divisible(mesh: Mesh, rows: int, where: str) -> None:
    """Raises ValueError unless ``rows`` can be spread evenly over the mesh."""
    shards = batch_shards(mesh)
    if rows % shards:
        raise ValueError(f"{where}: {rows} rows cannot be spread over {shards} devices evenly")


def batch_shards(mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of parts a batch is spread in; 1 where no mesh is set."""
    return math.prod(mesh.shape.get(axis, 1) for axis in BATCH_AXES)
