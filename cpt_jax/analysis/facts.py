"""Clinical facts to be hidden in a text and asked for: templates, and the values of their slots.

All are made up (facts.json). Of each slot every split has values of its own, so that what a probe
learns of values tells it nothing of those it is tested on.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cpt_jax.seeds import hash_seed

SPLITS = ("train", "dev", "test")
PARTS = {"train": 0.6, "dev": 0.2, "test": 0.2}  # of a slot's values
# By language: templates by name, and of each slot a list of values, or a range of numbers.
FACTS: Mapping[str, Any] = json.loads((Path(__file__).parent / "facts.json").read_text("utf-8"))


class Fact(NamedTuple):
    """A template's name, and what stands in its slots."""

    language: str
    template: str
    values: Mapping[str, str]

    @property
    def text(self) -> str:
        """The sentence."""
        return FACTS[self.language]["templates"][self.template].format(**self.values)


def slots_of(language: str, template: str) -> list[str]:
    """The slots of a template, in the order of its sentence."""
    return re.findall(r"{(\w+)}", FACTS[language]["templates"][template])


def values_of(language: str, slot: str, split: str) -> list[str]:
    """A split's own values of a slot, two or more."""
    values = FACTS[language]["values"][slot]
    if isinstance(values, dict):
        numbers = range(values["first"], values["last"] + 1, values["step"])
        values = [values["form"].format(number) for number in numbers]
    rng = np.random.default_rng(hash_seed(language, slot, "values"))
    order = [values[i] for i in rng.permutation(len(values))]
    ends = np.round(np.cumsum([0.0, *PARTS.values()]) * len(order)).astype(int)
    place = SPLITS.index(split)
    return order[ends[place] : ends[place + 1]]


def draw(
    language: str, template: str, split: str, rng: np.random.Generator, other: Fact | None = None
) -> Fact:
    """A fact of a split's values; each another than those of ``other``."""
    found = {}
    for slot in slots_of(language, template):
        values = values_of(language, slot, split)
        if other is not None:
            values = [value for value in values if value != other.values[slot]]
        found[slot] = values[rng.integers(len(values))]
    return Fact(language, template, found)
