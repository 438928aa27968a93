"""What a mixture is made of: sources, what is kept of each, and its share.

A recipe is a Python file with a function ``get_recipe``, as those in configs/data.
"""

import dataclasses
import math
import runpy
from collections.abc import Sequence
from pathlib import Path

from cpt_jax.curate.readers import READERS
from cpt_jax.curate.rules import Rules
from cpt_jax.parsing import parse_as

LANGUAGES = ("en", "fr", "es", "it", "eu", "de", "pt", "nl")  # that are told from each other


@dataclasses.dataclass(frozen=True)
class Source:
    """One corpus of a mixture.

    Attributes:
      name: its directory and its name in a run's config.
      reader: how its files are read (`readers`).
      files: globs below the directory of raw inputs.
      share: of the mixture's tokens, in any scale.
      licence: where the files say none.
      language: texts of another are set aside; None: all are kept.
      least_words: shorter texts are set aside.
      least_letters: texts of which fewer of the characters that are no spaces are letters are too.
      rules: what is taken of it, and how many times.
    """

    name: str
    reader: str
    files: tuple[str, ...]
    share: float
    licence: str = ""
    language: str | None = None
    least_words: int = 0
    least_letters: float = 0.0
    rules: Rules = dataclasses.field(default_factory=Rules)

    def faults(self) -> list[str]:
        """What cannot be meant."""
        faults = []
        if not self.name.isidentifier():
            faults.append(f"name: {self.name!r} is not letters, digits and _")
        if self.reader not in READERS:
            faults.append(f"reader: {self.reader!r} is not one of {', '.join(READERS)}")
        if not self.files:
            faults.append("files: none")
        for glob in self.files:
            if glob.startswith("/") or ".." in glob.split("/"):
                faults.append(f"files: {glob!r} is not below the directory of raw inputs")
        if not 0 < self.share < math.inf:
            faults.append(f"share: {self.share} is not a number above 0")
        if self.language is not None and self.language not in LANGUAGES:
            faults.append(f"language: {self.language!r} is not one of {', '.join(LANGUAGES)}")
        if self.least_words < 0:
            faults.append(f"least_words: {self.least_words} is not 0 or more")
        if not 0 <= self.least_letters <= 1:
            faults.append(f"least_letters: {self.least_letters} is not from 0 to 1")
        return faults + [f"rules.{fault}" for fault in self.rules.faults()]


@dataclasses.dataclass(frozen=True)
class MinHash:
    """When two texts are nearly one: how their sets of words in a row are compared.

    Two that share a part s of them (Jaccard) meet with probability 1 - (1 - s^hashes)^buckets: of
    0.8 with 0.92, of 0.5 with 0.05.

    Attributes:
      words: in a row.
      buckets: of hashes.
      hashes: of a bucket.
    """

    words: int = 5
    buckets: int = 14
    hashes: int = 8

    def faults(self) -> list[str]:
        """What cannot be meant."""
        return [
            f"{field.name}: {getattr(self, field.name)} is not 1 or more"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) < 1
        ]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A mixture.

    Attributes:
      name: of it.
      tokens: that a run will read of it; what epochs are reckoned by.
      sources: one or more.
      seq_len: tokens of a row.
      heldout_fraction: of each source's texts.
      near: of which texts are near duplicates; None: of equal ones alone.
      decontaminate: tasks whose test splits are looked for; None: all that are on disk.
    """

    name: str
    tokens: float
    sources: tuple[Source, ...]
    seq_len: int = 8192
    heldout_fraction: float = 0.005
    near: MinHash | None = MinHash()
    decontaminate: tuple[str, ...] | None = None

    def faults(self) -> list[str]:
        """What cannot be meant."""
        faults = []
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names) or not names:
            faults.append(f"sources: their names are {names}; each once, and one or more")
        if not 0 < self.tokens < math.inf:
            faults.append(f"tokens: {self.tokens} is not a number above 0")
        if self.seq_len < 2:
            faults.append(f"seq_len: {self.seq_len} is not 2 or more")
        if not 0 <= self.heldout_fraction < 1:
            faults.append(f"heldout_fraction: {self.heldout_fraction} is not from 0 to below 1")
        for i, source in enumerate(self.sources):
            faults += [f"sources[{i}].{fault}" for fault in source.faults()]
        if self.near is not None:
            faults += [f"near.{fault}" for fault in self.near.faults()]
        return faults

    @property
    def shares(self) -> dict[str, float]:
        """Of each source, by its name; they sum to 1."""
        total = sum(source.share for source in self.sources)
        return {source.name: source.share / total for source in self.sources}


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file.

    Raises:
      FileNotFoundError: no such file.
      ValueError: what is wrong with it, all of it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        get_recipe = runpy.run_path(str(path)).get("get_recipe")
        if get_recipe is None:
            raise ValueError(f"{path}: has no function get_recipe")
        found = get_recipe()
    except Exception as error:  # whatever a file of somebody's may do
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None
    if not isinstance(found, Recipe):
        raise ValueError(f"{path}: get_recipe returned a {type(found).__name__}, not a Recipe")
    faults: list[str] = []
    parse_as(Recipe, dataclasses.asdict(found), "recipe", faults)
    faults = faults or [f"recipe.{fault}" for fault in found.faults()]
    if faults:
        raise ValueError(f"{path}:\n" + "\n".join(faults))
    return found


def needing_grades(sources: Sequence[Source]) -> list[Source]:
    """The sources whose rules judge by grades."""
    return [source for source in sources if source.rules.needs_grades]
