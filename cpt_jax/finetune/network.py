"""An encoder with a head as functions of parameters, and one step of training it."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from cpt_jax import config
from cpt_jax.finetune.examples import Settings
from cpt_jax.model import modernbert
from cpt_jax.model.modernbert import Params
from cpt_jax.training import optim

ENCODER = "model."  # how the paths begin of what `ModernBert.encode` uses

MakeHead = Callable[[nnx.Rngs], nnx.Module]
Batch = Mapping[str, Array | np.ndarray]


class State(NamedTuple):
    """What a seed carries from step to step.

    Attributes:
      params: fp32, by path, the encoder's and the head's.
      opt_state: Adam's.
      active: False once the seed has stopped: nothing of it moves any more.
    """

    params: Params
    opt_state: optax.OptState
    active: Bool[Array, "*S"]


class Network:
    """An encoder and a head.

    Args:
      graphdef: the encoder's, of `modernbert.split` or `structure`.
      params: its parameters. Trained are those that `ModernBert.encode` uses, and those that the
        head has by the same path, which begin with the values here (``head.dense.kernel``).
      make_head: from `nnx.Rngs` to a module with ``__call__(hidden, batch, dropout_key)`` to
        scores, ``loss(scores, batch)`` to a sum and what to divide it by, and
        ``predict(scores, batch)`` to arrays by name, whose first dimension is the rows.

    Raises:
      ValueError: a parameter that has one shape in the model and another in the head.
    """

    def __init__(
        self, graphdef: nnx.GraphDef[modernbert.ModernBert], params: Params, make_head: MakeHead
    ):
        self._graphdef, self._make_head = graphdef, make_head
        self._head_graphdef: nnx.GraphDef[Any] = nnx.split(
            nnx.eval_shape(lambda: make_head(nnx.Rngs(0)))
        )[0]
        head = jax.eval_shape(lambda: modernbert.split(make_head(nnx.Rngs(0)))[1])
        for path in sorted(head.keys() & params.keys()):
            if head[path].shape != params[path].shape:
                shapes = list(params[path].shape), list(head[path].shape)
                raise ValueError(f"{path}: {shapes[0]} in the model, {shapes[1]} in the head")
        self._of_head = frozenset(head)
        self._of_encoder = frozenset(path for path in params if path.startswith(ENCODER))
        self.new = self._of_head - params.keys()  # what a seed draws
        used = self._of_encoder | self._of_head
        self.pretrained = {path: value for path, value in params.items() if path in used}
        # `merge` asks for all that the graphdef names, such as the decoder's.
        self._unused = {
            path: jax.ShapeDtypeStruct(value.shape, value.dtype)
            for path, value in params.items()
            if path not in self._of_encoder
        }

    def initial(self, pretrained: Params, key: PRNGKeyArray) -> Params:
        """The parameters that a seed begins with; the key draws what is new."""
        fresh = modernbert.split(self._make_head(nnx.Rngs(key)))[1]
        return {**pretrained, **{path: fresh[path] for path in self.new}}

    def loss(self, params: Params, batch: Batch, key: PRNGKeyArray | None) -> Float[Array, ""]:
        """The mean loss of a batch, 0 where nothing in it counts; the key switches dropout on."""
        head, scores = self._scores(params, batch, key)
        total, weight = head.loss(scores, batch)
        return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)

    def predict(self, params: Params, batch: Batch) -> dict[str, Array]:
        """What the head predicts, without dropout."""
        head, scores = self._scores(params, batch, None)
        return head.predict(scores, batch)

    def _scores(self, params: Params, batch: Batch, key: PRNGKeyArray | None) -> tuple[Any, Any]:
        """The head, and its scores."""
        encoder_key, head_key = (None, None) if key is None else jax.random.split(key)
        unused = {path: jnp.zeros(a.shape, a.dtype) for path, a in self._unused.items()}
        encoder = {path: params[path] for path in self._of_encoder}
        model = modernbert.merge(self._graphdef, {**unused, **encoder})
        hidden = model.encode(batch["input_ids"], batch["segment_ids"], dropout_key=encoder_key)
        head = modernbert.merge(self._head_graphdef, {path: params[path] for path in self._of_head})
        return head, head(hidden, batch, head_key)


def rate(step: ArrayLike, steps: int, warmup: float) -> Float[Array, ""]:
    """The share of its peak that the learning rate has in a step, counted from 0.

    Up in a straight line over the first ``ceil(warmup steps)`` steps, the first of which has 0,
    then down to the 0 that the step after the last would have: transformers'
    `get_linear_schedule_with_warmup`.
    """
    rising = math.ceil(warmup * steps)
    step = jnp.asarray(step, jnp.float32)
    falling = (steps - step) / max(steps - rising, 1)
    return jnp.where(step < rising, step / max(rising, 1), falling)


def make_tx(network: Network, settings: Settings) -> optax.GradientTransformation:
    """torch's AdamW with its default betas and epsilon, and the peak rates of both groups."""
    of_new = settings.head_learning_rate
    of_new = settings.learning_rate if of_new is None else of_new
    adamw = config.Optimizer(
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        weight_decay=settings.weight_decay,
        decay_mode="adamw",
        clip_norm=settings.clip_norm,
    )

    def scaled(updates: Any, _: Any) -> Any:
        return {
            path: update * (of_new if path in network.new else settings.learning_rate)
            for path, update in updates.items()
        }

    return optax.chain(optim.make_tx(adamw, peak=1.0), optax.stateless(scaled))


def make_train_step(network: Network, settings: Settings, steps: int) -> Callable[..., Any]:
    """Returns ``(state, batch, key, step) -> (state, loss)`` of one seed.

    A seed whose loss, gradient or update is not finite keeps what it had and is stopped; the loss
    returned is NaN then. The key is the seed's, for dropout.

    Args:
      network: what is trained.
      settings: how.
      steps: of the whole training.
    """
    tx = make_tx(network, settings)

    def train_step(
        state: State, batch: Batch, key: PRNGKeyArray, step: ArrayLike
    ) -> tuple[State, Float[Array, ""]]:
        step_key = jax.random.fold_in(key, step)
        loss, grads = jax.value_and_grad(network.loss)(state.params, batch, step_key)
        lr = rate(step, steps, settings.warmup)
        *moved, update = optim.apply(tx, lr, grads, state.opt_state, state.params)
        finite = update.finite & jnp.isfinite(loss)
        active = state.active & finite
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(active, new, old),
            tuple(moved),
            (state.params, state.opt_state),
        )
        return State(params, opt_state, active), jnp.where(finite, loss, jnp.nan)

    return train_step
