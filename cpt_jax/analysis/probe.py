"""A small network on frozen states, and what a bag of words comes to without any."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int

from cpt_jax.seeds import hash_seed


class Training(NamedTuple):
    """How a probe is trained: the paper's settings."""

    epochs: int = 3
    batch: int = 4
    learning_rate: float = 2e-5
    dropout: float = 0.1


def train(
    states: Mapping[str, Float[np.ndarray, "n D"]],
    labels: Mapping[str, Int[np.ndarray, " n"]],
    seed: int,
    how: Training = Training(),  # noqa: B008
) -> Int[np.ndarray, " test"]:
    """Dropout, linear, GELU, dropout, linear; the epoch that does best on dev is kept.

    Args:
      states, labels: of train, dev and test.
      seed: of initial weights, order and dropout.
      how: settings.

    Returns: the labels predicted for test.
    """
    width, classes = states["train"].shape[1], 1 + max(int(each.max()) for each in labels.values())
    keys = jax.random.split(jax.random.key(hash_seed("probe", seed)), 3)
    init = jax.nn.initializers.lecun_normal()
    params = {
        "inner": init(keys[0], (width, width)),
        "inner_bias": jnp.zeros(width),
        "outer": init(keys[1], (width, classes)),
        "outer_bias": jnp.zeros(classes),
    }
    optimizer = optax.adamw(how.learning_rate)

    def logits(params, x, key=None):
        def drop(x, key):
            kept = jax.random.bernoulli(key, 1 - how.dropout, x.shape)
            return jnp.where(kept, x / (1 - how.dropout), 0)

        first, second = jax.random.split(key) if key is not None else (None, None)
        x = drop(x, first) if key is not None else x
        x = jax.nn.gelu(x @ params["inner"] + params["inner_bias"])
        x = drop(x, second) if key is not None else x
        return x @ params["outer"] + params["outer_bias"]

    def loss(params, x, y, key):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, x, key), y).mean()

    @jax.jit
    def epoch(params, moments, xs, ys, key):
        def step(carry, batch):
            params, moments, key = carry
            key, own = jax.random.split(key)
            updates, moments = optimizer.update(
                jax.grad(loss)(params, *batch, own), moments, params
            )
            return (optax.apply_updates(params, updates), moments, key), None

        return jax.lax.scan(step, (params, moments, key), (xs, ys))[0][:2]

    rng = np.random.default_rng(hash_seed("probe", seed))
    moments, best, predicted = optimizer.init(params), -1.0, np.zeros(0, int)
    steps = len(labels["train"]) // how.batch
    for number in range(how.epochs):
        order = rng.permutation(len(labels["train"]))[: steps * how.batch]
        xs = jnp.asarray(states["train"][order]).reshape(steps, how.batch, width)
        ys = jnp.asarray(labels["train"][order]).reshape(steps, how.batch)
        key = jax.random.fold_in(keys[2], number)
        params, moments = epoch(params, moments, xs, ys, key)
        found = np.asarray(logits(params, jnp.asarray(states["dev"])).argmax(-1))
        accuracy = float((found == labels["dev"]).mean())
        if accuracy > best:
            best = accuracy
            predicted = np.asarray(logits(params, jnp.asarray(states["test"])).argmax(-1))
    return predicted


def bag_of_words(
    rows: Mapping[str, Sequence[Sequence[int]]],
    labels: Mapping[str, Int[np.ndarray, " n"]],
    words: int,
) -> Int[np.ndarray, " test"]:
    """What multinomial naive Bayes predicts for test from how often each token is in a row."""
    classes = 1 + int(labels["train"].max())
    counts = np.ones((classes, words))
    for row, label in zip(rows["train"], labels["train"], strict=True):
        np.add.at(counts[label], row, 1)
    scores = np.log(counts / counts.sum(1, keepdims=True))
    prior = np.log(np.bincount(labels["train"], minlength=classes) / len(labels["train"]))
    return np.array([(prior + scores[:, row].sum(1)).argmax() for row in rows["test"]])


def wilson(right: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959963984540054
    share, extra = right / of, z * z / of
    middle = (share + extra / 2) / (1 + extra)
    half = z / (1 + extra) * np.sqrt(share * (1 - share) / of + extra / (4 * of))
    return float(middle - half), float(middle + half)
