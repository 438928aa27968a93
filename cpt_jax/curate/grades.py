"""What a paragraph is graded by: its educational value, what it is, and what it is about."""

from collections.abc import Mapping
from typing import Any, NamedTuple

SCORES = (1, 2, 3, 4, 5)  # educational value, of less to more
CONTENTS = ("clinical_case", "study", "review", "other")
DOMAINS = ("clinical", "biomedical", "other")


class Grade(NamedTuple):
    """The grades of a paragraph.

    Attributes:
      educational: from 1 to 5; an LLM's are whole, a classifier's are not.
      content: one of `CONTENTS`.
      domain: one of `DOMAINS`.
    """

    educational: float
    content: str
    domain: str


def grade_of(metadata: Mapping[str, Any]) -> Grade:
    """The grades in a record's metadata.

    Raises:
      ValueError: one is missing, out of range, or none that there is; names it and what is allowed.
    """
    missing = [name for name in Grade._fields if name not in metadata]
    if missing:
        raise ValueError(f"no {', '.join(missing)}: not graded")
    educational, content, domain = (metadata[name] for name in Grade._fields)
    number = isinstance(educational, int | float) and not isinstance(educational, bool)
    if not number or not SCORES[0] <= educational <= SCORES[-1]:
        raise ValueError(f"educational: {educational!r} is not from {SCORES[0]} to {SCORES[-1]}")
    for name, value, allowed in (("content", content, CONTENTS), ("domain", domain, DOMAINS)):
        if value not in allowed:
            raise ValueError(f"{name}: {value!r} is not one of {', '.join(allowed)}")
    return Grade(float(educational), content, domain)
