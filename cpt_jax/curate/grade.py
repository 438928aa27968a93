"""Grades of paragraphs by a large language model: educational value, kind of text, domain.

    python -m cpt_jax.curate.grade live --records raw/ --out grades/ --model NAME --url URL
    python -m cpt_jax.curate.grade requests --records raw/ --out grades/ --model NAME
    python -m cpt_jax.curate.grade results 'done/*.jsonl' --records raw/ --out grades/ --model NAME

``live`` asks an OpenAI-compatible endpoint. ``requests`` writes files of requests for one that
works through files (requests/), and ``results`` reads what came of them. Each answer is on the disk
(journal.jsonl) before the next thing is done: the same command goes on where it was broken off, and
what was answered is never asked again. A text that is there twice is asked once. Then graded/ and
aside/ are written, a file for each file: read = graded + set aside, with the reason; and with
``--share 0.003``, which asks of so many alone, those that were not drawn.

``--again 0.05`` asks of a twentieth of the texts twice, and says how well the answers agree. Exit
codes: 0 all are graded or set aside for good; 1 some have no answer yet (budget, endpoint); 2
refused, nothing asked.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cpt_jax.curate import agreement
from cpt_jax.curate.asking import (
    IN_A_ROW,
    Job,
    Question,
    add_options,
    counted,
    endpoint_of,
    json_in,
    run,
)
from cpt_jax.curate.grades import CONTENTS, DOMAINS, SCORES, Grade, grade_of
from cpt_jax.curate.journal import Journal
from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of, set_aside, whole_lines
from cpt_jax.lock import tell
from cpt_jax.seeds import hash_seed

RUBRIC = Path(__file__).parent / "rubrics" / "en.txt"
SCHEMA = {
    "type": "object",
    "properties": {
        "educational": {"type": "integer", "enum": list(SCORES)},
        "content": {"type": "string", "enum": list(CONTENTS)},
        "domain": {"type": "string", "enum": list(DOMAINS)},
    },
    "required": ["educational", "content", "domain"],
    "additionalProperties": False,
}
SECOND = "/2"  # ends the key of a question that is asked again


def question_of(record: dict[str, Any]) -> Question:
    """The question of a record: its section's title, if it has one, and its text."""
    section = record["metadata"].get("section")
    message = f"Section: {section}\n\n{record['text']}" if section else record["text"]
    return Question(hashlib.sha256(message.encode()).hexdigest()[:32], message)


def grade_in(answer: str) -> Grade:
    """The grade that an answer gives.

    Raises: ValueError where it gives none; says why, without quoting it.
    """
    value = json_in(answer)
    if not isinstance(value, dict) or value.keys() != set(Grade._fields):
        raise ValueError(f"the answer is no object of {', '.join(Grade._fields)}")
    try:
        grade = grade_of(value)
    except ValueError:
        raise ValueError("the answer's grades are none that there are") from None
    if not grade.educational.is_integer():
        raise ValueError("the answer's educational value is not whole")
    return grade


@dataclasses.dataclass(frozen=True)
class Grading(Job):
    """What is graded, by what; the prompt is the rubric.

    Attributes:
      records: directory.
      share: of the texts, that are asked at all; those of a share are among those of a larger one.
      again: of these, that are asked twice.
    """

    records: Path
    share: float
    again: float

    @property
    def schema(self) -> Mapping[str, Any]:
        """Of answers."""
        return SCHEMA

    @property
    def asked(self) -> str:
        """What a question is of."""
        return f"text in {self.records}"

    def about(self) -> dict[str, Any]:
        """What answers are of: another model or rubric gives others."""
        rubric = hashlib.sha256(self.prompt.encode()).hexdigest()
        settings = {
            "temperature": self.endpoint.temperature,
            "max_tokens": self.endpoint.max_tokens,
        }
        return {"model": self.endpoint.model, "rubric": rubric, **settings}

    def draws(self, question: Question) -> bool:
        """Whether a text is among those that are asked."""
        return hash_seed(question.key, "share") / 2**32 < self.share

    def questions(self) -> Iterator[Question]:
        """All of them, those that are asked twice two times; each text once."""
        seen = set[str]()
        for file in files_of(self.records):
            for _, line in lines_of(file):
                try:
                    question = question_of(record_of(line))
                except ValueError:
                    continue
                if question.key in seen or not self.draws(question):
                    continue
                seen.add(question.key)
                yield question
                if hash_seed(question.key, "again") / 2**32 < self.again:
                    yield question._replace(key=question.key + SECOND)


def write_graded(job: Grading, journal: Journal) -> Counter[str]:
    """Writes graded records and those set aside; counts them, those without an answer yet among the
    latter, and those that were not drawn.
    """
    counts = Counter(read=0, graded=0, set_aside=0, without_answer=0, not_drawn=0)
    for file in files_of(job.records):
        name, kept = file.relative_to(job.records), []
        with whole_lines(job.out / "graded" / name) as put:
            for number, line in lines_of(file):
                counts["read"] += 1
                try:
                    record = record_of(line)
                    question = question_of(record)
                    if not job.draws(question):
                        counts["not_drawn"] += 1
                        continue
                    answer = journal.answers.get(question.key)
                    if answer is None:
                        counts["without_answer"] += 1
                        raise ValueError("no answer yet")
                    record["metadata"] |= grade_in(answer["text"])._asdict()
                except ValueError as error:
                    kept.append(set_aside(file, number, line, str(error)))
                    continue
                put(json.dumps(record, ensure_ascii=False) + "\n")
                counts["graded"] += 1
        counts["set_aside"] += len(kept)
        target = job.out / ASIDE / name
        if kept:
            with whole_lines(target) as put_aside:
                put_aside("".join(kept))
        else:
            target.unlink(missing_ok=True)
    return counts


def twice(journal: Journal) -> tuple[list[Grade], list[Grade]]:
    """First and second grades of what was asked twice, where both are grades."""
    first, second = [], []
    for key, answer in journal.answers.items():
        again = journal.answers.get(key + SECOND)
        if again is None:
            continue
        try:
            pair = grade_in(answer["text"]), grade_in(again["text"])
        except ValueError:
            continue
        first.append(pair[0])
        second.append(pair[1])
    return first, second


def finish(job: Grading, journal: Journal) -> Counter[str]:
    """Writes what is graded and how well the answers agree, and says so; counts the records."""
    counts = write_graded(job, journal)
    tell(counted(counts))
    first, second = twice(journal)
    if len(first) > 1:
        tell(agreement.write(agreement.measure(first, second), job.out, "graded twice"))
    return counts


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.add_argument("--records", type=Path, required=True, help="directory of records")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rubric", type=Path, default=RUBRIC, help="a text file; default: ours")
    parser.add_argument("--share", type=float, default=1.0, help="of the texts, asked at all (1)")
    parser.add_argument("--again", type=float, default=0.0, help="of these, asked twice (0)")
    options = parser.parse_args(arguments)
    try:
        faults = [
            f"{name}: {value} is not a share, from 0 to 1"
            for name, value in (("share", options.share), ("again", options.again))
            if not 0 <= value <= 1
        ]
        inner, outer = options.out.resolve(), options.records.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            faults.append(f"out: {options.out} lies within {options.records}, or around it")
        endpoint = endpoint_of(options, {}, faults)
        files_of(options.records)
        rubric = options.rubric.read_text("utf-8")
        shares = options.share, options.again
        job = Grading(options.out, rubric, endpoint, options.records, *shares)
        return run(job, options.command, options.results, lambda j: finish(job, j), IN_A_ROW)
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
