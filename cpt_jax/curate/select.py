"""Graded paragraphs to documents of a mixture: what is taken, and how many times.

    python -m cpt_jax.curate.select --rules rules.yaml --records scored/       # only the report
    python -m cpt_jax.curate.select --rules rules.yaml --records scored/ --out selected/
    python -m cpt_jax.data.prepare --input 'selected/documents/**/*.jsonl*' --repeat-field repeat …

Nothing is copied: a document carries its factor as ``repeat``, and `data.prepare` gives it so many
copies in an epoch, far from each other; of a fraction, by a draw of its own. Two passes over the
records: the report is there before anything is written. `rules.Rules` is what a file of rules may
say. Paragraphs that are not taken are counted; lines that are none, and records that a rule cannot
judge, go to aside/ with a reason: read = taken + left out + set aside.

Exit codes: 0 done; 1 something outside (a full disk); 2 refused, nothing written.
"""

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpt_jax.curate.grades import Grade, grade_of
from cpt_jax.curate.measure import Measure
from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of, set_aside, whole_lines
from cpt_jax.curate.rules import Rules, read_rules
from cpt_jax.directories import whole_file
from cpt_jax.lock import tell
from cpt_jax.pages.blocks import Block, Heading, Paragraph, Table, markdown

REPORT, DOCUMENTS = "selection.md", "documents"
NONE = Grade(0.0, "", "")
MOST_SHOWN = 10  # documents of the report's last table


class Judged(NamedTuple):
    """A record that the rules can judge.

    Attributes:
      grade: `NONE` where the rules ask for none.
      source, article: whose it is.
      wanted: whether it is as good as `Rules.least` asks.
    """

    record: dict[str, Any]
    grade: Grade
    source: str
    article: str
    wanted: bool


class Article(NamedTuple):
    """How many of an article's paragraphs there are, and how many are good."""

    paragraphs: int = 0
    good: int = 0


class Plan:
    """What is taken of all records, and how many times; from a first pass over them.

    Args:
      rules: by which.
      records: the directory.
      measure: what the report counts; words, unless it is given a tokenizer.

    Attributes:
      counts: records read, taken, left out and set aside.
      documents, sizes: by source: of all records; taken; taken, times their factors.

    Raises:
      ValueError: there are no records.
    """

    def __init__(self, rules: Rules, records: Path, measure: Measure | None = None):
        self.measure = measure or Measure(None)
        self.rules, self.files, self.root = rules, files_of(records), records
        self._articles: defaultdict[tuple[str, str], Article] = defaultdict(Article)
        self._apart: set[tuple[Path, int]] = set()  # lines that are apart from their article's
        needed = rules.by_share is not None or rules.join
        if needed:
            self._count_articles()
        self.counts = Counter(read=0, taken=0, left_out=0, set_aside=0)
        self.documents: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.sizes: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self.by_factor: Counter[float] = Counter()  # of what is taken, times the factor
        self.most: list[tuple[float, str]] = []  # the highest factors, and ids
        for file in self.files:
            for number, line in lines_of(file):
                self._note(self.judge(file, number, line))

    def judge(self, file: Path, number: int, line: bytes) -> Judged | str:
        """A record, or why it is set aside."""
        try:
            record = record_of(line)
            grade = grade_of(record["metadata"]) if self.rules.needs_grades else NONE
        except ValueError as error:
            return str(error)
        article = record["metadata"].get("article")
        if not isinstance(article, str) and (self.rules.join or self.rules.by_share):
            return "no article"
        if (file, number) in self._apart:
            return "apart from its article's other paragraphs, to be joined with them"
        return Judged(
            record,
            grade,
            str(record["metadata"].get("source", "")),
            str(article),
            self.rules.least is None or grade.educational >= self.rules.least,
        )

    def factor(self, judged: Judged) -> float:
        """How many times a record is taken: 0 where it is left out."""
        rules = self.rules
        if not judged.wanted:
            return 0.0
        factor = 1.0
        if rules.by_share:
            article = self._articles[judged.source, judged.article]
            factor = rules.by_share.factor(article.good, article.paragraphs)
        for each in rules.repeats:
            if each.content and judged.grade.content not in each.content:
                continue
            if not each.domain or judged.grade.domain in each.domain:
                factor = each.factor
                break
        return factor if rules.most is None else min(factor, rules.most)

    def _count_articles(self) -> None:
        good = self.rules.by_share.good if self.rules.by_share else math.inf
        for file in self.files:
            last = None
            for number, line in lines_of(file):
                judged = self.judge(file, number, line)
                if isinstance(judged, str):
                    continue
                key = judged.source, judged.article
                if self.rules.join and key != last and key in self._articles:
                    self._apart.add((file, number))
                    continue
                last, seen = key, self._articles[key]
                here = judged.grade.educational >= good
                self._articles[key] = Article(seen.paragraphs + 1, seen.good + here)

    def _note(self, judged: Judged | str) -> None:
        self.counts["read"] += 1
        if isinstance(judged, str):
            self.counts["set_aside"] += 1
            return
        factor = self.factor(judged)
        self.counts["taken" if factor > 0 else "left_out"] += 1
        size, times = self.measure(judged.record["text"]), (1.0, float(factor > 0), factor)
        for i, weight in enumerate(times):
            self.documents[judged.source][i] += weight
            self.sizes[judged.source][i] += weight * size
        if factor > 0:
            self.by_factor[factor] += round(factor * size)
            named = str(judged.record.get("id", ""))
            self.most = sorted([*self.most, (-factor, named)])[:MOST_SHOWN]

    def report(self) -> list[Block]:
        """What is taken, before it is."""
        total = sum(self.by_factor.values()) or 1
        rows = [
            [source or "(none)", *(f"{n:,.0f}" for n in self.documents[source][:2])]
            + [f"{n:,.0f}" for n in self.sizes[source]]
            + [f"{self.sizes[source][2] / max(self.sizes[source][1], 1):.2f}"]
            for source in sorted(self.sizes)
        ]
        factors = [
            [f"{factor:g}", f"{size:,}", f"{100 * size / total:.1f} %"]
            for factor, size in sorted(self.by_factor.items(), reverse=True)
        ]
        most = [[name, f"{-factor:g}"] for factor, name in self.most]
        said = ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in self.counts.items())
        unit = self.measure.unit
        head = ["source", "paragraphs", "taken", unit, "taken", "with repeats", "epochs"]
        return [
            Paragraph(f"Records: {said}."),
            Table(head, rows),
            Heading("By factor"),
            Table(["times taken", f"{unit} with repeats", "share"], factors),
            Heading("Most repeated"),
            Table(["id", "times taken"], most),
            Paragraph(
                f"Epochs: how often one of the {unit} that are taken is seen while what is taken "
                "once is."
            ),
        ]


def write(plan: Plan, out: Path) -> None:
    """Writes what is taken (documents/, a file for each file), the report, and what is set aside.

    Raises:
      ValueError: ``out`` lies in the records' directory, or the other way round.
      OSError: a file cannot be written; those that are there are whole.
    """
    inner, outer = out.resolve(), plan.root.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise ValueError(f"{out}: within {plan.root}, or around it; what is written would be read")
    for file in plan.files:
        name = file.relative_to(plan.root)
        kept: list[str] = []
        with whole_lines(out / DOCUMENTS / name) as put:
            for document in _documents(plan, file, kept):
                put(json.dumps(document, ensure_ascii=False) + "\n")
        if kept:
            with whole_lines(out / ASIDE / name) as put_aside:
                put_aside("".join(kept))
    with whole_file(out / REPORT) as page:
        page.write(markdown(plan.report(), "Selection"))


def _documents(plan: Plan, file: Path, kept: list[str]) -> Iterator[dict[str, Any]]:
    """What is taken of a file; what is set aside goes to ``kept``."""
    together: list[Judged] = []
    for number, line in lines_of(file):
        judged = plan.judge(file, number, line)
        if isinstance(judged, str):
            kept.append(set_aside(file, number, line, judged))
            continue
        if not plan.factor(judged):
            continue
        if not plan.rules.join:
            yield {**judged.record, "repeat": plan.factor(judged)}
            continue
        if together and _key(together[0]) != _key(judged):
            yield _joined(plan, together)
            together = []
        together.append(judged)
    if together:
        yield _joined(plan, together)


def _key(judged: Judged) -> tuple[str, str]:
    return judged.source, judged.article


def _joined(plan: Plan, paragraphs: Sequence[Judged]) -> dict[str, Any]:
    """The document of an article; its metadata is what its paragraphs have in common."""
    first = paragraphs[0].record["metadata"]
    common: Mapping[str, Any] = {
        name: value
        for name, value in first.items()
        if all(each.record["metadata"].get(name) == value for each in paragraphs)
    }
    return {
        "text": "\n\n".join(each.record["text"] for each in paragraphs),
        "id": paragraphs[0].article,
        "metadata": {**common, "paragraphs": len(paragraphs)},
        "repeat": plan.factor(paragraphs[0]),
    }


def main(arguments: Sequence[str]) -> int:
    """Reports and, where it is said to what, writes; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.select",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--rules", type=Path, required=True, help="a YAML file (docs/curate.md)")
    parser.add_argument("--records", type=Path, required=True, help="directory of graded records")
    parser.add_argument("--tokenizer", help="the report counts its tokens; without, words")
    parser.add_argument("--out", type=Path, help="where documents go; without, only the report")
    options = parser.parse_args(arguments)
    try:
        if options.out is not None and options.out.exists() and any(options.out.iterdir()):
            raise FileExistsError(f"{options.out}: exists and is not empty; it is not overwritten")
        measure = Measure(options.tokenizer)
        plan = Plan(read_rules(options.rules), options.records, measure)
        tell(markdown(plan.report()))
        if options.out is not None:
            write(plan, options.out)
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
