"""From some graded paragraphs to a whole corpus: a small grader learns the grades and gives them.

    python -m cpt_jax.curate.propagate train --grades graded/ --model out/ --out grader/
    python -m cpt_jax.curate.propagate score --grader grader/ --records raw/ --out scored/

Records are JSON lines as datatrove writes them ({"text", "id", "metadata"}), in files .jsonl or
.jsonl.gz at any depth of a directory. ``train`` holds a tenth of the articles out, says how well
the grader agrees with them, and draws it (agreement.md, agreement.html). ``score`` writes a file
for each, with the grades in the metadata, whole or not at all: the same command goes on where it
was broken off. Records without text, and lines that are none, go to aside/ with a reason.

Exit codes: 0 done; 1 something outside (a full disk); 2 refused, nothing computed.
"""

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from cpt_jax import memory, provenance
from cpt_jax.curate import agreement, grader
from cpt_jax.curate.grades import Grade, grade_of
from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of, set_aside, whole_lines
from cpt_jax.data.sources import sha256
from cpt_jax.directories import whole_file
from cpt_jax.finetune import fit
from cpt_jax.finetune.batches import Shapes, TrainingOrder
from cpt_jax.finetune.encode import open_vocabulary
from cpt_jax.finetune.examples import Settings, Split
from cpt_jax.finetune.program import Programs
from cpt_jax.finetune.rows import Row
from cpt_jax.model import hub
from cpt_jax.parsing import parse_change
from cpt_jax.seeds import hash_seed
from cpt_jax.telemetry import Progress

# Biomed-Enriched's (SPEC section 7): 3 epochs, rate 2e-5 with a tenth of warmup, no decay.
SETTINGS = Settings(learning_rate=2e-5, batch=8, epochs=3, warmup=0.1, weight_decay=0.0)
HELD_OUT = 0.1  # of the articles, for dev and for test each
CHUNK = 4096  # records graded at a time
METRIC = "agreement"


class Graded(NamedTuple):
    """A record with its grades."""

    article: str
    text: str
    grade: Grade


def read_graded(directory: Path) -> list[Graded]:
    """All graded records under a directory.

    Raises:
      ValueError: a line is no record, or its grades are none; names file and line.
      OSError: a file cannot be read.
    """
    found = []
    for file in files_of(directory):
        for number, line in lines_of(file):
            try:
                record = record_of(line)
                grade = grade_of(record["metadata"])
            except ValueError as error:
                raise ValueError(f"{file}:{number}: {error}") from None
            article = record["metadata"].get("article") or record.get("id") or f"{file}:{number}"
            found.append(Graded(str(article), record["text"], grade))
    return found


def split_of(article: str, seed: int) -> Split:
    """Which split an article is of: by its name alone, so that its paragraphs stay together."""
    place = hash_seed(seed, article, "held out") / 2**32
    return "test" if place < HELD_OUT else "dev" if place < 2 * HELD_OUT else "train"


def train(records: Sequence[Graded], model: str, settings: Settings, out: Path, seed: int) -> str:
    """Trains a grader, writes it, and returns how well it agrees, as Markdown.

    Args:
      records: graded.
      model: the encoder: a Hugging Face directory or repository, or a finished run of ours.
      settings: how to train; `max_length` is how much of a paragraph is read.
      out: the grader's directory; must not be there, or be empty.
      seed: of the split, the heads and the order of the data.

    Raises:
      ValueError, OSError: what is given is at fault, or ``out`` holds something; nothing is
        trained.
      FloatingPointError: the loss is not finite any more.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out}: exists and is not empty; it is not overwritten")
    by_split: dict[Split, list[Graded]] = {"train": [], "dev": [], "test": []}
    for record in records:
        by_split[split_of(record.article, seed)].append(record)
    if empty := [split for split, members in by_split.items() if not members]:
        articles = len({record.article for record in records})
        raise ValueError(
            f"{len(records)} records of {articles} articles: none for {', '.join(empty)}; a tenth "
            "of the articles each are held out for dev and test"
        )
    spec, vocabulary = hub.load_spec(model), open_vocabulary(hub.resolve(model))
    if not 2 < settings.max_length <= spec.max_position_embeddings:
        raise ValueError(
            f"settings.max_length: {settings.max_length} is not from 3 to the model's "
            f"{spec.max_position_embeddings}"
        )
    network = grader.make_network(spec, hub.load_params(model, spec, head_key=jax.random.key(0)))
    rows: dict[Split, list[Row]] = {
        split: grader.rows_of(
            [m.text for m in members],
            vocabulary,
            settings.max_length,
            [m.grade for m in members],
        )
        for split, members in by_split.items()
    }

    def score(predicted: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
        gold = [member.grade for member in by_split["dev"]]
        return {METRIC: agreement.summary(gold, grader.grades_of(predicted))}

    everything = [row for of_split in rows.values() for row in of_split]
    shapes = Shapes(everything, settings.batch, pad_id=vocabulary.pad)
    order = TrainingOrder("grader", rows["train"], shapes)
    steps = settings.steps or order.steps_per_epoch * (settings.epochs or 0)
    job = fit.Job("grader", rows, settings, score, METRIC, shapes, order, steps)
    group = fit.Group(job, Programs(network, settings, steps, 1, jax.local_devices()[:1]), [seed])
    (result,) = group.run()
    if result.failure is not None or group.best is None:
        raise FloatingPointError(f"grader: {result.failure}")
    gold = [member.grade for member in by_split["test"]]
    found = agreement.measure(gold, grader.grades_of(result.predictions))
    about = grader.About(
        max_length=settings.max_length,
        base=model,
        settings={
            **{name: getattr(settings, name) for name in ("learning_rate", "batch", "warmup")},
            "steps": steps,
            "best_step": result.best_step,
            "seed": seed,
            "sizes": {split: len(members) for split, members in by_split.items()},
            "weights": provenance.describe_init(model),
        },
        held_out=found.numbers(),
    )
    grader.save(out, model, spec, jax.tree.map(lambda array: array[0], group.best), about)
    return agreement.write(found, out, "that were not trained on")


def score(
    directory: Path, records: Path, out: Path, batch: int, say: Callable[[str], None]
) -> Counter[str]:
    """Grades all records under a directory; returns how many were read, written and set aside.

    Raises:
      ValueError, OSError: an input cannot be read, or it and ``out`` lie in one another.
    """
    files = files_of(records)
    inner, outer = out.resolve(), records.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise ValueError(
            f"{out}: within {records}, or around it; its files would be read as records"
        )
    one = grader.Grader(directory, batch)
    mark = {"grader": sha256(directory / grader.HEADS)}
    _check_mark(out / "grader.json", mark)
    counts, start = Counter(read=0, written=0, aside=0), time.monotonic()
    for number, file in enumerate(files, 1):
        name = file.relative_to(records)
        if (out / name).exists():
            continue
        counts.update(_score_file(one, file, out / name, out / ASIDE / name))
        rate = counts["read"] / (time.monotonic() - start)
        say(f"file {number} of {len(files)}: {counts['read']:,} records, {rate:,.0f} a second")
    return counts


def _check_mark(path: Path, mark: Mapping[str, str]) -> None:
    """Writes by which grader a directory is scored, or refuses one that another has begun."""
    if path.exists():
        if json.loads(path.read_text("utf-8")) != mark:
            raise ValueError(f"{path}: scored by another grader; give another --out")
        return
    with whole_file(path) as file:
        file.write(json.dumps(mark) + "\n")


def _score_file(one: grader.Grader, file: Path, target: Path, aside: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    kept: list[str] = []
    with whole_lines(target) as write:
        lines = lines_of(file)
        while chunk := list(itertools.islice(lines, CHUNK)):
            records = []
            for number, line in chunk:
                try:
                    records.append(record_of(line))
                except ValueError as error:
                    kept.append(set_aside(file, number, line, str(error)))
            grades = one.grade([record["text"] for record in records]) if records else []
            for record, grade in zip(records, grades, strict=True):
                record["metadata"] |= grade._asdict()
                write(json.dumps(record, ensure_ascii=False) + "\n")
            counts["read"] += len(chunk)
            counts["written"] += len(records)
        if kept:  # before the file that says that this one is done
            with whole_lines(aside) as write_aside:
                write_aside("".join(kept))
        counts["aside"] = len(kept)
    return counts


def main(arguments: Sequence[str]) -> int:
    """Runs one of the two commands; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.propagate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    learn = commands.add_parser("train", help="a grader from graded records")
    learn.add_argument("--grades", type=Path, required=True, help="directory of graded records")
    learn.add_argument("--model", required=True, help="directory, repository, or finished run")
    learn.add_argument("--out", type=Path, required=True, help="the grader's directory")
    learn.add_argument("--seed", type=int, default=0)
    learn.add_argument("-s", "--set", action="append", default=[], metavar="FIELD=VALUE")
    apply = commands.add_parser("score", help="grades for a whole corpus")
    apply.add_argument("--grader", type=Path, required=True)
    apply.add_argument("--records", type=Path, required=True, help="directory of records")
    apply.add_argument("--out", type=Path, required=True)
    apply.add_argument("--batch", type=int, default=64, help="paragraphs at a time (64)")
    options = parser.parse_args(arguments)
    if jax.default_backend() == "cpu":
        memory.keep_freed()
    try:
        if options.command == "train":
            settings = SETTINGS.changed(dict(map(parse_change, options.set)))
            records = read_graded(options.grades)
            print(train(records, options.model, settings, options.out, options.seed))
        else:
            say = Progress(0).say
            counts = score(options.grader, options.records, options.out, options.batch, say)
            print(", ".join(f"{count:,} {what}" for what, count in counts.items()))
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (OSError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
