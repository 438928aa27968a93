"""Examples in which entities are sought: their words, their entities, their windows.

- An entity that begins or ends within a word is taken for the whole of it in training; what is
  scored against stays as annotated.
- A word's tag is learnt at its first token, in every window that holds it.
- A word without a token of its own (white space, control characters) is not learnt and has no
  prediction of its own.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from tokenizers import Encoding

from cpt_jax.finetune.alignment import Alignment, align, joined, words_of
from cpt_jax.finetune.examples import Annotated, Kind, Settings, Words
from cpt_jax.finetune.tags import Entity, entities_of, tag_names, tags_of
from cpt_jax.finetune.windows import Window, owners_of, windows_of

IGNORED = -1  # a token without a target


class Document(NamedTuple):
    """An example's words and entities.

    Attributes:
      ids: int32 [n]: its tokens, without special ones.
      alignment: its words and their tokens.
      entities: those that can be learnt, in places of `alignment.words`; of kind tagging none
        share a word.
      silent: how many words have no token of their own.
      annotated: how many entities the example has.
      moved: how many of them begin or end within a word.
      lost: how many cannot be learnt: without a token, or in a word that another entity has.
    """

    ids: np.ndarray
    alignment: Alignment
    entities: tuple[Entity, ...]
    silent: int
    annotated: int
    moved: int
    lost: int


class View(NamedTuple):
    """A window of a document as a row.

    Attributes:
      window: its tokens of the document.
      input_ids: int32 [n].
      targets: of `Row`.
      words: int64 [w]: the places in `Alignment.words` of those whose first token is here.
      tokens: int64 [w]: these tokens' places in the row.
      owned: bool [w]: which of the words' tags are predicted from this row.
      whole: the entities that the window holds from end to end.
    """

    window: Window
    input_ids: np.ndarray
    targets: dict[str, np.ndarray]
    words: np.ndarray
    tokens: np.ndarray
    owned: np.ndarray
    whole: frozenset[Entity]


def text_and_words(example: Words | Annotated) -> tuple[str, Int[np.ndarray, "m 2"]]:
    """The text that is tokenized, and where its words are in it."""
    if isinstance(example, Words):
        return joined(example.words)
    return example.text, words_of(example.text)


def document_of(example: Words | Annotated, encoding: Encoding, kind: Kind) -> Document:
    """An example, given what its text was tokenized to."""
    text, words = text_and_words(example)
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    alignment = align(offsets, words, len(text))
    moved = 0
    if isinstance(example, Words):
        annotated = entities_of(example.tags)
        first = np.searchsorted(alignment.words, [entity.first for entity in annotated])
        last = np.searchsorted(alignment.words, [entity.last for entity in annotated], "right") - 1
    else:
        annotated = sorted(set(example.spans))
        starts = np.array([span.start for span in annotated], np.int64)
        ends = np.array([span.end for span in annotated], np.int64)
        first = np.searchsorted(alignment.ends, starts, "right")
        last = np.searchsorted(alignment.starts, ends) - 1
        shown = first <= last
        a, b = first[shown], last[shown]
        fits = (alignment.starts[a] == starts[shown]) & (alignment.ends[b] == ends[shown])
        moved = int((~fits).sum())
    found: dict[Entity, None] = {}
    lost, taken = 0, -1
    for entity, a, b in zip(annotated, first.tolist(), last.tolist(), strict=True):
        if a > b or (kind == "tagging" and a <= taken):
            lost += 1
            continue
        taken = b
        found[Entity(a, b, entity.label)] = None
    silent = len(words) - len(alignment.words)
    ids = np.array(encoding.ids, np.int32)
    return Document(ids, alignment, tuple(found), silent, len(annotated), moved, lost)


def views_of(
    document: Document,
    special: tuple[int, int],
    kind: Kind,
    labels: Sequence[str],
    settings: Settings,
) -> Iterator[View]:
    """The rows of a document, from its beginning to its end.

    Args:
      special: the ids before and after a window's tokens.
    """
    ids, alignment, firsts = document.ids, document.alignment, document.alignment.firsts
    index = {label: place for place, label in enumerate(labels)}
    tag_index = {tag: place for place, tag in enumerate(tag_names(labels))}
    tags = (
        [tag_index[t] for t in tags_of(document.entities, len(firsts))] if kind == "tagging" else []
    )
    windows = windows_of(firsts, len(ids), settings.max_length - 2, settings.stride)
    owners = owners_of(firsts, firsts + 1, windows)
    for place, window in enumerate(windows):
        start, end = window
        words = np.flatnonzero((start <= firsts) & (firsts < end))
        low, high = (words[0], words[-1]) if words.size else (0, -1)
        whole = [e for e in document.entities if low <= e.first and e.last <= high]
        input_ids = np.array([special[0], *ids[start:end], special[1]], np.int32)
        tokens = 1 + firsts[words] - start
        targets = {}
        if kind == "tagging":
            targets["labels"] = np.full(len(input_ids), IGNORED, np.int32)
            targets["labels"][tokens] = np.array(tags, np.int32)[words]
        else:
            word_ids = alignment.word_ids[start:end] - low
            targets["word_ids"] = np.full(len(input_ids), IGNORED, np.int32)
            targets["word_ids"][1:-1] = np.maximum(word_ids, IGNORED)
            spans = [(e.first - low, e.last - low, index[e.label]) for e in whole]
            targets["spans"] = np.array(spans, np.int32).reshape(-1, 3)
        owned = owners[words] == place
        yield View(window, input_ids, targets, words, tokens, owned, frozenset(whole))
