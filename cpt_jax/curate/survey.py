"""What there is to count of a directory of records, in one pass over them."""

import hashlib
import json
import math
import random
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cpt_jax.curate.grades import Grade, grade_of
from cpt_jax.curate.measure import Measure
from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of

MOST_PACKED = 200_000  # records of the sample that is packed
MOST_SHOWN = 1000  # characters of a sample's text
UNGRADED = ("ungraded", "")


class Size(NamedTuple):
    """Of a source: its records, their length, and that times their factors."""

    records: int = 0
    size: int = 0
    repeated: float = 0.0


class Lengths:
    """Lengths and factors of a sample of records, each as likely to be in it.

    Attributes:
      seen: records that it was drawn from.
    """

    def __init__(self):
        self.tokens, self.factors, self.seen = array("q"), array("d"), 0
        self._random = random.Random(0)

    def add(self, tokens: int, factor: float) -> None:
        """Takes a record, instead of one that was taken where there are enough."""
        self.seen += 1
        if self.seen <= MOST_PACKED:
            self.tokens.append(tokens)
            self.factors.append(factor)
        elif (place := self._random.randrange(self.seen)) < MOST_PACKED:
            self.tokens[place], self.factors[place] = tokens, factor


class Survey:
    """The counts.

    Args:
      tokenizer: see `find_tokenizer`; None: lengths are of words, and nothing is packed.
      samples: texts to keep of each bucket: the whole part of the educational value, and content.

    Attributes:
      unit: of lengths: words or tokens.
      counts: records, those of them that are not graded, lines that are no records, and lines
        under aside/.
      lengths: records by source and the power of two that their length is at least.
      educational: values of graded records.
      labels: records by grade and label.
      licences: records and length by licence and source.
      packed: lengths in tokens, None without a tokenizer.
      reasons: why records were set aside, up to what is quoted in them.

    Raises:
      FileNotFoundError, ValueError: there is no such tokenizer, or it cannot be used.
    """

    def __init__(self, tokenizer: str | None, samples: int):
        self._length = Measure(tokenizer)
        self.unit = self._length.unit
        self.packed = None if tokenizer is None else Lengths()
        self.counts = {"read": 0, "ungraded": 0, "faulty": 0, "set aside": 0}
        self.sources: defaultdict[str, Size] = defaultdict(Size)
        self.lengths: Counter[tuple[str, int]] = Counter()
        self.educational = array("d")
        self.labels: Counter[tuple[str, str]] = Counter()
        self.licences: defaultdict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.reasons: Counter[str] = Counter()
        self.samples: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._wanted, self._offered = samples, Counter[tuple[str, str]]()
        self._random = random.Random(0)
        self._texts = array("Q")  # hashes

    @property
    def duplicates_removed(self) -> int:
        """Records that were set aside as duplicates."""
        return sum(n for reason, n in self.reasons.items() if "duplicate" in reason.lower())

    def duplicates_left(self) -> int:
        """Records whose text is another's, but for case and space, the first not counted."""
        return len(self._texts) - len(np.unique(np.array(self._texts, np.uint64)))

    def note(self, line: bytes) -> None:
        """Counts a line of a file of records."""
        self.counts["read"] += 1
        try:
            record = record_of(line)
            factor = _factor(record)
        except ValueError as error:
            self.counts["faulty"] += 1
            self.reasons[f"here: {_before_quotes(str(error))}"] += 1
            return
        text, about = record["text"], record["metadata"]
        size = self._length(text)
        source, licence = (_name(about.get(name)) for name in ("source", "licence"))
        one = self.sources[source]
        self.sources[source] = Size(one.records + 1, one.size + size, one.repeated + size * factor)
        self.lengths[source, size.bit_length() - 1] += 1
        records, total = self.licences[licence, source]
        self.licences[licence, source] = records + 1, total + size
        if self.packed is not None:
            self.packed.add(size, factor)
        plain = " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(plain, digest_size=8).digest()
        self._texts.append(int.from_bytes(digest, "little"))
        try:
            grade = grade_of(about)
        except ValueError:
            self.counts["ungraded"] += 1
            self._sample(UNGRADED, text)
        else:
            self._note_grade(grade)
            self._sample((f"{math.floor(grade.educational)}", grade.content), text)

    def note_aside(self, line: bytes) -> None:
        """Counts a line of a file under aside/."""
        self.counts["set aside"] += 1
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        found = found if isinstance(found, dict) else {}
        about = found.get("metadata")
        reason = found.get("reason") or (about.get("reason") if isinstance(about, dict) else None)
        self.reasons[_before_quotes(reason) if isinstance(reason, str) else "no reason given"] += 1

    def _note_grade(self, grade: Grade) -> None:
        self.educational.append(grade.educational)
        self.labels["content", grade.content] += 1
        self.labels["domain", grade.domain] += 1

    def _sample(self, bucket: tuple[str, str], text: str) -> None:
        """Keeps a text of a bucket, each as likely."""
        if not self._wanted:
            return
        self._offered[bucket] += 1
        kept, shown = self.samples[bucket], text[:MOST_SHOWN]
        if len(kept) < self._wanted:
            kept.append(shown)
        elif (place := self._random.randrange(self._offered[bucket])) < self._wanted:
            kept[place] = shown


def _factor(record: dict[str, Any]) -> float:
    """How many times a record is taken. Raises ValueError if that is no number >= 0."""
    factor = record.get("repeat", 1)
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not number or not 0 <= factor < math.inf:
        raise ValueError("repeat: not a number, finite and >= 0")
    return float(factor)


def _name(value: object) -> str:
    return value if isinstance(value, str) else ""


def _before_quotes(reason: str) -> str:
    """A reason up to the first quoted value, which may be text, and is another in each record."""
    before, quote, _ = re.sub(r"\s+", " ", reason).partition("'")
    before, double, _ = before.partition('"')
    return before[:120].rstrip() + (" …" if quote or double else "")


def survey(
    records: Path,
    tokenizer: str | None = None,
    samples: int = 0,
    asides: Sequence[Path] = (),
) -> Survey:
    """Reads all records under a directory, and of those set aside why they are.

    Args:
      records: the directory; its folders aside/ hold what was set aside.
      tokenizer: what lengths are counted by; None: words.
      samples: texts kept of each bucket.
      asides: directories in which steps before set records aside.

    Raises:
      NotADirectoryError, FileNotFoundError, ValueError, OSError: an input cannot be used or read.
    """
    files = files_of(records)
    found = Survey(tokenizer, samples)
    for file in files:
        for _, line in lines_of(file):
            found.note(line)
    for folder in [*records.rglob(ASIDE), *asides]:
        for file in sorted({*folder.rglob("*.jsonl"), *folder.rglob("*.jsonl.gz")}):
            for _, line in lines_of(file):
                found.note_aside(line)
    return found
