"""How parameters move: the learning rate in tokens, the one optax chain, and freezing.

Every phase of a run uses the same chain, so that Adam's moments and step count cross from one
objective to the next untouched. The learning rate is not part of it: the step computes
it from the tokens of the phase and hands it to `apply`. No option changes the structure of the
optimizer's state.

Parameters, gradients and moments are flat dicts from dotted path to float32 array.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float

from cpt_jax.config import Optimizer, Phase, ScheduleKind

FreezeMode = Literal["zero_grad", "strict"]

Params = Mapping[str, Array]


# From 0 to 1 as a phase goes from its peak rate to its end rate, over the share of it that is done.
DESCENTS: dict[ScheduleKind, Callable[[Array], Array]] = {
    "warmup_constant": jnp.zeros_like,
    "one_minus_sqrt": jnp.sqrt,
    "linear": lambda progress: progress,
    "cosine": lambda progress: (1 - jnp.cos(jnp.pi * progress)) / 2,
}


def learning_rate(phase: Phase, tokens: ArrayLike) -> Float[Array, ""]:
    """Returns the float32 rate of a step before which the phase had seen ``tokens``.

    From 0 to ``peak`` in a straight line over ``warmup_tokens`` (if any), then over what remains of
    the phase's tokens, with p running from 0 to 1:

      warmup_constant   peak
      one_minus_sqrt    end + (peak - end) (1 - sqrt(p))            (Warner et al.)
      linear            end + (peak - end) (1 - p)
      cosine            end + (peak - end) (1 + cos(pi p)) / 2

    where end = end_fraction * peak (warmup_constant has no end). It stays at the end beyond it.

    Before the step, not after, as in Composer: a warmup's first step has rate 0, and the rate at
    the end of the phase belongs to a step that is no longer taken.

    Args:
      phase: whose ``learning_rate`` and ``tokens`` are meant.
      tokens: a Python number or a float32 array. On the device, convert before multiplying:
        ``jnp.float32(step) * tokens_per_step`` is within one rounding, while the product of int32s
        overflows after 683 steps of 384 x 8192 tokens.
    """
    rate = phase.learning_rate
    tokens = jnp.asarray(tokens, jnp.float32)
    warmup = jnp.float32(rate.warmup_tokens)
    progress = _fraction(tokens - warmup, phase.tokens - rate.warmup_tokens)
    descent = DESCENTS[rate.kind](progress)
    # This form of the formulas above is exact at both ends.
    falling = rate.peak * (1 - descent) + rate.peak * rate.end_fraction * descent
    return jnp.where(tokens < warmup, rate.peak * _fraction(tokens, rate.warmup_tokens), falling)


def _fraction(tokens: Float[Array, ""], total: int) -> Float[Array, ""]:
    """tokens / total within [0, 1], and exactly 1 from ``total`` on, also where that is 0."""
    whole = jnp.float32(total)  # a Python int beyond 2^31 would overflow JAX's int32
    return jnp.where(tokens < whole, jnp.clip(tokens / jnp.maximum(whole, 1), 0, 1), 1)


def decay_mask(params: Mapping[str, Array | jax.ShapeDtypeStruct]) -> dict[str, bool]:
    """Returns which parameters decay: those of rank 2 or more, so no bias and no norm."""
    return {path: leaf.ndim >= 2 for path, leaf in params.items()}


def make_tx(optimizer: Optimizer, peak: float) -> optax.GradientTransformation:
    """Returns the chain from gradients to updates, before the learning rate: clip, Adam, decay.

    One exists per phase, as ``peak`` is a phase's own; all share one state.

    Args:
      optimizer: the run's. Its ``weight_decay`` is the share taken off a decayed parameter at the
        peak rate ("composer": p <- p - lr * adam - (lr / peak) * weight_decay * p), or the
        coefficient in torch's AdamW ("adamw": lr * weight_decay * p).
      peak: the phase's highest learning rate, which "composer" divides by.
    """
    clip, decay = optimizer.clip_norm, optimizer.weight_decay
    return optax.chain(
        # identity's state is clip's: () in both, so that phases may differ in it.
        optax.identity() if clip is None else optax.clip_by_global_norm(clip),
        optax.scale_by_adam(optimizer.b1, optimizer.b2, optimizer.eps, mu_dtype=jnp.float32),
        optax.add_decayed_weights(
            {"composer": decay / peak, "adamw": decay}[optimizer.decay_mode], mask=decay_mask
        ),
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
    grads = _zeroed(grads, before)
    grad_norm = optax.tree.norm(grads)
    directions: Any
    directions, new_state = tx.update(grads, opt_state, params)
    updates = {path: -lr * direction for path, direction in directions.items()}
    updates = _zeroed(updates, after)
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


def _zeroed(tree: Params, paths: frozenset[str]) -> dict[str, Array]:
    return {p: jnp.zeros_like(leaf) if p in paths else leaf for p, leaf in tree.items()}


def _check(params: Params, frozen: frozenset[str]) -> None:
    if frozen - params.keys():
        raise ValueError(f"frozen paths that are no parameters: {sorted(frozen - params.keys())}")
    other = {path: str(leaf.dtype) for path, leaf in params.items() if leaf.dtype != jnp.float32}
    if other:  # Adam's second moment takes the parameter's dtype
        raise ValueError(f"parameters and moments are float32, these are not: {other}")
