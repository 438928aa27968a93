"""What is spread over the hosts of a run, whole again on one."""

from collections.abc import Iterator, Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils


def all_rows(held: np.ndarray, part: int) -> np.ndarray:
    """Returns one number for each row of a batch, [B], of which a process holds its part alone.

    All processes get all of them, and wait for each other.

    Args:
      held: int32 or int64, [B / parts], of this process's rows.
      part: which part of the batch they are; several processes may hold the same.
    """
    if jax.process_count() == 1:
        return held
    words = np.ascontiguousarray(held).view(np.int32)  # JAX would cut int64 down to int32
    parts, words = multihost_utils.process_allgather((np.int32(part), words))
    _, holders = np.unique(parts, return_index=True)
    return np.ascontiguousarray(words[holders]).reshape(-1).view(held.dtype)


def fetch(arrays: Mapping[str, jax.Array]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields arrays whole, on the host, wherever their parts lie: one at a time.

    All processes take part, and take all of them.
    """
    for name, array in arrays.items():
        if not (array.is_fully_addressable or array.is_fully_replicated):
            array = multihost_utils.process_allgather(array, tiled=True)
        yield name, np.asarray(array)
