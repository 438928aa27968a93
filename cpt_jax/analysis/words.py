"""Words of a tagging task with what a probe is asked about them, and with what means nothing."""

import itertools
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cpt_jax.analysis.facts import SPLITS
from cpt_jax.finetune.encode import Encoded
from cpt_jax.finetune.tags import tag_names
from cpt_jax.seeds import hash_seed

ENTITY, PIECES, BEFORE = "entity", "pieces", "token before"
OF_A_ROW = 4  # words: of each all layers' states are kept
OFTEN = 30  # tokens before a word that are told from each other


class Word(NamedTuple):
    """A word in a row.

    Attributes:
      ids: of the row.
      place: of its first token.
      tokens: its own.
      entity: the entity's label that it is in, or "".
    """

    ids: Sequence[int]
    place: int
    tokens: tuple[int, ...]
    entity: str


def words_of(encoded: Encoded, most: int) -> list[Word]:
    """So many of a split's words, half of them in entities where there are enough; few of a row.

    Raises: ValueError: it is of another kind than tagging.
    """
    if encoded.kind != "tagging":
        raise ValueError(f"task of kind {encoded.kind}; allowed: tagging")
    names = tag_names(encoded.labels)
    found: list[tuple[int, Word]] = []
    for number, row in enumerate(encoded.rows):
        ids, labels = row.input_ids.tolist(), row.targets["labels"]
        firsts = [*np.flatnonzero(labels >= 0).tolist(), len(ids) - 1]
        for first, following in itertools.pairwise(firsts):
            label = names[int(labels[first])].partition("-")[2]
            found.append((number, Word(ids, first, tuple(ids[first:following]), label)))
    rng = np.random.default_rng(hash_seed("words"))
    of_row: Counter[int] = Counter()
    inside: list[Word] = []
    outside: list[Word] = []
    for i in rng.permutation(len(found)):
        number, word = found[i]
        group = inside if word.entity else outside
        if of_row[number] < OF_A_ROW and len(group) < most // 2:
            of_row[number] += 1
            group.append(word)
    return inside + outside


def questions(words: Mapping[str, Sequence[Word]]) -> dict[str, dict[str, np.ndarray]]:
    """What is asked of the words of each split: labels from 0, by question; -1: it is not asked."""
    kinds = ["", *sorted({word.entity for word in words["train"]} - {""})]
    before = Counter(word.ids[word.place - 1] for word in words["train"])
    often = {token: i for i, (token, _) in enumerate(before.most_common(OFTEN))}
    found: dict[str, dict[str, np.ndarray]] = {ENTITY: {}, PIECES: {}, BEFORE: {}}
    for split in SPLITS:
        of = words[split]
        found[ENTITY][split] = np.array(
            [kinds.index(word.entity) if word.entity in kinds else -1 for word in of], int
        )
        found[PIECES][split] = np.array([int(len(word.tokens) > 1) for word in of], int)
        found[BEFORE][split] = np.array([often.get(w.ids[w.place - 1], -1) for w in of], int)
    return found


def control(
    words: Mapping[str, Sequence[Word]], labels: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """A label for each word type that means nothing, as often each as in train (Hewitt and Liang).

    A probe can only learn it by heart; of words that are in test alone it cannot know it.
    """
    known = labels["train"][labels["train"] >= 0]
    drawn = {}
    for split in SPLITS:
        hashes = [zlib.crc32(repr(word.tokens).encode()) for word in words[split]]
        meant = np.array([known[h % len(known)] for h in hashes], int)
        drawn[split] = np.where(labels[split] >= 0, meant, -1)
    return drawn
