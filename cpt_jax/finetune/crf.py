"""Linear-chain conditional random fields (Lafferty et al. 2001), in log space, fp32.

A chain gives each word one of T tags. Its score is the sum of the tags' emissions, of the
transitions between neighbours, and of what the chain may begin and end with; its probability is
that, exponentiated, over the sum of all chains'. Words that are masked are not there: the chain
goes from the word before them to the one after. Any dimensions may stand before those named here,
and a mask's need only broadcast with the emissions'.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

IMPOSSIBLE = -1e9  # exp of it is 0, and a sum of many stays finite, as gradients do not with -inf

Emissions = Float[Array, "*n W T"]
Mask = Bool[Array, "*m W"]


class Chain(NamedTuple):
    """What the tags of a chain score whatever the words are."""

    start: Float[np.ndarray | Array, " T"]
    transitions: Float[np.ndarray | Array, "T T"]  # from, to
    end: Float[np.ndarray | Array, " T"]


class Messages(NamedTuple):
    """What forward and backward pass found.

    Attributes:
      before: for each word and tag, the log of the summed scores of all beginnings that lead to it,
        without its own emission.
      after: of all that may follow it.
      total: [*n], of all chains; 0 where every word is masked.
    """

    before: Float[Array, "*n W T"]
    after: Float[Array, "*n W T"]
    total: Float[Array, "*n"]


def log_partition(emissions: Emissions, mask: Mask, chain: Chain) -> Float[Array, "*n"]:
    """The log of the summed scores of all chains; 0 where every word is masked."""
    return _forward(emissions, mask, chain)[1]


def messages(emissions: Emissions, mask: Mask, chain: Chain) -> Messages:
    """What is left and right of each word; at masked words nothing that could be used.

    ``before + emissions + after - total`` is the log of each tag's probability at each word.
    """

    def step(after: Array, emission: Array, real: Array) -> tuple[Array, Array]:
        onward = jax.nn.logsumexp(chain.transitions + (emission + after)[..., None, :], -1)
        return jnp.where(real, onward, after), after

    before, total = _forward(emissions, mask, chain)
    end = jnp.broadcast_to(jnp.asarray(chain.end), before[..., 0, :].shape)
    _, after = _over_words(step, end, emissions, mask, reverse=True)
    return Messages(before, after, total)


def score(
    emissions: Emissions, tags: Int[Array, "*n W"], mask: Mask, chain: Chain
) -> Float[Array, "*n"]:
    """The score of one chain; 0 where every word is masked."""
    mask = jnp.broadcast_to(mask, tags.shape)
    start, transitions, end = (jnp.asarray(part) for part in chain)
    place = jnp.where(mask, jnp.arange(tags.shape[-1]), -1)
    latest = jax.lax.cummax(place, axis=place.ndim - 1)  # the last real word up to here
    previous = jnp.concatenate([jnp.full_like(latest[..., :1], -1), latest[..., :-1]], -1)
    of_previous = jnp.take_along_axis(tags, jnp.maximum(previous, 0), -1)
    entering = jnp.where(previous < 0, start[tags], transitions[of_previous, tags])
    own = jnp.take_along_axis(emissions, tags[..., None], -1)[..., 0]
    last = jnp.take_along_axis(tags, jnp.maximum(latest[..., -1:], 0), -1)[..., 0]
    ending = jnp.where(latest[..., -1] < 0, 0, end[last])
    return jnp.where(mask, own + entering, 0).sum(-1) + ending


def _forward(emissions: Array, mask: Array, chain: Chain) -> tuple[Array, Array]:
    def step(carry: Any, emission: Array, real: Array) -> tuple[Any, Array]:
        before, total = carry
        here = before + emission
        onward = jax.nn.logsumexp(here[..., None] + chain.transitions, -2)
        ended = jax.nn.logsumexp(here + chain.end, -1)
        moved = jnp.where(real, onward, before), jnp.where(real[..., 0], ended, total)
        return moved, before

    start = jnp.broadcast_to(jnp.asarray(chain.start), emissions[..., 0, :].shape)
    nothing = jnp.zeros(emissions.shape[:-2], emissions.dtype)
    (_, total), before = _over_words(step, (start, nothing), emissions, mask)
    return before, total


def _over_words(
    step: Callable[[Any, Array, Array], tuple[Any, Array]],
    carry: Any,
    emissions: Array,
    mask: Array,
    reverse: bool = False,
) -> tuple[Any, Array]:
    """Scans `step(carry, emissions of a word, whether it is real)`; what it gives [*n W T]."""
    real = jnp.broadcast_to(mask, emissions.shape[:-1])[..., None]
    words = (jnp.moveaxis(emissions, -2, 0), jnp.moveaxis(real, -2, 0))
    carry, out = jax.lax.scan(lambda c, word: step(c, *word), carry, words, reverse=reverse)
    return carry, jnp.moveaxis(out, 0, -2)
