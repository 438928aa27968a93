"""Cross-entropy of a linear layer over the vocabulary, without a tokens x vocabulary array.

At 8192 tokens a row and 50,368 words the logits of one row alone are 1.6 GB in float32. They are
made a chunk at a time, and the gradient is taken while the chunk's logits are there (the idea of
Liger's and Cut Cross-Entropy's fused kernels): the backward pass only scales it. Against
recomputing the logits in the backward pass that is three matrix products instead of four.

Everything is a sum, never a mean: sums over micro-batches, devices and hosts add up to those of
the whole batch, and are divided once, by the whole batch's count.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpt_jax import sharding
from cpt_jax.training.objectives import IGNORE


class LossSums(NamedTuple):
    """Sums over the targets of a batch, float32."""

    nll: Float[Array, ""]  # nats; the only differentiable one
    count: Float[Array, ""]  # targets
    correct: Float[Array, ""]  # targets that no other word outscores (a tie counts as correct)

    @property
    def loss(self) -> Float[Array, ""]:
        """Nats per target; 0 where there was none."""
        return self.nll / jnp.maximum(self.count, 1)

    @property
    def accuracy(self) -> Float[Array, ""]:
        """Share of the targets predicted; 0 where there was none."""
        return self.correct / jnp.maximum(self.count, 1)


def linear_cross_entropy(
    hidden: Float[Array, "B C D"],
    kernel: Float[Array, "V D"],
    bias: Float[Array, " V"] | None,
    labels: Int[Array, "B C"],
    *,
    chunk: int = 1024,
    shards: int = 1,
) -> LossSums:
    """Returns the summed loss of ``softmax(hidden @ kernel.T + bias)`` against ``labels``.

    Products are taken in ``hidden``'s dtype and accumulated in float32; logits, softmax and sums
    are float32, and so is the gradient of a float32 ``kernel``. A batch without targets gives 0
    and zero gradients. Differentiable once, in hidden, kernel and bias.

    Args:
      hidden: inputs of the decoder, in the compute dtype.
      kernel: the decoder's weights, a row per word (the embedding, where tied).
      bias: the decoder's bias; None: it has none.
      labels: ids in [0, V), or IGNORE.
      chunk: tokens of a shard whose logits exist at one time; each chunk is a share of every row.
      shards: parts into which B is split over devices. Each part is summed on its own, and all
        are added once, at the end; with 1, a batch that is split over devices has the [V D]
        gradient reduced over them at every chunk (same result, slower).

    Raises:
      ValueError: if ``chunk`` or ``shards`` is below 1, or ``shards`` does not divide B.
    """
    if chunk < 1:
        raise ValueError(f"chunk {chunk} is not at least 1 token")
    if shards < 1 or hidden.shape[0] % shards:
        raise ValueError(f"shards {shards} does not divide the batch of {hidden.shape[0]} rows")
    if bias is None:
        bias = jnp.zeros(kernel.shape[0], jnp.float32)
    return _loss(hidden, kernel, bias, labels, chunk, shards)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _loss(hidden, kernel, bias, labels, chunk, shards):
    weights = _collected(kernel.astype(hidden.dtype))

    def step(sums, piece):
        part, _, _ = _chunk_loss(piece, weights, bias)
        return jax.tree.map(jnp.add, sums, part), None

    sums, _ = _over_chunks(step, _no_loss(shards), hidden, labels, chunk, shards)
    return jax.tree.map(jnp.sum, sums)


def _loss_forward(hidden, kernel, bias, labels, chunk, shards):
    """The loss and its gradient for a cotangent of 1, chunk by chunk."""
    weights = _collected(kernel.astype(hidden.dtype))
    batch, positions, width = hidden.shape

    def step(carry, piece):
        sums, d_kernel, d_bias = carry
        part, probabilities, hit = _chunk_loss(piece, weights, bias)
        valid = (piece[1] != IGNORE)[..., None]
        d_logits = jnp.where(valid, probabilities - hit, 0)
        d_bias += d_logits.sum(1)
        d_logits = d_logits.astype(hidden.dtype)
        d_hidden = _dot("grv,vd->grd", d_logits, weights).astype(hidden.dtype)
        d_kernel += _dot("grv,grd->gvd", d_logits, piece[0])
        return (jax.tree.map(jnp.add, sums, part), d_kernel, d_bias), d_hidden

    zero = (
        _no_loss(shards),
        _by_shard(jnp.zeros((shards, *kernel.shape), jnp.float32)),
        _by_shard(jnp.zeros((shards, *bias.shape), jnp.float32)),
    )
    (sums, d_kernel, d_bias), d_hidden = _over_chunks(step, zero, hidden, labels, chunk, shards)
    # [chunks, shards, rows x positions of a chunk, D] back to [B C D].
    d_hidden = d_hidden.reshape(d_hidden.shape[0], batch, -1, width).swapaxes(0, 1)
    d_hidden = d_hidden.reshape(batch, -1, width)[:, :positions]
    d_kernel = d_kernel.sum(0).astype(kernel.dtype)
    d_bias = d_bias.sum(0).astype(bias.dtype)
    return jax.tree.map(jnp.sum, sums), (d_hidden, d_kernel, d_bias)


def _loss_backward(chunk, shards, gradients, cotangents):
    # nll is a sum, so that its cotangent is one number for all tokens. count and correct are
    # piecewise constant: their cotangents are dropped.
    scaled = jax.tree.map(lambda g: (g * cotangents.nll).astype(g.dtype), gradients)
    return *scaled, None


_loss.defvjp(_loss_forward, _loss_backward)


def _collected(kernel):
    """The words' rows whole, once: within the loop they would be collected for every chunk."""
    return sharding.constrain(kernel, sharding.HEAD_AXIS)


def _by_shard(sums):
    """Sums [shards V ...] on the devices whose rows and words they are of."""
    return sharding.constrain(sums, sharding.BATCH_AXES, sharding.HEAD_AXIS)


def _dot(equation, a, b):
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)


def _no_loss(shards):
    return LossSums(*(jnp.zeros(shards, jnp.float32),) * 3)


def _chunk_loss(piece, weights, bias):
    """Returns LossSums [G] of a chunk, and its probabilities and one-hot targets [G R V]."""
    hidden, labels = piece
    logits = _dot("grd,vd->grv", hidden, weights) + bias.astype(jnp.float32)
    # A comparison instead of a gather: it fuses into the reductions, and partitions over V.
    hit = labels[..., None] == jnp.arange(logits.shape[-1])
    highest = logits.max(-1)
    exponentials = jnp.exp(logits - highest[..., None])
    total = exponentials.sum(-1)
    target = jnp.where(hit, logits, 0).sum(-1)
    valid = labels != IGNORE
    sums = LossSums(
        nll=jnp.where(valid, highest + jnp.log(total) - target, 0).sum(-1),
        count=valid.sum(-1, dtype=jnp.float32),
        correct=(valid & (target >= highest)).sum(-1, dtype=jnp.float32),
    )
    return sums, exponentials / total[..., None], hit


def _over_chunks(step, carry, hidden, labels, chunk, shards):
    """Scans ``step`` over equal shares of every row: (hidden [G R D], labels [G R]) at a time.

    Slices run along positions and not rows, which may live on different devices.
    """
    batch, positions, width = hidden.shape
    rows = batch // shards
    chunks = math.ceil(positions / max(1, chunk // rows))
    size = math.ceil(positions / max(chunks, 1))  # equal shares: less padding than full ones
    spare = chunks * size - positions
    hidden = jnp.pad(hidden, ((0, 0), (0, spare), (0, 0))).reshape(shards, rows, -1, width)
    labels = jnp.pad(labels, ((0, 0), (0, spare)), constant_values=IGNORE)
    labels = labels.reshape(shards, rows, -1)

    def at(carry, index):
        start = index * size
        h = jax.lax.dynamic_slice_in_dim(hidden, start, size, axis=2)
        y = jax.lax.dynamic_slice_in_dim(labels, start, size, axis=2)
        return step(carry, (h.reshape(shards, -1, width), y.reshape(shards, -1)))

    return jax.lax.scan(at, carry, jnp.arange(chunks))
