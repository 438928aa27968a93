"""How a kernel that goes from row to row behaves under `jax.vmap`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def over_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which under `jax.vmap` is called once, on the rows of all it is mapped over.

    `jax.vmap` of a loop whose end depends on data makes one loop of all, up to the latest end, each
    turn of which computes for all and throws away what is past a row's own. Here mapping makes
    more rows, each with its own end as before.

    Args:
      function: of arrays alone, which it does not differentiate (call it within the functions of
        a `jax.custom_vjp`), to a tree of arrays. The first dimension of each of them is rows, which
        it treats independently of each other.
    """
    call = jax.custom_batching.custom_vmap(function)

    @call.def_vmap
    def rule(size: int, mapped: list[bool], *arrays: Array) -> tuple[Any, Any]:
        def fold(x: Array, is_mapped: bool) -> Array:
            whole = x if is_mapped else jnp.broadcast_to(x, (size, *x.shape))
            return whole.reshape(size * whole.shape[1], *whole.shape[2:])

        def unfold(x: Array) -> Array:
            return x.reshape(size, x.shape[0] // size, *x.shape[1:])

        out = jax.tree.map(unfold, call(*map(fold, arrays, mapped)))
        return out, jax.tree.map(lambda _: True, out)

    return call
