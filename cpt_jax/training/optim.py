"""How parameters move: the learning rate in tokens, the one optax chain, and freezing.

Every phase of a run uses the same chain, so that Adam's moments and step count cross from one
objective to the next untouched. The learning rate is not part of it: the step computes
it from the tokens of the phase and hands it to `apply`. No option changes the structure of the
optimizer's state.

Parameters, gradients and moments are flat dicts from dotted path to float32 array.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float

from cpt_jax.config import Phase, ScheduleKind

DecayMode = Literal["composer", "adamw"]
FreezeMode = Literal["zero_grad", "strict"]

Params = Mapping[str, Array]


# From 0 to 1 as a phase goes from its peak rate to its end rate, over the share of it that is done.
DESCENTS: dict[ScheduleKind, Callable[[Array], Array]] = {
    "warmup_constant": jnp.zeros_like,
    "one_minus_sqrt": jnp.sqrt,
    "linear": lambda progress: progress,
    "cosine": lambda progress: (1 - jnp.cos(jnp.pi * progress)) / 2,
}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate over the tokens of one phase.

    From 0 to ``peak`` in a straight line over ``warmup_tokens`` (if any), then over what remains
    of ``total_tokens``, with p running from 0 to 1:

      warmup_constant   peak
      one_minus_sqrt    end + (peak - end) (1 - sqrt(p))            (Warner et al.)
      linear            end + (peak - end) (1 - p)
      cosine            end + (peak - end) (1 + cos(pi p)) / 2

    where end = end_fraction * peak (warmup_constant has no end). It stays at the end beyond it.
    """

    kind: ScheduleKind
    peak: float
    total_tokens: int
    end_fraction: float = 0.0
    warmup_tokens: int = 0

    def __call__(self, tokens: ArrayLike) -> Float[Array, ""]:
        """Returns the float32 rate of a step before which the phase had seen ``tokens``.

        Before, not after, as in Composer: a warmup's first step has rate 0, and the rate at the
        end of the phase belongs to a step that is no longer taken. Takes a Python number or a
        float32 array. On the device, convert before multiplying: ``jnp.float32(step) *
        tokens_per_step`` is within one rounding, while the product of int32s overflows after 683
        steps of 384 x 8192 tokens.
        """
        tokens = jnp.asarray(tokens, jnp.float32)
        warmup = jnp.float32(self.warmup_tokens)
        progress = _fraction(tokens - warmup, self.total_tokens - self.warmup_tokens)
        descent = DESCENTS[self.kind](progress)
        # This form of the formulas above is exact at both ends.
        rate = self.peak * (1 - descent) + self.peak * self.end_fraction * descent
        return jnp.where(tokens < warmup, self.peak * _fraction(tokens, self.warmup_tokens), rate)


def schedule(phase: Phase) -> Schedule:
    """Returns the learning rate of a phase, over the tokens of that phase alone."""
    rate = phase.learning_rate
    return Schedule(rate.kind, rate.peak, phase.tokens, rate.end_fraction, rate.warmup_tokens)


def _fraction(tokens: Float[Array, ""], total: int) -> Float[Array, ""]:
    """tokens / total within [0, 1], and exactly 1 from ``total`` on, also where that is 0."""
    whole = jnp.float32(total)  # a Python int beyond 2^31 would overflow JAX's int32
    return jnp.where(tokens < whole, jnp.clip(tokens / jnp.maximum(whole, 1), 0, 1), 1)


def decay_mask(params: Mapping[str, Array | jax.ShapeDtypeStruct]) -> dict[str, bool]:
    """Returns which parameters decay: those of rank 2 or more, so no bias and no norm."""
    return {path: leaf.ndim >= 2 for path, leaf in params.items()}


def make_tx(
    *,
    peak: float,
    weight_decay: float,
    decay_mode: DecayMode = "composer",
    b1: float = 0.9,
    b2: float = 0.98,
    eps: float = 1e-6,
    clip_norm: float | None = None,
) -> optax.GradientTransformation:
    """Returns the chain from gradients to updates, before the learning rate: clip, Adam, decay.

    One exists per phase, as ``peak`` and freezing are a phase's own; all share one state.

    Args:
      peak: the phase's highest learning rate, which "composer" divides by.
      weight_decay: the share taken off a decayed parameter at the peak rate ("composer": p <- p -
        lr * adam - (lr / peak) * weight_decay * p), or its coefficient in torch's AdamW ("adamw":
        lr * weight_decay * p).
      decay_mode: which of the two.
      b1: decay of the first moment.
      b2: decay of the second moment.
      eps: added to the root of the second moment after bias correction.
      clip_norm: largest global norm of the gradients; None for no limit.

    Raises:
      ValueError: for a peak that is not above 0.
    """
    if not peak > 0:
        raise ValueError(f"peak {peak} is not above 0")
    decay = {"composer": weight_decay / peak, "adamw": weight_decay}[decay_mode]
    return optax.chain(
        # identity's state is clip's: () in both, so that phases may differ in it.
        optax.identity() if clip_norm is None else optax.clip_by_global_norm(clip_norm),
        optax.scale_by_adam(b1, b2, eps, mu_dtype=jnp.float32),
        optax.add_decayed_weights(decay, mask=decay_mask),
    )


class UpdateInfo(NamedTuple):
    """What a step did."""

    grad_norm: Float[Array, ""]  # global norm before clipping; with zero_grad, without the frozen
    update_norm: Float[Array, ""]  # global norm of the change of the parameters; 0 if skipped
    finite: Bool[Array, ""]  # False: the step was skipped


def apply(
    tx: optax.GradientTransformation,
    lr: Float[Array, ""],
    grads: Params,
    opt_state: optax.OptState,
    params: Params,
    *,
    frozen: frozenset[str] = frozenset(),
    freeze_mode: FreezeMode = "zero_grad",
) -> tuple[dict[str, Array], optax.OptState, UpdateInfo]:
    """Returns the parameters and optimizer state after one step, and what it did.

    A step whose gradients or updates are not all finite (or so large that the square of their norm
    is not) leaves parameters, moments and Adam's count exactly as they were; training goes on with
    the next batch.

    Frozen parameters, by mode:
      zero_grad: their gradients are zeroed before the chain (the paper's intervention). They add
        nothing to the clip norm. They still drift: kept moments fade out over some hundred steps
        and move them meanwhile, and weight decay goes on.
      strict: their updates are zeroed after the chain. Values stay bit-identical; moments keep
        receiving true gradients, which also count in the clip norm, so that the other parameters'
        updates are those of a run without freezing.

    Raises:
      ValueError: for a frozen path that is no parameter, or parameters that are not float32.
    """
    _check(params, frozen)
    never = frozenset()
    before, after = {"zero_grad": (frozen, never), "strict": (never, frozen)}[freeze_mode]
    grads = {path: leaf.astype(jnp.float32) for path, leaf in grads.items()}
    grads = freeze_zero_grad(grads, before)
    grad_norm = optax.tree.norm(grads)
    directions: Any
    directions, new_state = tx.update(grads, opt_state, params)
    updates = {path: -lr * direction for path, direction in directions.items()}
    updates = freeze_strict(updates, after)
    update_norm = optax.tree.norm(updates)
    finite = jnp.isfinite(grad_norm) & jnp.isfinite(update_norm)

    def choose(new, old):
        return jnp.where(finite, new, old)

    new_params = {
        # Not even zero is added to a strictly frozen leaf: -0.0 + 0.0 is 0.0.
        path: leaf if path in after else choose(leaf + updates[path], leaf)
        for path, leaf in params.items()
    }
    new_state = jax.tree.map(choose, new_state, opt_state)
    return new_params, new_state, UpdateInfo(grad_norm, choose(update_norm, 0.0), finite)


def freeze_zero_grad(grads: Params, frozen: frozenset[str]) -> dict[str, Array]:
    """Returns the gradients with zeros for the frozen paths; goes before the chain."""
    return {p: jnp.zeros_like(leaf) if p in frozen else leaf for p, leaf in grads.items()}


def freeze_strict(updates: Params, frozen: frozenset[str]) -> dict[str, Array]:
    """Returns the updates with zeros for the frozen paths; goes after everything else."""
    return {p: jnp.zeros_like(leaf) if p in frozen else leaf for p, leaf in updates.items()}


def _check(params: Params, frozen: frozenset[str]) -> None:
    if frozen - params.keys():
        raise ValueError(f"frozen paths that are no parameters: {sorted(frozen - params.keys())}")
    other = {path: str(leaf.dtype) for path, leaf in params.items() if leaf.dtype != jnp.float32}
    if other:  # Adam's second moment takes the parameter's dtype
        raise ValueError(f"parameters and moments are float32, these are not: {other}")
