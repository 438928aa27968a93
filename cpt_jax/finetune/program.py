"""What is compiled: a step of several seeds at once, and their predictions.

A seed is trained by functions of its own state and batch. `jax.vmap` makes them functions of all
seeds of a device, and seeds are spread over devices, which have nothing to tell each other.
Everything that a seed draws (head, order of the data, dropout) is keyed by a hash of the seed:
whom it is trained beside changes nothing but roundings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from cpt_jax import memory
from cpt_jax.finetune.examples import Settings
from cpt_jax.finetune.network import Network, State, make_train_step, make_tx
from cpt_jax.model.modernbert import Params
from cpt_jax.seeds import hash_seed
from cpt_jax.training.step import compiler_options

SEEDS = "seeds"  # the mesh's only axis


class Programs:
    """The programs of some number of seeds: two for each length that a batch can have.

    Args:
      network: what is trained.
      settings: how.
      steps: of the whole training.
      seeds: how many at once; a multiple of the devices.
      devices: those that the seeds are spread over.
    """

    def __init__(
        self, network: Network, settings: Settings, steps: int, seeds: int, devices: Sequence[Any]
    ):
        self.seeds = seeds
        self._network, self._tx = network, make_tx(network, settings)
        self._train_step = make_train_step(network, settings, steps)
        self._mesh = Mesh(np.asarray(devices), (SEEDS,), axis_types=(AxisType.Auto,))
        self._spread = NamedSharding(self._mesh, PartitionSpec(SEEDS))
        self._whole = NamedSharding(self._mesh, PartitionSpec())
        self._compiled: dict[Any, Any] = {}
        self._choose = jax.jit(self._of_all(_choose, 3), donate_argnums=1)

    def start(self, seeds: Sequence[int], active: Sequence[bool]) -> State:
        """The state of all seeds before the first step."""
        pretrained = jax.device_put(self._network.pretrained, self._whole)
        keys = self.keys(seeds, "head")
        return jax.jit(self._of_all(self._initial, 2, 1))(keys, self.mask(active), pretrained)

    def _initial(self, key: PRNGKeyArray, active: Array, pretrained: Params) -> State:
        params = self._network.initial(pretrained, key)
        return State(params, self._tx.init(params), active)

    def keys(self, seeds: Sequence[int], purpose: str) -> Array:
        """A key for each seed."""
        keys = jnp.stack([jax.random.key(hash_seed(seed, purpose)) for seed in seeds])
        return jax.device_put(keys, self._spread)

    def mask(self, values: Sequence[bool]) -> Bool[Array, " S"]:
        """A truth value for each seed."""
        return jax.device_put(np.asarray(values, bool), self._spread)

    def train(
        self, state: State, batch: Mapping[str, np.ndarray], keys: Array, step: int
    ) -> tuple[State, Float[Array, " S"]]:
        """The state after a step, and each seed's loss. The state given is used up.

        Args:
          state: of all seeds.
          batch: each seed's, stacked.
          keys: of dropout.
          step: counted from 0.
        """
        number = jax.device_put(np.int32(step), self._whole)
        arguments = (state, jax.device_put(dict(batch), self._spread), keys, number)
        return self._program("train", *arguments)(*arguments)

    def predict(self, params: Params, batch: Mapping[str, np.ndarray]) -> dict[str, Array]:
        """What each seed's parameters predict for a batch that all share."""
        arguments = (params, jax.device_put(dict(batch), self._whole))
        return self._program("predict", *arguments)(*arguments)

    def choose(self, chosen: Sequence[bool], old: Params, new: Params) -> Params:
        """The new parameters of the chosen seeds, the old ones of the others. Uses up the old."""
        return self._choose(self.mask(chosen), old, new)

    def bytes_needed(
        self, training: Mapping[str, np.ndarray], predicting: Mapping[str, np.ndarray]
    ) -> int:
        """Bytes of a device that training and predicting need.

        Of what is compiled: the state, the best parameters so far, and what a program uses besides.

        Args:
          training: the largest batch that a seed is trained on.
          predicting: the largest that is predicted.
        """
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), self.seeds))
        active = jax.ShapeDtypeStruct((self.seeds,), jnp.bool_)
        initial = jax.vmap(self._initial, in_axes=(0, 0, None))
        state = jax.eval_shape(initial, keys, active, self._network.pretrained)
        stacked = jax.tree.map(lambda a: np.broadcast_to(a, (self.seeds, *a.shape)), dict(training))
        state, stacked, keys = _abstract((state, stacked, keys), self._spread)
        step, batch = _abstract((np.int32(0), dict(predicting)), self._whole)
        train = _used(self._program("train", state, stacked, keys, step))
        predict = _used(self._program("predict", state.params, batch))
        devices = self._mesh.devices.size
        best, resident = _bytes(state.params) // devices, _bytes(state) // devices
        return max(train + best, predict + resident)

    def bytes_available(self) -> int | None:
        """Bytes that a device has left for them; None where it does not tell.

        Devices of the CPU share its memory.
        """
        device = self._mesh.devices.flat[0]
        if device.platform == "cpu":
            left = memory.available()
            return None if left is None else left // self._mesh.devices.size
        told = device.memory_stats() or {}
        return told["bytes_limit"] - told["bytes_in_use"] if "bytes_limit" in told else None

    def _of_all(self, function: Callable[..., Any], own: int, shared: int = 0) -> Any:
        """A seed's function as one of all seeds; the last arguments are the same for all."""
        axes = (0,) * own + (None,) * shared
        specs = tuple(PartitionSpec() if axis is None else PartitionSpec(SEEDS) for axis in axes)
        return jax.shard_map(
            jax.vmap(function, in_axes=axes),
            mesh=self._mesh,
            in_specs=specs,
            out_specs=PartitionSpec(SEEDS),
            check_vma=False,  # as in `model.attention`
        )

    def _program(self, name: str, *arguments: Any) -> Any:
        """What is compiled for such arguments."""
        leaves, structure = jax.tree.flatten(arguments)
        key = (name, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        if key not in self._compiled:
            function, donated = {
                "train": (self._of_all(self._train_step, 3, 1), (0,)),
                "predict": (self._of_all(self._network.predict, 1, 1), ()),
            }[name]
            options = compiler_options(self._mesh.devices.flat[0].platform)
            jitted = jax.jit(function, donate_argnums=donated, compiler_options=options)
            self._compiled[key] = jitted.lower(*arguments).compile()
        return self._compiled[key]


def _choose(chosen: Array, old: Params, new: Params) -> Params:
    return jax.tree.map(lambda one, other: jnp.where(chosen, other, one), old, new)


def _abstract(tree: Any, where: NamedSharding) -> Any:
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
    )


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _used(program: Any) -> int:
    """Bytes of a device that hold a program's arguments, results and what is between."""
    used = program.memory_analysis()
    whole = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
    return whole - used.alias_size_in_bytes
