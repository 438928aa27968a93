"""What is taken of graded paragraphs, and how many times: as a file says it."""

import dataclasses
from pathlib import Path

import yaml

from cpt_jax.curate.grades import grade_of
from cpt_jax.parsing import parse_as

MOST_COPIES = 10_000  # that `data.prepare` would be asked for


@dataclasses.dataclass(frozen=True)
class Repeat:
    """How many times a paragraph is taken that is of such a content and domain; empty: of any."""

    factor: float
    content: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Share:
    """Articles of which at most that share of the paragraphs is good, and more than the one before.

    Attributes:
      upto: the share, above 0 and at most 1.
      factor: how many times such an article is taken.
    """

    upto: float
    factor: float


@dataclasses.dataclass(frozen=True)
class ByShare:
    """How many times an article is taken, by the share of its paragraphs that are good.

    Attributes:
      good: the educational value from which a paragraph is.
      between: of shares above 0 and below 1, rising.
      none: the factor where no paragraph is good.
      all: where every one is.
    """

    good: float
    between: tuple[Share, ...]
    none: float = 0.0
    all: float = 1.0

    def factor(self, good: int, paragraphs: int) -> float:
        """The factor of an article."""
        if good in (0, paragraphs):
            return self.none if good == 0 else self.all
        return next(each.factor for each in self.between if good <= each.upto * paragraphs)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is taken, and how many times.

    Attributes:
      least: the educational value below which a paragraph is left out; None: none is.
      repeats: the first that fits a paragraph counts; where none does it is taken once.
      by_share: how many times the paragraphs of an article are taken.
      most: no factor is above it.
      join: paragraphs of an article that are taken become one document, in their order, with an
        empty line between them; they must follow one another in a file.
    """

    least: float | None = None
    repeats: tuple[Repeat, ...] = ()
    by_share: ByShare | None = None
    most: float | None = None
    join: bool = False

    @property
    def needs_grades(self) -> bool:
        """Whether paragraphs are judged by their grades."""
        of_kinds = any(each.content or each.domain for each in self.repeats)
        return self.least is not None or self.by_share is not None or of_kinds

    def faults(self) -> list[str]:
        """What cannot be meant."""
        faults = []
        factors = {f"repeats[{i}].factor": each.factor for i, each in enumerate(self.repeats)}
        if self.by_share:
            shares = [each.upto for each in self.by_share.between]
            if shares != sorted(set(shares)) or not shares or not 0 < shares[0] <= shares[-1] == 1:
                faults.append(f"by_share.between: {shares} do not rise from above 0 to 1")
            factors |= {
                f"by_share.between[{i}].factor": each.factor
                for i, each in enumerate(self.by_share.between)
            }
            factors |= {"by_share.none": self.by_share.none, "by_share.all": self.by_share.all}
            if self.repeats:
                faults.append("repeats, by_share: two rules for one factor; give one of them")
        if self.join and self.repeats:
            faults.append("repeats, join: a factor for each paragraph, and one document of all")
        if self.most is not None:
            factors["most"] = self.most
        faults += [
            f"{name}: {factor} is not from 0 to {MOST_COPIES:,}"
            for name, factor in factors.items()
            if not 0 <= factor <= MOST_COPIES
        ]
        for i, each in enumerate(self.repeats):
            grade = {"educational": 1, "content": "other", "domain": "other"}
            for name in ("content", "domain"):
                for label in getattr(each, name):
                    try:
                        grade_of({**grade, name: label})
                    except ValueError as error:
                        faults.append(f"repeats[{i}].{error}")
        values = {"least": self.least, "by_share.good": self.by_share and self.by_share.good}
        for name, value in values.items():
            if value is not None and not 1 <= value <= 5:
                faults.append(f"{name}: {value} is not from 1 to 5")
        return faults


def read_rules(path: Path) -> Rules:
    """The rules in a YAML file.

    Raises:
      FileNotFoundError: no such file.
      ValueError: what is wrong with it, all of it.
    """
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    faults: list[str] = []
    rules: Rules = parse_as(Rules, value, path.name, faults)
    faults = faults or [f"{path.name}.{fault}" for fault in rules.faults()]
    if faults:
        raise ValueError(f"{path}:\n" + "\n".join(faults))
    return rules
