"""Texts that teach a coding system, written by a large language model along walks over its codes.

    python -m cpt_jax.curate.synthesise live --table cim10.csv --system icd10 --licence NAME \
        --kind qa --language fr --count 10000 --out synthetic/cim10/ --model NAME --url URL
    python -m cpt_jax.curate.synthesise requests ... ; ... results 'done/*.jsonl' ...

The codes of a table (`codings`) are walked over by their relations (`walks`), and a model behind an
OpenAI-compatible endpoint is told to make of each walk questions with answers, or prose, that keep
codes and labels as they are. What asking is like is as in `grade`: each answer is on the disk
(journal.jsonl) before the next thing is done, and is not asked for again; also not when more is
asked for. Then texts/ and aside/ are written: walks = written + set aside, with the reason.

Set aside are texts without one of the codes or labels, with a code that was not given, too short or
too long, and not in the language. Exit codes: 0 all are written or set aside for good; 1 some have
no answer yet (budget, endpoint); 2 refused, nothing asked.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from cpt_jax.curate.codings import SYSTEMS, Columns, Table, read_table
from cpt_jax.curate.journal import Journal
from cpt_jax.curate.records import ASIDE, set_aside, whole_lines
from cpt_jax.curate.walks import IN_VAIN, Walk, walks
from cpt_jax.lock import tell

TEMPLATES = Path(__file__).parent / "templates"
SETTINGS = {"max_tokens": 2000, "temperature": 0.7}  # where nothing else is said
OF_A_FILE = 50_000  # texts
# The commonest words of each language that the other does not have.
COMMON = {
    "en": frozenset({"the", "of", "and", "is", "in", "to", "for", "with", "that", "which", "are"}),
    "fr": frozenset({"le", "la", "les", "des", "de", "du", "et", "est", "une", "un", "dans"}),
}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "qa": _object(pairs={"type": "array", "items": _object(question=_TEXT, answer=_TEXT)}),
    "prose": _object(text=_TEXT),
}


@dataclasses.dataclass(frozen=True)
class Synthesis(Job):
    """What texts are of, and what they are to be; the prompt is the template.

    Attributes:
      table: of codes.
      kind: of `SCHEMAS`.
      language: of `COMMON`.
      template: its name.
      seed: of the walks.
      length: codes of a walk.
      count: walks.
      least, most: words of a text.
      metadata: of all records: source and licence.
    """

    table: Table
    kind: str
    language: str
    template: str
    seed: int
    length: int
    count: int
    least: int
    most: int
    metadata: Mapping[str, str]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Of answers."""
        return SCHEMAS[self.kind]

    @property
    def asked(self) -> str:
        """What a question is of."""
        return f"walk of these {self.count:,} over {self.table.system}"

    def about(self) -> dict[str, Any]:
        """What answers are of: another model or template gives others, more walks do not."""
        return {
            "system": self.table.system,
            "seed": self.seed,
            "length": self.length,
            "model": self.endpoint.model,
            "kind": self.kind,
            "template": hashlib.sha256(self.prompt.encode()).hexdigest(),
            "temperature": self.endpoint.temperature,
            "max_tokens": self.endpoint.max_tokens,
        }

    def walks(self) -> Iterator[Walk]:
        """All of them, or as many as there are."""
        return itertools.islice(walks(self.table, self.seed, self.length), self.count)

    def questions(self) -> Iterator[Question]:
        """One of each walk."""
        return map(self.question_of, self.walks())

    def question_of(self, walk: Walk) -> Question:
        """The question of a walk: its codes, with their labels, and its relations, as JSON."""
        relations = []
        for at, relation, to in walk.steps:
            if relation == "sibling":
                relations.append({"siblings": [at, to]})
            else:
                code, parent = (at, to) if relation == "parent" else (to, at)
                relations.append({"code": code, "parent": parent})
        given = {
            "system": SYSTEMS[self.table.system].names[self.language],
            "codes": [{"code": code, "label": self.table.labels[code]} for code in walk.codes],
            "relations": relations,
        }
        message = json.dumps(given, ensure_ascii=False, indent=1)
        return Question(hashlib.sha256(message.encode()).hexdigest()[:32], message)


def text_in(answer: str, kind: str) -> str:
    """The text that an answer gives: prose, or questions and answers with a line between pairs.

    Raises: ValueError where it gives none; says why, without quoting it.
    """
    value = json_in(answer)
    if kind == "prose":
        if not isinstance(value, dict) or value.keys() != {"text"}:
            raise ValueError("the answer is no object of text")
        paragraphs = [value["text"]]
    else:
        if not isinstance(value, dict) or value.keys() != {"pairs"}:
            raise ValueError("the answer is no object of pairs")
        pairs = value["pairs"]
        if not isinstance(pairs, list) or not all(
            isinstance(pair, dict) and pair.keys() == {"question", "answer"} for pair in pairs
        ):
            raise ValueError("the answer's pairs are no objects of question, answer")
        paragraphs = [part for pair in pairs for part in (pair["question"], pair["answer"])]
    if not all(isinstance(part, str) and part.strip() for part in paragraphs):
        raise ValueError("a part of the answer is no text, or empty")
    parts = [part.strip() for part in paragraphs]
    if kind == "prose":
        return parts[0]
    both = zip(parts[::2], parts[1::2], strict=True)
    return "\n\n".join(f"{question}\n{answer}" for question, answer in both)


def normal(text: str) -> str:
    """A text but for case, space, and which apostrophe it has."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


def check(job: Synthesis, walk: Walk, text: str) -> None:
    """Looks whether a text is what was asked for.

    Raises: ValueError where it is not; says why, without quoting it.
    """
    system, words = SYSTEMS[job.table.system], len(text.split())
    if not job.least <= words <= job.most:
        raise ValueError(f"{words} words, not {job.least} to {job.most}")
    found = set(system.found.findall(text))
    for code in walk.codes:
        if system.found.fullmatch(code):
            there = code in found
        else:  # such as the letter of an ATC group, of which a text has many
            there = re.search(rf"(?<![^\W_]){re.escape(code)}(?![^\W_])", text) is not None
        if not there:
            raise ValueError(f"without the code {code}")
    labels = [job.table.labels[code] for code in walk.codes]
    rest = plain = normal(text)
    for code, label in zip(walk.codes, labels, strict=True):
        if normal(label) not in plain:
            raise ValueError(f"without the label of {code}")
        rest = rest.replace(normal(label), " ")
    given = {*walk.codes, *(one for label in labels for one in system.found.findall(label))}
    if others := len(found - given):
        raise ValueError(f"{others} codes that were not given")
    counts = Counter(re.findall(r"\w+", rest))  # labels may be of another language
    here = {name: sum(counts[word] for word in common) for name, common in COMMON.items()}
    if here[job.language] <= max(n for name, n in here.items() if name != job.language):
        raise ValueError(f"not in the language asked for ({job.language}), by its commonest words")


def record_of(job: Synthesis, walk: Walk, text: str) -> dict[str, Any]:
    """The record of a text."""
    name = f"{job.table.system}-{job.template}-{job.seed}-{walk.number}"
    metadata = {
        **job.metadata,
        "article": name,
        "system": job.table.system,
        "codes": list(walk.codes),
        "walk": {"seed": job.seed, "number": walk.number, "table": job.table.digest},
        "model": job.endpoint.model,
        "template": job.template,
    }
    return {"text": text, "id": name, "metadata": metadata}


def text_of(job: Synthesis, walk: Walk, answer: Mapping[str, Any] | None) -> str:
    """The text of a walk, as the journal has its answer.

    Raises: ValueError where there is none that can go on.
    """
    if answer is None:
        raise ValueError("no answer yet")
    text = text_in(answer["text"], job.kind)
    check(job, walk, text)
    return text


def write_texts(job: Synthesis, table: Path, journal: Journal) -> Counter[str]:
    """Writes the texts and those set aside; counts both, and walks without an answer yet."""
    counts = Counter(walks=0, written=0, set_aside=0, without_answer=0)
    used = set[str]()
    aside, written = job.out / ASIDE, job.out / "texts"
    left = {path for folder in (aside, written) for path in folder.glob("[0-9]*.jsonl")}
    everything = job.walks()
    for first in range(0, job.count, OF_A_FILE):
        name, kept = f"{first // OF_A_FILE:04d}.jsonl", []
        with whole_lines(written / name) as put:
            for walk in itertools.islice(everything, OF_A_FILE):
                counts["walks"] += 1
                answer = journal.answers.get(job.question_of(walk).key)
                counts["without_answer"] += answer is None
                try:
                    text = text_of(job, walk, answer)
                except ValueError as error:
                    raw = {"codes": walk.codes, "answer": answer and answer["text"]}
                    line = json.dumps(raw, ensure_ascii=False).encode()
                    kept.append(set_aside(table, walk.number, line, str(error)))
                    continue
                put(json.dumps(record_of(job, walk, text), ensure_ascii=False) + "\n")
                counts["written"] += 1
                used.update(walk.codes)
        left.discard(written / name)
        counts["set_aside"] += len(kept)
        if kept:
            with whole_lines(aside / name) as put_aside:
                put_aside("".join(kept))
            left.discard(aside / name)
    for path in left:  # of an earlier run, of more walks or with more set aside
        path.unlink()
    tell(counted(counts))
    tell(f"{len(used):,} of {len(job.table.labels):,} codes are in what is written")
    return counts


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.synthesise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.add_argument("--table", type=Path, required=True, help="of codes: .csv, .tsv")
    parser.add_argument("--system", choices=tuple(SYSTEMS), required=True)
    parser.add_argument("--code", default="code", help="column: its header, or its number")
    parser.add_argument("--label", default="label", help="column, likewise")
    parser.add_argument("--parent", help='column; default: "parent", or derived (docs/curate.md)')
    parser.add_argument("--encoding", default="utf-8", help="of the table: utf-8, cp1252 ...")
    parser.add_argument("--licence", required=True, help="of the texts")
    parser.add_argument("--source", help="their name in metadata; default: synthetic-SYSTEM")
    parser.add_argument("--kind", choices=tuple(SCHEMAS), default="qa")
    parser.add_argument("--language", choices=tuple(COMMON), required=True)
    parser.add_argument("--template", type=Path, help="a text file; default: ours of the kind")
    parser.add_argument("--count", type=int, required=True, help="walks")
    parser.add_argument("--length", type=int, default=4, help="codes of a walk (4)")
    parser.add_argument("--seed", type=int, default=0, help="of the walks (0)")
    parser.add_argument("--least", type=int, default=40, help="words of a text (40)")
    parser.add_argument("--most", type=int, default=800, help="words of a text (800)")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def job_of(options: argparse.Namespace) -> Synthesis:
    """What the options ask for.

    Raises: ValueError and OSError where that cannot be.
    """
    faults = [
        f"{name}: {getattr(options, name)} is not 1 or more"
        for name in ("count", "length", "least")
        if getattr(options, name) < 1
    ]
    if options.most < options.least:
        faults.append(f"most: {options.most} words are fewer than least, {options.least}")
    if not options.licence.strip():
        faults.append("licence: empty")
    endpoint = endpoint_of(options, SETTINGS, faults)
    file = options.template or TEMPLATES / f"{options.kind}_{options.language}.txt"
    columns = Columns(options.code, options.label, options.parent)
    table = read_table(options.table, options.system, columns, options.encoding)
    source = options.source or f"synthetic-{options.system}"
    names = ("kind", "language", "seed", "length", "count", "least", "most")
    job = Synthesis(
        options.out,
        file.read_text("utf-8"),
        endpoint,
        table=table,
        template=file.stem,
        metadata={"source": source, "licence": options.licence},
        **{name: getattr(options, name) for name in names},
    )
    used, count = set[str](), 0
    for walk in job.walks():
        used.update(walk.codes)
        count += 1
    if count < job.count:
        raise ValueError(
            f"count: {job.count:,} walks of {job.length} codes are wanted, and there are "
            f"{count:,}: {IN_VAIN:,} numbers after them gave the codes of one of them, or none"
        )
    tell(
        f"{options.table}: {len(table.labels):,} codes, {table.passed_over:,} lines without one; "
        f"{count:,} walks, {len(used):,} codes in at least one"
    )
    return job


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; returns the exit code."""
    options = options_of(arguments)
    try:
        job = job_of(options)
        return run(
            job,
            options.command,
            options.results,
            lambda j: write_texts(job, options.table, j),
            IN_A_ROW,
        )
    except (
        ValueError,
        FileNotFoundError,
        NotADirectoryError,
        IsADirectoryError,
        FileExistsError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
