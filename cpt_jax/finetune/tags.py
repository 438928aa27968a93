"""IOB2 tags and the entities they mean: strict, as seqeval's mode of that name reads them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

OUTSIDE = "O"


class Entity(NamedTuple):
    """The words from `first` to `last`, that one too."""

    first: int
    last: int
    label: str


def tag_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The tags of a task in the order of its head's outputs: O, then B- and I- of each label."""
    return (OUTSIDE, *(f"{prefix}-{label}" for label in labels for prefix in "BI"))


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence or document, in order.

    One begins with B-X and goes on through I-X of the same label. An I-X that nothing began, or
    that follows another label, is no entity and no part of one.

    Raises:
      ValueError: something that is no tag.
    """
    entities: list[Entity] = []
    begun: str | None = None
    first = 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, label = tag.partition("-")
        if tag != OUTSIDE and (prefix not in ("B", "I") or not label):
            raise ValueError(f"tag {tag!r} of word {place} is neither O nor B-LABEL nor I-LABEL")
        if begun is not None and (prefix != "I" or label != begun):
            entities.append(Entity(first, place - 1, begun))
            begun = None
        if prefix == "B":
            begun, first = label, place
    return entities


def tags_of(entities: Iterable[Entity], words: int) -> list[str]:
    """The tags of that many words with these entities, none of which share a word."""
    tags = [OUTSIDE] * words
    for first, last, label in entities:
        tags[first : last + 1] = [f"B-{label}"] + [f"I-{label}"] * (last - first)
    return tags


def legal_path(probabilities: Float[np.ndarray, "m T"]) -> Int[np.ndarray, " m"]:
    """The most probable of all legal sequences of tags: I-X only after B-X or I-X.

    Words are taken as independent: the sequence's probability is the product of its tags'. Where
    each word's most probable tag makes a legal sequence, it is that one; of equals, the first.

    Args:
      probabilities: of each word's tags, in the order of `tag_names`.

    Raises:
      ValueError: a probability that is not finite.
    """
    if not np.isfinite(probabilities).all():
        raise ValueError("tags' probabilities that are not finite: the training has diverged")
    best = probabilities.argmax(axis=1)
    return best if _is_legal(best) else _viterbi(probabilities)


def _is_legal(tags: Int[np.ndarray, " m"]) -> bool:
    # B-X is an odd number, I-X the even one after it.
    before = np.concatenate([[0], tags[:-1]])
    inside = (tags > 0) & (tags % 2 == 0)
    return bool((~inside | (before == tags) | (before == tags - 1)).all())


def _viterbi(probabilities: Float[np.ndarray, "m T"]) -> Int[np.ndarray, " m"]:
    m, number = probabilities.shape
    # A probability of 0 is unlikely, what is illegal is impossible.
    logs = np.log(np.maximum(probabilities.astype(np.float64), 1e-300))
    begin, inside = np.arange(1, number, 2), np.arange(2, number, 2)
    score = logs[0].copy()
    score[inside] = -np.inf
    back = np.zeros((m, number), np.int64)
    for word in range(1, m):
        back[word] = score.argmax()
        back[word, inside] = np.where(score[inside] > score[begin], inside, begin)
        score = score[back[word]] + logs[word]
    path = np.zeros(m, np.int64)
    path[-1] = score.argmax()
    for word in range(m - 1, 0, -1):
        path[word - 1] = back[word, path[word]]
    return path
