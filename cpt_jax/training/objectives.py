"""What the model is asked to predict: next-token and masked-token targets.

An objective is a pure function of one batch that runs on the device inside the train step. All
return `Targets`: the ids the model reads, and labels at some or all positions of each row.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, UInt

IGNORE = -100  # label of a position without a target (Hugging Face's and torch's value)
TO_MASK, TO_RANDOM = 0.8, 0.1  # shares of the selected tokens (BERT's); the rest stay


class Targets(NamedTuple):
    """What to feed and what to predict, for one batch."""

    input_ids: Int[Array, "B L"]  # what the model reads: corrupted, or as they came
    positions: Int[Array, "B C"] | None  # where the labels are; None: at every position, C = L
    labels: Int[Array, "B C"]  # int32 ids, IGNORE where there is nothing to predict
    overflow: Int[Array, ""]  # selected positions beyond the capacity, left uncorrupted


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What corruption needs to know of a tokenizer.

    ``special_ids`` are never corrupted, never predicted under masking and never drawn as random
    replacements; they include ``mask_id``.

    Raises:
      ValueError: if an id is outside [0, size), or ``mask_id`` is not among the special ids.
    """

    size: int  # of the tokenizer: rows of the embedding beyond it are never drawn
    mask_id: int
    special_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks the ids: one out of range would be embedded as another token, in silence."""
        outside = [i for i in self.special_ids if not 0 <= i < self.size]
        if outside:
            raise ValueError(f"special_ids {outside} are not in [0, size={self.size})")
        if self.mask_id not in self.special_ids:
            raise ValueError(f"mask_id {self.mask_id} is not one of special_ids {self.special_ids}")


def next_token(input_ids: Int[Array, "B L"], segment_ids: Int[Array, "B L"]) -> Targets:
    """Returns the token that follows, as the label of every position that has one.

    A document of n tokens gives n - 1 targets, its end-of-sequence token among them. Its last
    token and padding (segment 0) have no target, so none crosses from one document into the next.
    """
    following = jnp.roll(input_ids, -1, axis=1)
    same = (segment_ids == jnp.roll(segment_ids, -1, axis=1)) & (segment_ids != 0)
    same = same.at[:, -1].set(False)  # roll wraps around; a row may hold one single document
    labels = jnp.where(same, following, IGNORE).astype(jnp.int32)
    return Targets(input_ids, None, labels, jnp.int32(0))


def capacity(length: int, rate: float) -> int:
    """Returns the positions reserved for the targets of a row of ``length`` tokens.

    Mean + 6 sigma of Binomial(length, rate), rounded up to a multiple of 8, at most ``length``: a
    full row overflows about once in 1e9. A fixed number keeps shapes static and computes the head
    and the vocabulary's logits only where there is something to predict.
    """
    wanted = length * rate + 6 * math.sqrt(length * rate * (1 - rate))
    return min(length, math.ceil(wanted / 8) * 8)


def masked_token(
    input_ids: Int[Array, "B L"],
    segment_ids: Int[Array, "B L"],
    ordinals: UInt[Array, " B"] | Int[Array, " B"],
    key: Key[Array, ""],
    *,
    rate: float,
    vocabulary: Vocabulary,
) -> Targets:
    """Returns a corrupted copy of the rows, and the original tokens as labels (BERT's rule).

    Each token that is neither padding nor special is selected with probability ``rate``; of the
    selected, ``TO_MASK`` become the mask token, ``TO_RANDOM`` a token drawn uniformly from the
    vocabulary without its special ids (possibly the same token again), and the rest stay.

    A row's corruption depends on ``key``, its ordinal and its content, and on nothing else: not
    on its place in the batch, the batch size, or the number of devices and hosts.

    Args:
      input_ids: token ids.
      segment_ids: document number from 1 in each row; 0 is padding.
      ordinals: number of each row in the run's stream; a row met again has a new one.
      key: the same for the whole run.
      rate: probability of selection, in (0, 1].
      vocabulary: the mask token, and what is left alone.

    Returns:
      Targets with ``positions`` [B C], C = ``capacity(L, rate)``, in increasing order; an unused
      slot has position 0 and label IGNORE. Selected tokens beyond the first C of a row stay as they
      are and are counted.

    Raises:
      ValueError: for a rate outside (0, 1], or a key that is not threefry.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate {rate} is not in (0, 1]")
    if str(jax.random.key_impl(key)) != "threefry2x32":
        # Under vmap the other generators' bits depend on the place in the batch.
        raise ValueError(f"key is {jax.random.key_impl(key)}: masks need a threefry2x32 key")
    length = input_ids.shape[1]
    slots = capacity(length, rate)

    draw, replacement = _random_rows(key, ordinals, length, vocabulary)
    eligible = (segment_ids != 0) & ~_is_special(input_ids, vocabulary)
    selected = eligible & (draw < rate)
    rank = jnp.cumsum(selected, axis=1, dtype=jnp.int32)  # of each selected token, from 1
    count = rank[:, -1:]
    kept = selected & (rank <= slots)

    # Given selection, draw / rate is uniform again, so that one number decides both.
    masked = draw < rate * TO_MASK
    random = draw < rate * (TO_MASK + TO_RANDOM)
    new = jnp.where(masked, vocabulary.mask_id, jnp.where(random, replacement, input_ids))
    corrupted = jnp.where(kept, new, input_ids).astype(input_ids.dtype)

    # The j-th selected position is the first whose rank is j: a binary search, cheaper than
    # sorting, and without the scatter that TPUs are slow at.
    slot = jnp.arange(1, slots + 1, dtype=jnp.int32)
    positions = jax.vmap(lambda ranks: jnp.searchsorted(ranks, slot))(rank).astype(jnp.int32)
    used = slot <= count
    positions = jnp.where(used, positions, 0)
    labels = jnp.where(used, jnp.take_along_axis(input_ids, positions, axis=1), IGNORE)
    overflow = jnp.maximum(count - slots, 0).sum().astype(jnp.int32)
    return Targets(corrupted, positions, labels.astype(jnp.int32), overflow)


def _is_special(input_ids: Int[Array, "B L"], vocabulary: Vocabulary) -> Bool[Array, "B L"]:
    special = jnp.asarray(vocabulary.special_ids, input_ids.dtype)
    return (input_ids[..., None] == special).any(-1)


def _random_rows(key, ordinals, length: int, vocabulary: Vocabulary):
    """Returns uniform numbers in [0, 1) and uniform tokens that are not special, both [B L]."""
    special = np.unique(vocabulary.special_ids)
    ordinary = vocabulary.size - len(special)
    # The n-th ordinary token is n plus the special ids before it; special[i] has i of those.
    before = jnp.asarray(special - np.arange(len(special)), jnp.int32)

    def row(ordinal):
        to_draw, to_replace = jax.random.split(jax.random.fold_in(key, ordinal))
        index = jax.random.randint(to_replace, (length,), 0, ordinary, jnp.int32)
        token = index + jnp.searchsorted(before, index, side="right").astype(jnp.int32)
        return jax.random.uniform(to_draw, (length,)), token

    return jax.vmap(row)(ordinals)
