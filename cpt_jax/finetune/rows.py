"""A row: what the model reads at one time of an example, and what it is to learn from it."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Row(NamedTuple):
    """One text, sentence or window as the model reads it, unpadded.

    Attributes:
      example: its example's place in the split.
      input_ids: int32 [n], the first and last of them the tokenizer's special ones.
      targets: by the example's kind
        classification  label int32 []
        relation        label int32 [], markers int32 [2]: the tokens of the two opening markers
        multilabel      labels float32 [C]
        tagging         labels int32 [n]: the tag at each word's first token, -1 elsewhere
        spans           word_ids int32 [n]: which of the row's words, -1 for special tokens;
                        spans int32 [m, 3]: first word, last word (inclusive), label
    """

    example: int
    input_ids: np.ndarray
    targets: Mapping[str, np.ndarray]
