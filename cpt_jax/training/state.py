"""What training carries from step to step: its arrays, and where they live on a mesh."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Int

from cpt_jax import sharding


class State(NamedTuple):
    """The state of a run; its structure is the same in every phase.

    Attributes:
      step: int32, optimizer steps of the run so far.
      params: fp32 arrays by path.
      opt_state: of the optax chain: Adam's moments (fp32) and count.
    """

    step: Int[Array, ""]
    params: dict[str, Array]
    opt_state: optax.OptState


def abstract_state(shapes: sharding.Shapes, tx: optax.GradientTransformation, mesh: Mesh) -> State:
    """Returns a state's shapes, dtypes and shardings (`jax.ShapeDtypeStruct`), without arrays.

    Args:
      shapes: of the parameters, by path.
      tx: the optax chain.
      mesh: of devices that need not be there (a topology's).

    Raises:
      ValueError: parameters that the mesh cannot cut.
    """
    placed = sharding.placement(mesh, shapes)
    whole = sharding.replicated(mesh)

    def abstract(leaf, spec) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    def of_optimizer(path, leaf) -> Any:
        # Moments are dicts like the parameters'; anything else, such as a count, is a number.
        name = getattr(path[-1], "key", "")
        return abstract(leaf, placed.moments.get(name, sharding.WHOLE))

    params = {
        path: abstract(jax.ShapeDtypeStruct(shape, jnp.float32), placed.params[path])
        for path, shape in shapes.items()
    }
    opt_state = jax.tree.map_with_path(of_optimizer, jax.eval_shape(tx.init, params))
    step: Any = jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)
    return State(step, params, opt_state)


def new_optimizer(tx: optax.GradientTransformation, state: State) -> optax.OptState:
    """Returns the chain's first state, each part made where the abstract ``state`` has it."""
    where = jax.tree.map(lambda leaf: leaf.sharding, state.opt_state)
    return jax.jit(tx.init, out_shardings=where)(state.params)
