"""Words, and the tokens that they became.

A text's words are found by `words_of`; words that come apart are joined by one space and read as a
text, so that the same words give the same ids either way (byte-level tokenizers write the space
into the token). A token belongs to the word of its first character that is in a word: white space
belongs to none.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

# Letters and digits, each with the accents written after it as characters of their own; every
# other character that is no white space is a word by itself.
_ACCENTS = "\u0300-\u036f"
_WORD = re.compile(rf"(?:[^\W_][{_ACCENTS}]*)+|\S[{_ACCENTS}]*")


class Alignment(NamedTuple):
    """The words of a document that have tokens.

    Attributes:
      words: int64 [m]: which of the document's words.
      starts, ends: int64 [m]: their characters.
      firsts: int64 [m]: their first tokens.
      word_ids: int64 [n]: of each token, the place in `words` of its word; -1: none.
    """

    words: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    firsts: np.ndarray
    word_ids: np.ndarray


def words_of(text: str) -> Int[np.ndarray, "m 2"]:
    """Where the words of a text start and end, in characters."""
    found = [match.span() for match in _WORD.finditer(text)]
    return np.array(found, np.int64).reshape(-1, 2)


def joined(words: Sequence[str]) -> tuple[str, Int[np.ndarray, "m 2"]]:
    """The words as a text, joined by a space, and where they are in it."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    ends = np.cumsum(lengths + 1) - 1
    return " ".join(words), np.stack([ends - lengths, ends], axis=1)


def align(
    offsets: Int[np.ndarray, "n 2"], spans: Int[np.ndarray, "all 2"], length: int
) -> Alignment:
    """Which words have tokens, and which.

    Args:
      offsets: of the tokens, in characters of the text.
      spans: of its words, ascending, none within another.
      length: of the text.
    """
    sizes = spans[:, 1] - spans[:, 0]
    word_at = np.full(length + 1, -1, np.int64)
    places = np.repeat(spans[:, 0] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    word_at[places] = np.repeat(np.arange(len(spans)), sizes)
    # The next character that is in a word, from each character on.
    following = np.where(word_at >= 0, np.arange(length + 1), length)
    following = np.minimum.accumulate(following[::-1])[::-1]
    character = following[offsets[:, 0]]
    word_ids = np.where(character < offsets[:, 1], word_at[character], -1)
    words, firsts = np.unique(word_ids, return_index=True)
    words, firsts = words[words >= 0], firsts[words >= 0]
    word_ids = np.where(word_ids >= 0, np.searchsorted(words, word_ids), -1)
    return Alignment(words, spans[words, 0], spans[words, 1], firsts, word_ids)
