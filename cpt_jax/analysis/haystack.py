"""Texts in which a fact is hidden, each with a question: is that fact in it?

A pair is [CLS] haystack with the fact [SEP] question [SEP]. The question is the fact, or the same
template with other values. Every length, place and answer has as many pairs as any other, in each
split (arXiv 2605.12438, section 5.6).
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cpt_jax.analysis.facts import FACTS, SPLITS, Fact, draw
from cpt_jax.finetune.encode import Vocabulary
from cpt_jax.seeds import hash_seed

LENGTHS = (512, 1024, 2048, 4096, 8192)  # tokens
PLACES = {"start": 0.0, "middle": 0.5, "end": 1.0}
# Of each length, place and answer: 30 cells of 50 pairs are the paper's 1,500, at 70, 14 and 16 %.
PAIRS = {"train": 35, "dev": 7, "test": 8}


class Pair(NamedTuple):
    """One pair.

    Attributes:
      ids: its tokens, as many as its length or fewer by less than a sentence.
      length, place: of its cell.
      answer: whether the question is the fact.
      fact, question: what is hidden and asked.
      split: its own.
    """

    ids: list[int]
    length: int
    place: str
    answer: bool
    fact: Fact
    question: Fact
    split: str


class Hay:
    """Sentences to hide facts among, tokenized once.

    Args:
      texts: any corpus.
      vocabulary: the tokenizer's.

    Raises: ValueError: there is no sentence.
    """

    def __init__(self, texts: Sequence[str], vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        parts = (part for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
        self.sentences = [self.encode(part) for part in parts if part.strip()]
        if not self.sentences:
            raise ValueError("haystack: no sentence in the texts")

    def encode(self, sentence: str) -> list[int]:
        """A sentence's tokens, as one after another."""
        text = " " + " ".join(sentence.split())
        return self.vocabulary.tokenizer.encode(text, add_special_tokens=False).ids

    def around(
        self, fact: list[int], question: list[int], length: int, share: float, start: int
    ) -> list[int]:
        """A fact among as many sentences as there is room for, from one on, and its question.

        Raises: ValueError: there is not even room for fact and question.
        """
        room = length - 3 - len(fact) - len(question)
        if room < 0:
            raise ValueError(f"length {length}: no room for a fact and its question")
        chosen: list[list[int]] = []
        for i in range(start, start + length):
            sentence = self.sentences[i % len(self.sentences)]
            if len(sentence) > room:
                break
            chosen.append(sentence)
            room -= len(sentence)
        at = round(share * len(chosen))
        hay = list(itertools.chain(*chosen[:at], fact, *chosen[at:]))
        return [self.vocabulary.cls, *hay, self.vocabulary.sep, *question, self.vocabulary.sep]


def make(
    language: str,
    texts: Sequence[str],
    vocabulary: Vocabulary,
    lengths: Sequence[int] = LENGTHS,
    seed: int = 0,
) -> list[Pair]:
    """All pairs: for each length, place and answer as many of each split as `PAIRS` says.

    Raises: ValueError: a language that there is not, no sentence, no room.
    """
    if language not in FACTS:
        raise ValueError(f"language {language!r}; allowed: {', '.join(FACTS)}")
    hay, pairs = Hay(texts, vocabulary), []
    templates = list(FACTS[language]["templates"])
    for length, place, answer in itertools.product(lengths, PLACES, (True, False)):
        for split in SPLITS:
            rng = np.random.default_rng(hash_seed(seed, length, place, str(answer), split))
            for number in range(PAIRS[split]):
                template = templates[number % len(templates)]
                fact = draw(language, template, split, rng)
                question = fact if answer else draw(language, template, split, rng, other=fact)
                tokens = hay.encode(fact.text), hay.encode(question.text)
                start = int(rng.integers(len(hay.sentences)))
                ids = hay.around(*tokens, length, PLACES[place], start)
                pairs.append(Pair(ids, length, place, answer, fact, question, split))
    return pairs
