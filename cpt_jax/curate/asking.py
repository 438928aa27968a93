"""Questions of a step to a language model: live, or as files of requests and of their results.

What is asked is a `Job`; each answer goes to the journal before the next thing is done, and what
has an answer there is not asked again.
"""

import abc
import argparse
import asyncio
import dataclasses
import glob
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cpt_jax.curate.client import Client, Endpoint, Refused, Unanswered, answer_of
from cpt_jax.curate.journal import Journal
from cpt_jax.curate.records import lines_of, whole_lines
from cpt_jax.lock import say, tell
from cpt_jax.parsing import parse_as, parse_change

COMMANDS = ("live", "requests", "results")
JOURNAL = "journal.jsonl"
IN_A_ROW = 20  # questions given up, after which the endpoint is
OF_A_FILE = 50_000  # requests
SAY_SECONDS = 5.0


class Question(NamedTuple):
    """What is asked; the key is a hash of all that the model reads of it."""

    key: str
    message: str


@dataclasses.dataclass(frozen=True)
class Job(abc.ABC):
    """What is asked of what.

    Attributes:
      out: directory of the journal and of what is written.
      prompt: what the model is told before each question.
      endpoint: where; of requests and results the model and its settings alone.
    """

    out: Path
    prompt: str
    endpoint: Endpoint

    @property
    @abc.abstractmethod
    def schema(self) -> Mapping[str, Any]:
        """Of answers, as JSON schema."""

    @property
    @abc.abstractmethod
    def asked(self) -> str:
        """What a question is of, and where that is, for messages: "text in raw/"."""

    @abc.abstractmethod
    def about(self) -> dict[str, Any]:
        """What answers are of, as JSON types: a journal of others is refused."""

    @abc.abstractmethod
    def questions(self) -> Iterator[Question]:
        """All of them, the same each time."""

    def messages(self, question: Question) -> list[dict[str, str]]:
        """What the model reads."""
        return [
            {"role": "system", "content": self.prompt},
            {"role": "user", "content": question.message},
        ]


def json_in(answer: str) -> Any:
    """The JSON that an answer is, in a fence or not.

    Raises: ValueError where it is none; says so without quoting it.
    """
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)```\s*", answer, re.DOTALL)
    try:
        return json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None


async def ask_all(job: Job, journal: Journal, in_a_row: int) -> str:
    """Asks what has no answer yet; returns why it ended before all have one, or "".

    Args:
      job: what is asked.
      journal: takes the answers.
      in_a_row: questions given up one after the other, after which the endpoint is.

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
                answer = await client.ask(job.messages(question), job.schema)
            except Unanswered as error:
                state["missed"] += 1
                state["in_a_row"] += 1
                if state["in_a_row"] >= in_a_row:
                    ended = f"given up: {error}"
                continue
            journal.add(question.key, text=answer.text, tokens=answer[1:])
            state["spent"] += endpoint.cost(*answer[1:])
            state["done"], state["in_a_row"] = state["done"] + 1, 0
            if time.monotonic() - state["told"] > SAY_SECONDS:
                state["told"] = time.monotonic()
                rate = state["done"] / (state["told"] - start)
                left = (total - state["done"]) / rate
                say(
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
                body = job.endpoint.body(job.messages(question), job.schema)
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
      ValueError: a line is no result, or that of nothing that is asked here; names file and line.
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
                raise ValueError(f"{file}:{number}: of no {job.asked}: {str(key)[:40]!r}")
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


def run(
    job: Job,
    command: str,
    results: str | None,
    write: Callable[[Journal], Counter[str]],
    in_a_row: int,
) -> int:
    """Does what a command says.

    Args:
      job: what is asked.
      command: of `COMMANDS`.
      results: of the command results: files, a glob.
      write: writes what came of the answers; counts what it wrote, among it "without_answer".
      in_a_row: questions given up one after the other, after which the endpoint is.

    Returns: the exit code: 1 if something has no answer yet.
    """
    journal = Journal(job.out / JOURNAL, job.about())
    try:
        ended = ""
        if command == "requests":
            count, files = write_requests(job, journal)
            print(f"{count:,} requests in {files} files of {job.out / 'requests'}")
            return 0
        if command == "results":
            tell(counted(read_results(job, journal, results or "")))
        else:
            ended = asyncio.run(ask_all(job, journal, in_a_row))
        counts = write(journal)
        if ended:
            print(f"{ended}; the same command goes on", file=sys.stderr)
        return 1 if counts["without_answer"] else 0
    finally:
        journal.close()


def counted(counts: Counter[str]) -> str:
    """The counts as a line."""
    return ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in counts.items())


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command, and the options that say who is asked and how."""
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("results", nargs="?", help="of results: files, a glob")
    parser.add_argument("--model", required=True, help="its name at the endpoint")
    parser.add_argument("--url", default="http://localhost:8000/v1", help="of the endpoint")
    parser.add_argument(
        *("--set", "-s"),
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="how it is asked: concurrency, budget ... (docs/curate.md)",
    )


def endpoint_of(
    options: argparse.Namespace, defaults: Mapping[str, Any], faults: list[str]
) -> Endpoint:
    """The endpoint that the options name.

    Args:
      options: of `add_options`.
      defaults: of settings, where others than the endpoint's own fit the step.
      faults: of other options, to be refused together.

    Raises: ValueError with these and with what cannot be meant here, a line for each.
    """
    faults, wrong = [*faults], []
    changes = dict(map(parse_change, options.set))
    named = {"model": options.model, "url": options.url, **defaults, **changes}
    endpoint = parse_as(Endpoint, named, "settings", wrong)
    faults += wrong or [f"settings.{fault}" for fault in endpoint.faults()]
    if (options.command == "results") != (options.results is not None):
        faults.append("results: takes the files, and the other commands none")
    if faults:
        raise ValueError("\n".join(faults))
    return endpoint
