"""One way of laying a training step over devices: compiled, measured, or found not to fit."""

import contextlib
import dataclasses
import math
import re
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cpt_jax import config as config_lib
from cpt_jax import sharding, trees
from cpt_jax.model import attention, flops, modernbert
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training import optim
from cpt_jax.training.objectives import Vocabulary
from cpt_jax.training.state import State, abstract_state
from cpt_jax.training.step import abstract_batch, jit_train_step, make_train_step, mask_modes
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
      attention: the kernels; None: the fastest that the devices can run.
    """

    mesh: config_lib.Mesh
    rows: int
    microbatches: int
    remat: bool
    attention: config_lib.AttentionBackend | None


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


def choices(
    experiment: Experiment, layout: Layout, topology: Topology
) -> tuple[tuple[int, ...], config_lib.AttentionBackend]:
    """Returns the sizes of the mesh's axes and the kernels that a layout comes to on a topology.

    Raises:
      ValueError: the devices cannot be so divided, the model not so cut, or the kernels not serve.
    """
    config, spec = experiment.config, experiment.spec
    mesh = sharding.make_mesh(topology.devices, layout.mesh)
    sharding.check_model(mesh, spec.param_shapes(), spec.num_attention_heads)
    model = dataclasses.replace(config.model, attention=layout.attention)
    asked = dataclasses.replace(config, model=model)
    kernels = attention.choose(asked, spec, topology.devices[0]).backend
    return tuple(mesh.shape.values()), kernels


def _prepare(
    experiment: Experiment, layout: Layout, topology: Topology
) -> tuple[Any, State, dict[str, jax.ShapeDtypeStruct], Mesh]:
    """Returns a training run's jitted step, its arguments without their values, and the mesh."""
    config, spec = experiment.config, experiment.spec
    mesh = sharding.make_mesh(topology.devices, layout.mesh)
    batch_size = layout.rows * layout.microbatches * sharding.batch_shards(mesh)
    phase = dataclasses.replace(
        experiment.phase, batch_size=batch_size, microbatches=layout.microbatches
    )
    tx = optim.make_tx(config.optimizer, phase.learning_rate.peak)
    step = make_train_step(
        modernbert.structure(
            spec,
            dtype=jnp.dtype(config.model.dtype),
            remat=layout.remat,
            attention=choices(experiment, layout, topology)[1],
        ),
        phase,
        tx,
        first_step=0,
        tokens_per_step=batch_size * config.data.seq_len,
        vocabulary=experiment.vocabulary,
        frozen=trees.select(spec.param_shapes(), phase.freeze),
        seed=config.seed,
    )
    state = abstract_state(spec.param_shapes(), tx, mesh)
    batch = abstract_batch(mesh, batch_size, config.data.seq_len)
    return jit_train_step(step, state), state, batch, mesh


def compile_layout(experiment: Experiment, layout: Layout, topology: Topology) -> Compiled:
    """Returns the step compiled for devices that need not be there.

    Raises:
      OutOfMemory: the compiler says that it does not fit.
      ValueError: a layout that `choices` refuses.
    """
    step, state, batch, mesh = _prepare(experiment, layout, topology)
    start = time.perf_counter()
    try:
        # Not `set_mesh`: what kernels compute while they are traced would be sent to these devices.
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh), _default(topology.devices[0]):
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


def _default(device: Any) -> contextlib.AbstractContextManager:
    """Makes a GPU the default device, as its kernels ask that one what they may use.

    Others do not ask; and what they compute while they are traced must run where something is.
    """
    return jax.default_device(device) if device.platform == "gpu" else contextlib.nullcontext()


def _shard_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    assert leaf.sharding is not None
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def _needed(message: str) -> float | None:
    """The bytes that XLA's TPU compiler says a program would have used, or its temporaries alone.

    The latter is what libtpu 0.0.42 says of a step.
    """
    found = re.search(
        r"(?:[Uu]sed |temporaries \()([\d.]+)([KMG]?)(?:i?B)?(?: of [\d.]|\) exceeds)", message
    )
    return float(found[1]) * _UNITS[found[2]] if found else None


def measure(
    experiment: Experiment, layout: Layout, topology: Topology, compiled: Compiled, steps: int
) -> float:
    """Returns the median seconds of ``steps`` steps on the devices, after one that is not timed."""
    _, state, batch, mesh = _prepare(experiment, layout, topology)
    spec, key = experiment.spec, jax.random.key(0)
    tx = optim.make_tx(experiment.config.optimizer, experiment.phase.learning_rate.peak)

    def begin() -> State:
        params = modernbert.init_params(spec, key)
        return State(jnp.int32(0), params, tx.init(params))

    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    begun = jax.jit(begin, out_shardings=where)()
    shape = batch["input_ids"].shape
    ids = np.random.default_rng(0).integers(0, spec.vocab_size - 5, shape, np.int32)
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
    two answers nearest to the limit meets it, or halfway where an answer has shown that line wrong.
    It ends when one row more was asked and does not fit: near the limit compilers compute again on
    their own, so that the line is no proof (of large on a v5e it said 5 rows, and 6 fit).
    """

    def __init__(self, limit: float, first: int = 1):
        """Starts with the question for ``first`` rows, best near the answer."""
        self._limit, self._first = limit, first
        self._fit, self._too_many = 0, math.inf
        self._needs: dict[int, float] = {}  # by rows
        self._asked = 0

    def next_rows(self) -> int | None:
        """Returns the rows to ask for; None: the most that fitted are the answer."""
        if self._asked == 0:
            return self._first
        if self._too_many <= self._fit + 1 or self._asked == SEARCH:
            return None
        guess = self._line()
        if guess is None:  # one size known, or none
            guess = 2 * self._fit
            for rows, need in self._needs.items():  # as if nothing was there without rows
                guess = math.floor(rows * self._limit / need)
        if guess >= self._too_many:
            guess = (self._fit + self._too_many) // 2
        return int(max(guess, self._fit + 1))

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
        a, b = sorted(sorted(self._needs, key=lambda n: abs(self._needs[n] - self._limit))[:2])
        slope = (self._needs[b] - self._needs[a]) / (b - a)
        return math.floor(b + (self._limit - self._needs[b]) / slope) if slope > 0 else None
