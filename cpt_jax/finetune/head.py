"""What a head is: the part of a network that stands on the encoder and knows a kind of task."""

from collections.abc import Mapping
from typing import Any

from flax import nnx
from jaxtyping import Array, Float

from cpt_jax.model.modernbert import Hidden, Key

Batch = Mapping[str, Array]
Sums = tuple[Float[Array, ""], Float[Array, ""]]


class Head(nnx.Module):
    """Scores, their loss and what they predict; all of it may be mapped over seeds by `jax.vmap`.

    A batch holds a row for each text, sentence or window: ``input_ids``, ``segment_ids`` (0:
    padding) and ``weight`` (0: a row that only fills the batch), and the targets that
    `finetune.rows` names. Padding and rows of weight 0 change neither loss nor gradient.
    """

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> Any:
        """Scores, from what `ModernBert.encode` gives; a key switches dropout on."""
        raise NotImplementedError

    def loss(self, scores: Any, batch: Batch) -> Sums:
        """The summed loss in nats, and the weight to divide it by, both fp32."""
        raise NotImplementedError

    def predict(self, scores: Any, batch: Batch) -> dict[str, Array]:
        """Predictions by name, of fixed shapes, with rows as their first dimension."""
        raise NotImplementedError
