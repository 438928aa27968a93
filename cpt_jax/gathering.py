"""What is spread over the hosts of a run, whole again on one."""

from collections.abc import Iterator, Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils


def all_rows(part: np.ndarray) -> np.ndarray:
    """Returns the rows [B, ...] of which each process holds its part [B/P, ...], in their order.

    For int32 and int64, and for small things: all processes get all rows, and wait for each other.
    """
    if jax.process_count() == 1:
        return part
    halves = np.ascontiguousarray(part).view(np.int32)  # JAX would cut int64 down to int32
    return np.asarray(multihost_utils.process_allgather(halves, tiled=True)).view(part.dtype)


def fetch(arrays: Mapping[str, jax.Array]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields arrays whole, on the host, wherever their parts lie: one at a time.

    All processes take part, and take all of them.
    """
    for name, array in arrays.items():
        if not (array.is_fully_addressable or array.is_fully_replicated):
            array = multihost_utils.process_allgather(array, tiled=True)
        yield name, np.asarray(array)
