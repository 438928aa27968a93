"""What stands on the encoder for each kind of task: Flax NNX modules with their losses.

A head's parameters have paths of their own, but for ModernBERT's pretrained prediction head
(`head.dense`, `head.norm`), which it shares with the model by name: as transformers'
`ModernBertForSequenceClassification` and `ModernBertForTokenClassification` do, text and token
heads go through it, then through dropout and a linear layer `classifier`. That layer and all
losses are fp32 whatever the dtype of the rest.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from cpt_jax.finetune.examples import Kind, Settings
from cpt_jax.finetune.head import Batch, Head, Sums
from cpt_jax.finetune.spans import SpanHead
from cpt_jax.model.layers import dropout, truncated_normal
from cpt_jax.model.modernbert import Hidden, Key, PredictionHead
from cpt_jax.model.ranges import PADDING
from cpt_jax.model.spec import ModelSpec


def make_head(
    kind: Kind,
    spec: ModelSpec,
    labels: int,
    settings: Settings,
    *,
    rngs: nnx.Rngs,
    dtype: DTypeLike = jnp.float32,
    positive: Sequence[float] | None = None,
) -> Head:
    """The head of a task, what is new in it drawn from ``rngs``.

    Args:
      kind: of the task.
      spec: the encoder's.
      labels: how many; of kind tagging, how many tags.
      settings: `pooling`, `dropout` and `positive_weights` are used.
      rngs: where initial parameters come from. Traceable: `jax.vmap` over keys draws a head a seed.
      dtype: of the prediction head.
      positive: of kind multilabel with `settings.positive_weights`: those of the training split,
        by `positive_weights`. A head with other weights is another program.

    Raises:
      ValueError: positive weights that are asked for and not given, given and not asked for, or
        not one a label.
    """
    wanted = labels if kind == "multilabel" and settings.positive_weights else 0
    given = 0 if positive is None else len(positive)
    if given != wanted:
        raise ValueError(
            f"positive: {given} weights, needed are {wanted}: one for each label of kind "
            "multilabel where settings.positive_weights asks for them, else none"
        )
    if kind == "spans":
        return SpanHead(spec.hidden_size, labels, settings.dropout, rngs=rngs)
    common: dict[str, Any] = {"rate": settings.dropout, "rngs": rngs, "dtype": dtype}
    if kind == "tagging":
        return TokenHead(spec, labels, **common)
    if kind == "relation":
        return RelationHead(spec, labels, **common)
    if kind == "multilabel":
        weights = tuple(positive or (1.0,) * labels)
        return MultilabelHead(spec, labels, settings.pooling, weights, **common)
    return TextHead(spec, labels, settings.pooling, **common)


def positive_weights(labels: Float[np.ndarray, "N C"]) -> tuple[float, ...]:
    """For each label, how many texts are without it for one that has it: torch's `pos_weight`.

    With it a label's positives weigh as much in the loss as its negatives. 1 for a label that
    no text has, or every one.

    Args:
      labels: 1 where a text of the training split has the label, 0 where not.
    """
    having = labels.sum(0)
    ratio = (len(labels) - having) / np.maximum(having, 1)
    some_have_it = (having > 0) & (having < len(labels))
    return tuple(np.where(some_have_it, ratio, 1.0).tolist())


class _Classifier(Head):
    """ModernBERT's prediction head, dropout and a linear layer of so many outputs.

    Args:
      states: how many states the linear layer reads, side by side.
    """

    def __init__(
        self,
        spec: ModelSpec,
        labels: int,
        *,
        rate: float,
        rngs: nnx.Rngs,
        dtype: DTypeLike,
        states: int = 1,
    ):
        inputs = states * spec.hidden_size
        self.head = PredictionHead(spec, rngs=rngs, dtype=dtype)
        self.drop = nnx.Dropout(rate)
        # transformers draws classifiers with the standard deviation inputs ** -0.5.
        init = truncated_normal(spec, inputs**-0.5)
        self.classifier = nnx.Linear(inputs, labels, kernel_init=init, dtype=jnp.float32, rngs=rngs)

    def _classify(self, features: Array, dropout_key: Key) -> Array:
        return self.classifier(dropout(self.drop, features, dropout_key))


class _OneLabel(_Classifier):
    """Cross-entropy, a mean over rows."""

    def loss(self, scores: Float[Array, "B C"], batch: Batch) -> Sums:
        """The cross-entropy of the rows, and their weight."""
        return _cross_entropy(scores, batch["label"], batch["weight"])

    def predict(self, scores: Float[Array, "B C"], batch: Batch) -> dict[str, Array]:
        """``probabilities`` [B, C]."""
        return {"probabilities": jax.nn.softmax(scores)}


class TextHead(_OneLabel):
    """One label for a text: cross-entropy, a mean over rows."""

    def __init__(
        self, spec: ModelSpec, labels: int, pooling: Literal["cls", "mean"], **common: Any
    ):
        super().__init__(spec, labels, **common)
        self.pooling = pooling

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> Float[Array, "B C"]:
        """Logits, from the first token or the mean over the row's tokens but padding."""
        pooled = hidden[:, 0]
        if self.pooling == "mean":
            pooled = _mean(hidden, batch["segment_ids"] != PADDING)
        return self._classify(self.head(pooled), dropout_key)


class RelationHead(_OneLabel):
    """One label for two entities marked in a text: cross-entropy, a mean over rows.

    It reads the states of the two opening markers, in the order in which the targets name them,
    side by side (Baldini Soares et al. 2019, "Matching the Blanks", entity starts), each through
    the prediction head.
    """

    def __init__(self, spec: ModelSpec, labels: int, **common: Any):
        super().__init__(spec, labels, states=2, **common)

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> Float[Array, "B C"]:
        """Logits."""
        markers = jnp.take_along_axis(hidden, batch["markers"][..., None], axis=1, mode="clip")
        features = self.head(markers)
        return self._classify(features.reshape(len(features), -1), dropout_key)


class MultilabelHead(TextHead):
    """Any number of labels for a text: binary cross-entropy, a mean over rows and labels."""

    def __init__(
        self,
        spec: ModelSpec,
        labels: int,
        pooling: Literal["cls", "mean"],
        positive: tuple[float, ...],
        **common: Any,
    ):
        super().__init__(spec, labels, pooling, **common)
        self.positive = positive

    def loss(self, scores: Float[Array, "B C"], batch: Batch) -> Sums:
        """The mean over labels of each row, summed; and the rows' weight."""
        has, weight = batch["labels"], batch["weight"]
        missed = jnp.asarray(self.positive, jnp.float32) * has * jax.nn.softplus(-scores)
        each = (missed + (1 - has) * jax.nn.softplus(scores)).mean(-1)
        return jnp.where(weight > 0, weight * each, 0).sum(), weight.sum()

    def predict(self, scores: Float[Array, "B C"], batch: Batch) -> dict[str, Array]:
        """``probabilities`` [B, C], each by itself."""
        return {"probabilities": jax.nn.sigmoid(scores)}


class TokenHead(_Classifier):
    """A tag for each word, at its first token: cross-entropy, a mean over words."""

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> Float[Array, "B L C"]:
        """Logits of every token."""
        return self._classify(self.head(hidden), dropout_key)

    def loss(self, scores: Float[Array, "B L C"], batch: Batch) -> Sums:
        """The cross-entropy of the tokens whose label is not negative, and their weight."""
        labels = batch["labels"]
        weight = jnp.where(labels >= 0, batch["weight"][:, None], 0)
        return _cross_entropy(scores, labels, weight)

    def predict(self, scores: Float[Array, "B L C"], batch: Batch) -> dict[str, Array]:
        """``probabilities`` [B, L, C]."""
        return {"probabilities": jax.nn.softmax(scores)}


def _mean(hidden: Hidden, real: Array) -> Float[Array, "B D"]:
    """The mean over real tokens, summed in fp32; 0 where there is none."""
    total = jnp.where(real[..., None], hidden, 0).sum(1, dtype=jnp.float32)
    return (total / jnp.maximum(real.sum(1), 1)[:, None]).astype(hidden.dtype)


def _cross_entropy(logits: Float[Array, "*n C"], labels: Array, weight: Float[Array, "*n"]) -> Sums:
    """Of what has weight; labels elsewhere may be anything."""
    counts = weight > 0
    labels = jnp.where(counts, labels, 0)
    each = optax.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.where(counts, weight * each, 0).sum(), weight.sum()
