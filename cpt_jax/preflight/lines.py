"""One line of a preflight."""

import dataclasses
from typing import Literal

Level = Literal["ok", "warn", "stop"]


@dataclasses.dataclass(frozen=True)
class Line:
    """A check and what came of it.

    Attributes:
      level: "ok"; "warn" for what a person may have meant; "stop" for what makes the run fail, or
        its result worth nothing.
      check: what was looked at, in a word or two.
      text: what was found, and what to do about it.
    """

    level: Level
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:5}{self.check:14}{self.text}"
