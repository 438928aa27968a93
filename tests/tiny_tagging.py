"""A tagging task, an encoder and a head small enough to train many seeds of in seconds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from cpt_jax.finetune.examples import Settings
from cpt_jax.finetune.network import Network
from cpt_jax.finetune.rows import Row
from cpt_jax.model import modernbert
from cpt_jax.model.layers import dropout
from tests.model_oracle import TINY, noisy_params

TAGS = 3
SPEC = dataclasses.replace(
    TINY,
    num_hidden_layers=2,
    layer_types=("full_attention", "sliding_attention"),
    embedding_dropout=0.1,
    attention_out_dropout=0.1,
    mlp_dropout=0.1,
)
SETTINGS = Settings(epochs=2, batch=4, dropout=0.1, warmup=0.1, head_learning_rate=1e-3)


class Tagger(nnx.Module):
    """The encoder's own prediction head, dropout and a linear layer."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.head = modernbert.PredictionHead(SPEC, rngs=rngs, dtype=jnp.float32)
        self.drop = nnx.Dropout(0.1)
        self.classifier = nnx.Linear(SPEC.hidden_size, TAGS, rngs=rngs)

    def __call__(self, hidden, batch, dropout_key):
        return self.classifier(dropout(self.drop, self.head(hidden), dropout_key))

    def loss(self, scores, batch):
        counts = (batch["labels"] >= 0) * batch["weight"][:, None]
        labels = jnp.maximum(batch["labels"], 0)
        nll = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
        return (counts * nll).sum(), counts.sum()

    def predict(self, scores, batch):
        return {"probabilities": jax.nn.softmax(scores)}


def network(make_head=Tagger) -> Network:
    graphdef = modernbert.structure(SPEC)
    return Network(graphdef, noisy_params(SPEC.param_shapes()), lambda rngs: make_head(rngs=rngs))


def rows(count: int, longest: int = 60, seed: int = 0) -> list[Row]:
    """Every other token has a tag, which is the token's number by three."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        ids = rng.integers(5, SPEC.vocab_size, rng.integers(4, longest + 1)).astype(np.int32)
        labels = np.where(np.arange(len(ids)) % 2, ids % TAGS, -1).astype(np.int32)
        found.append(Row(i, ids, {"labels": labels}))
    return found


def splits(train: int = 22, longest: int = 60) -> dict:
    return {"train": rows(train, longest), "dev": rows(6, seed=1), "test": rows(7, seed=2)}


def accuracy(of_rows, predicted) -> float:
    """The share of tags that are the most probable."""
    hits = [
        predicted[i]["probabilities"][: len(row.input_ids)].argmax(-1)[labels >= 0]
        == labels[labels >= 0]
        for i, row in enumerate(of_rows)
        if (labels := row.targets["labels"]) is not None
    ]
    return float(np.concatenate(hits).mean())
