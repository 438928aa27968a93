"""One optimizer step and one evaluation step: pure functions of state and batch."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Int

from cpt_jax import sharding
from cpt_jax.config import Phase
from cpt_jax.model import modernbert
from cpt_jax.seeds import hash_seed
from cpt_jax.training import loss, objectives, optim
from cpt_jax.training.state import State

Batch = Mapping[str, Array]

LOSS_CHUNK = 1024  # tokens of a device whose logits exist at one time: 0.2 GB at 50,368 words


@functools.cache
def compiler_options(platform: str | None = None) -> dict[str, str | bool]:
    """Returns what `jax.jit` of a step is to be compiled with for a platform, that at hand if None.

    On the CPU: the fences between blocks kept while operations are fused (`modernbert.Layer`), and
    products not handed to YNNPACK, which computes the small ones of attention on one thread.
    """
    if (platform or jax.default_backend()) != "cpu":
        return {}
    options: dict[str, str | bool] = {
        "xla_disable_hlo_passes": "cse_barrier_expander",
        "xla_cpu_experimental_ynn_fusion_type": "",
    }
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:  # the second is experimental: another jaxlib may not know it
        del options["xla_cpu_experimental_ynn_fusion_type"]
    return options


def batch_loss(
    graphdef: nnx.GraphDef[modernbert.ModernBert],
    params: dict[str, Array],
    targets: objectives.Targets,
    segment_ids: Int[Array, "B L"],
    mask_mode: str | tuple[str, ...],
    dropout_key: Array | None = None,
) -> loss.LossSums:
    """Returns the summed loss (nats), target count and correct predictions of a batch."""
    model = modernbert.merge(graphdef, params)
    hidden = model.encode(targets.input_ids, segment_ids, mask_mode, dropout_key=dropout_key)
    if targets.positions is not None:
        hidden = jnp.take_along_axis(hidden, targets.positions[..., None], axis=1)
        hidden = sharding.constrain(hidden, sharding.BATCH_AXES)
    return loss.linear_cross_entropy(
        sharding.constrain(model.predict(hidden), sharding.BATCH_AXES),
        *model.decoder_weights(),
        targets.labels,
        chunk=LOSS_CHUNK,
        shards=sharding.batch_shards(jax.sharding.get_abstract_mesh()),
    )


def phase_targets(
    phase: Phase, batch: Batch, vocabulary: objectives.Vocabulary, key: Array
) -> objectives.Targets:
    """Returns inputs and labels of a batch under the phase's objective."""
    if phase.objective == "clm":
        return objectives.next_token(batch["input_ids"], batch["segment_ids"])
    assert phase.mask_rate is not None  # config.parse
    return objectives.masked_token(
        batch["input_ids"],
        batch["segment_ids"],
        batch["ordinals"],
        key,
        rate=phase.mask_rate,
        vocabulary=vocabulary,
    )


def mask_modes(phase: Phase) -> str | tuple[str, ...]:
    """Returns the phase's attention mask: one mode, or one per layer."""
    default = "causal" if phase.objective == "clm" else "bidirectional"
    return phase.mask_mode or default


def accumulate(gradient: Callable, params: dict[str, Array], batch: Batch, pieces: int) -> Any:
    """Returns the sum of ``gradient(params, piece)`` over equal pieces of a batch, in turn."""
    if pieces == 1:
        return gradient(params, batch)

    def cut(array):
        # Strided, so that every device keeps its own rows in every piece.
        return jnp.swapaxes(array.reshape(-1, pieces, *array.shape[1:]), 0, 1)

    def add(total, piece):
        return jax.tree.map(jnp.add, total, gradient(params, piece)), None

    cut_batch = {name: cut(array) for name, array in batch.items()}
    one = {name: array[0] for name, array in cut_batch.items()}
    shapes = jax.eval_shape(gradient, params, one)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.scan(add, zeros, cut_batch)[0]


def make_train_step(
    graphdef: nnx.GraphDef[modernbert.ModernBert],
    phase: Phase,
    tx: optax.GradientTransformation,
    *,
    first_step: int,
    tokens_per_step: int,
    vocabulary: objectives.Vocabulary,
    frozen: frozenset[str],
    seed: int,
) -> Callable[[State, Batch], tuple[State, dict[str, Array]]]:
    """Returns ``(state, batch) -> (state, metrics)`` for one phase.

    The gradient is that of the mean loss over all targets of the batch, however the batch is cut
    into micro-batches or spread over devices: sums and counts are added, never means averaged.

    Args:
      graphdef: the model.
      phase: its config.
      tx: the optax chain.
      first_step: the run's step at which the phase starts.
      tokens_per_step: tokens of a batch, padding included.
      vocabulary: for corruption.
      frozen: paths of the parameters that the phase freezes.
      seed: of the run; keys corruption by row ordinal and dropout by batch.
    """
    mask_key = jax.random.key(hash_seed(seed, "corruption"))
    dropout_key = jax.random.key(hash_seed(seed, "dropout"))

    def loss_of(params, piece: Batch):
        targets = phase_targets(phase, piece, vocabulary, mask_key)
        # A batch's first ordinal is its own in the whole run, and in every fork of it.
        key = jax.random.fold_in(dropout_key, piece["ordinals"][0])
        modes = mask_modes(phase)
        sums = batch_loss(graphdef, params, targets, piece["segment_ids"], modes, key)
        return sums.nll, (sums, targets.overflow)

    def train_step(state: State, batch: Batch):
        mesh = jax.sharding.get_abstract_mesh()
        shapes = {path: leaf.shape for path, leaf in state.params.items()}
        spread = sharding.placement(mesh, shapes).moments if mesh.size > 1 else None

        def gradient(params, piece):
            grads, sums = jax.grad(loss_of, has_aux=True)(params, piece)
            # A piece's gradients are added up where the moments live, a part on each device.
            return grads if spread is None else sharding.constrain_all(grads, spread), sums

        grads, (sums, overflow) = accumulate(gradient, state.params, batch, phase.microbatches)
        count = jnp.maximum(sums.count, 1)
        grads = jax.tree.map(lambda gradient: gradient / count, grads)
        lr = optim.learning_rate(phase, (state.step - first_step) * jnp.float32(tokens_per_step))
        # Parameters are updated there as well; `jit_train_step` collects the new ones.
        params = state.params if spread is None else sharding.constrain_all(state.params, spread)
        params, opt_state, update = optim.apply(
            tx,
            lr,
            grads,
            state.opt_state,
            params,
            frozen=frozen,
            freeze_mode=phase.freeze_mode,
        )
        metrics = {
            "loss": sums.loss,
            "accuracy": sums.accuracy,
            "targets": sums.count,
            "overflow": overflow,
            "lr": lr,
            **update._asdict(),
        }
        return State(state.step + 1, params, opt_state), metrics

    return train_step


def jit_train_step(
    train_step: Callable[[State, Batch], tuple[State, dict[str, Array]]], state: State
) -> Any:
    """Returns a compiled ``train_step``, whose state is donated and stays where it is.

    Call it under ``jax.set_mesh`` of the state's mesh; lower it for devices that are not there
    under ``jax.sharding.use_abstract_mesh``.

    Args:
      train_step: of `make_train_step`.
      state: arrays, or `state.abstract_state`.
    """
    where = jax.tree.map(lambda leaf: leaf.sharding, state)
    mesh = where.step.mesh
    return jax.jit(
        train_step,
        donate_argnums=0,
        out_shardings=(where, sharding.replicated(mesh)),
        compiler_options=compiler_options(mesh.devices.flat[0].platform),
    )


def abstract_batch(mesh: Mesh, rows: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes, dtypes and shardings of a batch, over all hosts, as a step takes it."""
    shapes = {
        "input_ids": ((rows, length), jnp.int32),
        "segment_ids": ((rows, length), jnp.int32),
        "ordinals": ((rows,), jnp.uint32),
    }
    where = NamedSharding(mesh, sharding.BATCH)
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=where)
        for name, (shape, dtype) in shapes.items()
    }


def make_eval_step(
    graphdef: nnx.GraphDef[modernbert.ModernBert],
    mask_rate: float,
    vocabulary: objectives.Vocabulary,
) -> Callable[[dict[str, Array], Batch], dict[str, loss.LossSums]]:
    """Returns ``(params, batch) -> sums`` under both objectives, by ``mlm`` and ``clm``.

    Corruption is keyed by row alone, so that all runs are measured on the same masks.
    """
    key = jax.random.key(hash_seed("held-out corruption"))

    def eval_step(params, batch: Batch) -> dict[str, Any]:
        ids, segments = batch["input_ids"], batch["segment_ids"]
        masked = objectives.masked_token(
            ids, segments, batch["ordinals"], key, rate=mask_rate, vocabulary=vocabulary
        )
        following = objectives.next_token(ids, segments)
        return {
            "mlm": batch_loss(graphdef, params, masked, segments, "bidirectional"),
            "clm": batch_loss(graphdef, params, following, segments, "causal"),
        }

    return eval_step
