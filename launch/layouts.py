"""One way of laying a training step over devices: compiled, measured, or found not to fit."""

import dataclasses
import math
import re
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from cpt_jax import config as config_lib
from cpt_jax import sharding
from cpt_jax.model import flops, modernbert
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training import optim
from cpt_jax.training.objectives import Vocabulary
from cpt_jax.training.step import State, compiler_options, make_train_step, mask_modes
from launch.hlo import Program
from launch.topologies import Topology

SEARCH = 8  # compilations that a search for the largest micro-batch may take
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a layout may differ in.

    Attributes:
      mesh: how many devices each axis has.
      rows: of a micro-batch, on each device that has rows of its own.
      microbatches: pieces that a step is taken in.
      remat: whether layers are computed again in the backward pass.
      attention: the kernels; None: those that the platform calls for.
    """

    mesh: config_lib.Mesh
    rows: int
    microbatches: int
    remat: bool
    attention: Any


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A step compiled for a layout.

    Attributes:
      executable: to run on devices that are there.
      program: what it does.
      devices: in the order in which the program numbers them.
      shards: parts that a batch is spread in.
      need: bytes of memory that it needs on a device, arguments and code included.
      state: bytes of parameters and moments among them.
      seconds: that compiling took.
    """

    executable: Any
    program: Program
    devices: list[Any]
    shards: int
    need: float
    state: float
    seconds: float


class OutOfMemory(Exception):
    """The compiler found that a layout does not fit.

    Attributes:
      need: bytes that it would need, where the compiler said so.
    """

    def __init__(self, message: str, need: float | None):
        super().__init__(message)
        self.need = need


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What all layouts of a table share: the run's model and phase."""

    config: config_lib.Config
    phase: config_lib.Phase
    spec: ModelSpec
    document: int  # tokens of a document

    @property
    def vocabulary(self) -> Vocabulary:
        """A tokenizer's, as far as a program's shapes depend on it."""
        size = self.spec.vocab_size
        return Vocabulary(size=size, mask_id=size - 1, special_ids=tuple(range(size - 5, size)))

    @property
    def widths(self) -> tuple[int, ...]:
        """Of everything that the model holds for each token."""
        hidden, inner = self.spec.hidden_size, self.spec.intermediate_size
        return hidden, 3 * hidden, inner, 2 * inner, self.spec.vocab_size

    def segment_ids(self, rows: int) -> np.ndarray:
        """The documents of some rows [rows, L]."""
        row = np.arange(self.config.data.seq_len, dtype=np.int32) // self.document + 1
        return np.broadcast_to(row, (rows, len(row)))

    def flops(self, rows: float) -> tuple[float, float]:
        """FLOPs that some rows need, and those of their layers' forward pass alone."""
        segments = self.segment_ids(1)
        targets = segments.size - int(segments.max())
        if self.phase.objective == "mlm":
            targets = round((self.phase.mask_rate or 0) * segments.size)
        modes = mask_modes(self.phase)
        whole = flops.training_flops(self.spec, segments, modes, targets)
        layers = flops.training_flops(self.spec, segments, modes, 0)
        return rows * whole, rows * layers / 3


def mesh_shape(layout: Layout, topology: Topology) -> tuple[int, ...]:
    """Returns how many devices the axes have on a topology; raises ValueError if it cannot be."""
    return tuple(sharding.make_mesh(topology.devices).shape.values())


def backend(experiment: Experiment, layout: Layout, topology: Topology) -> str:
    """Returns the kernels of attention; raises ValueError for those that cannot be."""
    return "xla"


def _prepare(experiment: Experiment, layout: Layout, topology: Topology) -> tuple[Any, Any, Any]:
    """Returns the mesh, the jitted step, and its arguments without their values."""
    config = experiment.config
    mesh = sharding.make_mesh(topology.devices)
    batch_size = layout.rows * layout.microbatches * sharding.batch_shards(mesh)
    phase = dataclasses.replace(
        experiment.phase, batch_size=batch_size, microbatches=layout.microbatches
    )
    length = config.data.seq_len
    dtype = jnp.dtype(config.model.dtype)
    tx = optim.make_tx(config.optimizer, phase.learning_rate.peak)
    step = make_train_step(
        modernbert.structure(experiment.spec, dtype=dtype, remat=layout.remat),
        phase,
        tx,
        first_step=0,
        tokens_per_step=batch_size * length,
        vocabulary=experiment.vocabulary,
        frozen=frozenset(),
        seed=config.seed,
    )
    whole = sharding.replicated(mesh)

    def abstract(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole)

    params = {
        path: abstract(jax.ShapeDtypeStruct(shape, jnp.float32))
        for path, shape in experiment.spec.param_shapes().items()
    }
    opt_state = jax.tree.map(abstract, jax.eval_shape(tx.init, params))
    state = State(abstract(jax.ShapeDtypeStruct((), jnp.int32)), params, opt_state)
    rows = NamedSharding(mesh, sharding.BATCH)
    batch = {
        "input_ids": jax.ShapeDtypeStruct((batch_size, length), jnp.int32, sharding=rows),
        "segment_ids": jax.ShapeDtypeStruct((batch_size, length), jnp.int32, sharding=rows),
        "ordinals": jax.ShapeDtypeStruct((batch_size,), jnp.uint32, sharding=rows),
    }
    options = compiler_options() if topology.devices[0].platform == "cpu" else {}
    return mesh, jax.jit(step, donate_argnums=0, compiler_options=options), (state, batch)


def compile_layout(experiment: Experiment, layout: Layout, topology: Topology) -> Compiled:
    """Returns the step compiled for devices that need not be there.

    Raises:
      OutOfMemory: the compiler says that it does not fit.
      ValueError: the mesh does not fit the devices, or a kernel cannot do what it would have to.
    """
    mesh, step, (state, batch) = _prepare(experiment, layout, topology)
    start = time.perf_counter()
    try:
        with jax.set_mesh(mesh):
            compiled = step.lower(state, batch).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemory(str(error), _needed(str(error))) from error
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    need = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes
    )
    size = sum(map(_shard_bytes, jax.tree.leaves(state)))
    devices, shards = list(mesh.devices.flat), sharding.batch_shards(mesh)
    return Compiled(compiled, Program(compiled.as_text()), devices, shards, need, size, seconds)


def _shard_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    assert leaf.sharding is not None
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def _needed(message: str) -> float | None:
    """The bytes that XLA's TPU compiler says a program would have used."""
    found = re.search(r"Used ([\d.]+)([KMG]?) of [\d.]+[KMG]? hbm", message)
    return float(found[1]) * _UNITS[found[2]] if found else None


def measure(
    experiment: Experiment, layout: Layout, topology: Topology, compiled: Compiled, steps: int
) -> float:
    """Returns the median seconds of ``steps`` steps on the devices, after one that is not timed."""
    mesh, _, (state, batch) = _prepare(experiment, layout, topology)
    params = modernbert.init_params(experiment.spec, jax.random.key(0))
    tx = optim.make_tx(experiment.config.optimizer, experiment.phase.learning_rate.peak)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    begun = State(jnp.int32(0), params, tx.init(params))
    begun = jax.device_put(begun, shardings)
    shape = batch["input_ids"].shape
    ids = np.random.default_rng(0).integers(0, experiment.spec.vocab_size - 5, shape, np.int32)
    rows = {
        "input_ids": ids,
        "segment_ids": experiment.segment_ids(len(ids)),
        "ordinals": np.arange(len(ids), dtype=np.uint32),
    }
    placed = sharding.place_batch(mesh, rows)
    seconds = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        begun, metrics = jax.block_until_ready(compiled.executable(begun, placed))
        seconds.append(time.perf_counter() - start)
    if not np.isfinite(metrics["loss"]):
        raise FloatingPointError(f"the loss of a measured step is {metrics['loss']}")
    return statistics.median(seconds[1:])


class Search:
    """For the most rows that fit a memory, in few questions.

    Memory is close to a straight line in the rows, so each question is where the line through the
    two answers nearest to what fits meets the limit. It ends when one row more was asked and does
    not fit, or the line says so.
    """

    def __init__(self, limit: float):
        self._limit = limit
        self._fit, self._too_many = 0, math.inf
        self._needs: dict[int, float] = {}  # by rows
        self._asked = 0

    def next_rows(self) -> int | None:
        """Returns the rows to ask for; None: the most that fitted are the answer."""
        if self._asked == 0:
            return 1
        if self._too_many <= self._fit + 1 or self._asked == SEARCH:
            return None
        guess = self._line()
        if guess is not None and guess <= self._fit:
            return None
        if guess is None:  # one size known, or none
            guess = 2 * self._fit
            if self._fit in self._needs:  # fewer than fit: as if nothing was there without rows
                guess = math.floor(self._fit * self._limit / self._needs[self._fit])
        return int(min(max(guess, self._fit + 1), self._too_many - 1))

    def learn(self, rows: int, fits: bool, need: float | None) -> None:
        """Takes an answer: whether so many rows fit, and the bytes they need, if known."""
        self._asked += 1
        if need is not None:
            self._needs[rows] = need
        if fits:
            self._fit = max(self._fit, rows)
        else:
            self._too_many = min(self._too_many, rows)

    def _line(self) -> int | None:
        """The rows at which the line through the two nearest answers meets the limit."""
        if len(self._needs) < 2:
            return None
        a, b = sorted(sorted(self._needs, key=lambda rows: abs(rows - self._fit))[:2])
        slope = (self._needs[b] - self._needs[a]) / (b - a)
        return math.floor(b + (self._limit - self._needs[b]) / slope) if slope > 0 else None
