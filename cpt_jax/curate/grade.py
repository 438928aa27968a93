"""Grades of paragraphs by a large language model: educational value, kind of text, domain.

    python -m cpt_jax.curate.grade live --records raw/ --out grades/ --model NAME --url URL
    python -m cpt_jax.curate.grade requests --records raw/ --out grades/ --model NAME
    python -m cpt_jax.curate.grade results 'done/*.jsonl' --records raw/ --out grades/ --model NAME

``live`` asks an OpenAI-compatible endpoint. ``requests`` writes files of requests for one that
works through files (requests/), and ``results`` reads what came of them. Each answer is on the disk
(journal.jsonl) before the next thing is done: the same command goes on where it was broken off, and
what was answered is never asked again. A text that is there twice is asked once. Then graded/ and
aside/ are written, a file for each file: read = graded + set aside, with the reason.

``--again 0.05`` asks of a twentieth of the texts twice, and says how well the answers agree. Exit
codes: 0 all are graded or set aside for good; 1 some have no answer yet (budget, endpoint); 2
refused, nothing asked.
"""

import argparse
import asyncio
import dataclasses
import glob
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpt_jax.curate import agreement
from cpt_jax.curate.client import Client, Endpoint, Refused, Unanswered, answer_of
from cpt_jax.curate.grades import CONTENTS, DOMAINS, SCORES, Grade, grade_of
from cpt_jax.curate.journal import Journal
from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of, set_aside, whole_lines
from cpt_jax.lock import say, tell
from cpt_jax.parsing import parse_as, parse_change
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
JOURNAL, SECOND = "journal.jsonl", "/2"
IN_A_ROW = 20  # questions given up, after which the endpoint is
OF_A_FILE = 50_000  # requests
SAY_SECONDS = 5.0


class Question(NamedTuple):
    """A text to be graded; the key is a hash of all that the model reads of it."""

    key: str
    message: str


def question_of(record: dict[str, Any]) -> Question:
    """The question of a record: its section's title, if it has one, and its text."""
    section = record["metadata"].get("section")
    message = f"Section: {section}\n\n{record['text']}" if section else record["text"]
    return Question(hashlib.sha256(message.encode()).hexdigest()[:32], message)


def grade_in(answer: str) -> Grade:
    """The grade that an answer gives.

    Raises: ValueError where it gives none; says why, without quoting it.
    """
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)```\s*", answer, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
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
class Job:
    """What is graded, by what.

    Attributes:
      records: directory.
      out: directory of the journal and of what is written.
      rubric: what the model is told.
      again: share of the texts that are asked twice.
      endpoint: where; of requests and results the model and its settings alone.
    """

    records: Path
    out: Path
    rubric: str
    again: float
    endpoint: Endpoint

    def about(self) -> dict[str, Any]:
        """What answers are of: another model or rubric gives others."""
        rubric = hashlib.sha256(self.rubric.encode()).hexdigest()
        settings = {
            "temperature": self.endpoint.temperature,
            "max_tokens": self.endpoint.max_tokens,
        }
        return {"model": self.endpoint.model, "rubric": rubric, **settings}

    def messages(self, question: Question) -> list[dict[str, str]]:
        """What the model reads."""
        return [
            {"role": "system", "content": self.rubric},
            {"role": "user", "content": question.message},
        ]

    def questions(self) -> Iterator[Question]:
        """All of them, those that are asked twice two times; each text once."""
        seen = set[str]()
        for file in files_of(self.records):
            for _, line in lines_of(file):
                try:
                    question = question_of(record_of(line))
                except ValueError:
                    continue
                if question.key in seen:
                    continue
                seen.add(question.key)
                yield question
                if hash_seed(question.key, "again") / 2**32 < self.again:
                    yield question._replace(key=question.key + SECOND)


async def ask_all(job: Job, journal: Journal, tell: Callable[[str], None]) -> str:
    """Asks what has no answer yet; returns why it ended before all have one, or "".

    Raises: Refused where the endpoint takes no such question.
    """
    endpoint, start = job.endpoint, time.monotonic()
    total = sum(question.key not in journal.answers for question in job.questions())
    waiting = (q for q in job.questions() if q.key not in journal.answers)
    spent = sum(endpoint.cost(*answer["tokens"]) for answer in journal.answers.values())
    state = {"spent": spent, "done": 0, "missed": 0, "in_a_row": 0, "told": start}
    ended = ""

    async def work(client: Client) -> None:
        nonlocal ended
        for question in waiting:  # shared: each goes to one worker
            if endpoint.budget is not None and state["spent"] >= endpoint.budget:
                ended = f"the budget of {endpoint.budget:g} is spent"
            if ended:
                return
            try:
                answer = await client.ask(job.messages(question), SCHEMA)
            except Unanswered as error:
                state["missed"] += 1
                state["in_a_row"] += 1
                if state["in_a_row"] >= IN_A_ROW:
                    ended = f"given up: {error}"
                continue
            journal.add(question.key, text=answer.text, tokens=answer[1:])
            state["spent"] += endpoint.cost(*answer[1:])
            state["done"], state["in_a_row"] = state["done"] + 1, 0
            if time.monotonic() - state["told"] > SAY_SECONDS:
                state["told"] = time.monotonic()
                rate = state["done"] / (state["told"] - start)
                left = (total - state["done"]) / rate
                tell(
                    f"{state['done']:,} of {total:,} answers, {rate:.1f} a second, spent "
                    f"{state['spent']:.2f}, {client.waits} asked again, ETA {left / 60:.0f} min"
                )

    async with Client(endpoint) as client:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(endpoint.concurrency):
                    group.create_task(work(client))
        except* Refused as errors:
            raise errors.exceptions[0] from None
    if not ended and state["missed"]:
        ended = f"{state['missed']:,} questions were not answered"
    return ended


def write_requests(job: Job, journal: Journal) -> tuple[int, int]:
    """Writes requests of what has no answer yet; returns how many, in how many files."""
    folder = job.out / "requests"
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: holds requests; read their results, or take them away")
    waiting = [q.key for q in job.questions() if q.key not in journal.answers]
    asked = iter(q for q in job.questions() if q.key not in journal.answers)
    files = 0
    for first in range(0, len(waiting), OF_A_FILE):
        with whole_lines(folder / f"{files:04d}.jsonl") as put:
            for _, question in zip(waiting[first : first + OF_A_FILE], asked, strict=False):
                body = job.endpoint.body(job.messages(question), SCHEMA)
                request = {
                    "custom_id": question.key,
                    "method": "POST",
                    "url": "/v1/chat/completions",
                }
                put(json.dumps({**request, "body": body}, ensure_ascii=False) + "\n")
        files += 1
    return len(waiting), files


def read_results(job: Job, journal: Journal, pattern: str) -> Counter[str]:
    """Takes the answers in files of results into the journal; counts what is in them.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a line is no result, or that of no text that is here; names file and line.
    """
    known = {question.key for question in job.questions()}
    counts = Counter(taken=0, known_before=0, failed=0)
    files = sorted(glob.glob(pattern, recursive=True))
    if not files:
        raise FileNotFoundError(f"{pattern}: no such file")
    for file in map(Path, files):
        for number, line in lines_of(file):
            try:
                value = json.loads(line)
                key, response = value["custom_id"], value.get("response") or {}
                status = response.get("status_code")
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{file}:{number}: no result of a request") from None
            if key not in known:
                raise ValueError(f"{file}:{number}: of no text in {job.records}: {str(key)[:40]!r}")
            if key in journal.answers:
                counts["known_before"] += 1
                continue
            try:
                answer = answer_of(response.get("body")) if status == 200 else None
            except ValueError:
                answer = None
            if answer is None:
                counts["failed"] += 1  # to be asked again
            else:
                journal.add(key, text=answer.text, tokens=answer[1:])
                counts["taken"] += 1
    return counts


def write_graded(job: Job, journal: Journal) -> Counter[str]:
    """Writes graded records and those set aside; counts both, and those without an answer yet."""
    counts = Counter(read=0, graded=0, set_aside=0, without_answer=0)
    for file in files_of(job.records):
        name, kept = file.relative_to(job.records), []
        with whole_lines(job.out / "graded" / name) as put:
            for number, line in lines_of(file):
                counts["read"] += 1
                try:
                    record = record_of(line)
                    answer = journal.answers.get(question_of(record).key)
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


def run(job: Job, command: str, results: str | None) -> int:
    """Does what a command says; returns the exit code."""
    journal = Journal(job.out / JOURNAL, job.about())
    try:
        ended = ""
        if command == "requests":
            count, files = write_requests(job, journal)
            print(f"{count:,} requests in {files} files of {job.out / 'requests'}")
            return 0
        if command == "results":
            counts = read_results(job, journal, results or "")
            tell(", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in counts.items()))
        else:
            ended = asyncio.run(ask_all(job, journal, say))
        counts = write_graded(job, journal)
        tell(", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in counts.items()))
        first, second = twice(journal)
        if len(first) > 1:
            tell(agreement.write(agreement.measure(first, second), job.out, "graded twice"))
        if ended:
            print(f"{ended}; the same command goes on", file=sys.stderr)
        return 1 if counts["without_answer"] else 0
    finally:
        journal.close()


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=("live", "requests", "results"))
    parser.add_argument("results", nargs="?", help="of results: files, a glob")
    parser.add_argument("--records", type=Path, required=True, help="directory of records")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rubric", type=Path, default=RUBRIC, help="a text file; default: ours")
    parser.add_argument("--again", type=float, default=0.0, help="share asked twice (0)")
    parser.add_argument("--model", required=True, help="its name at the endpoint")
    parser.add_argument("--url", default="http://localhost:8000/v1", help="of the endpoint")
    parser.add_argument(
        *("--set", "-s"),
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="how it is asked: concurrency, budget ... (docs/curate.md)",
    )
    options = parser.parse_args(arguments)
    try:
        changes = dict(map(parse_change, options.set))
        faults: list[str] = []
        named = {"model": options.model, "url": options.url, **changes}
        endpoint: Endpoint = parse_as(Endpoint, named, "settings", faults)
        faults = faults or [f"settings.{fault}" for fault in endpoint.faults()]
        if not 0 <= options.again <= 1:
            faults.append(f"again: {options.again} is not a share, from 0 to 1")
        if (options.command == "results") != (options.results is not None):
            faults.append("results: takes the files, and the other commands none")
        inner, outer = options.out.resolve(), options.records.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            faults.append(f"out: {options.out} lies within {options.records}, or around it")
        if faults:
            raise ValueError("\n".join(faults))
        files_of(options.records)
        rubric = options.rubric.read_text("utf-8")
        job = Job(options.records, options.out, rubric, options.again, endpoint)
        return run(job, options.command, options.results)
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
