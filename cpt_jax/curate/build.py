"""Builds a mixture from a directory of raw inputs, by a recipe.

    python -m cpt_jax.curate.build --recipe configs/data/en_small.py --raw raw/ --data tasks/ \\
        --tokenizer out/ --out data/en

Raw files become records, each once (`engine`), are graded by a grader where a rule asks for grades,
selected by their source's rules, and prepared for training. For each source there is then
OUT/SOURCE, a corpus of `data.prepare`; mixture.md and mixture.json say what shares and how many
epochs it comes to. OUT/work keeps what lies in between, and what was set aside.

The same command goes on where it was broken off; another recipe, other raw files or another number
of tasks need another --out. Exit codes: 0 done; 1 not yet (SLURM's jobs, no grader) or something
outside; 2 refused, nothing written.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from cpt_jax import memory
from cpt_jax.curate import engine, propagate, report, select, steps
from cpt_jax.curate.recipe import Recipe, Source, needing_grades, read_recipe
from cpt_jax.curate.survey import survey
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import read_manifest, sha256
from cpt_jax.data.tokenizer import find_tokenizer
from cpt_jax.directories import whole_directory, whole_file
from cpt_jax.lock import tell
from cpt_jax.pages.blocks import Block, Heading, Paragraph, Table, markdown, page
from cpt_jax.parsing import differences, parse_as, parse_change

WORK, GRADED, SELECTED, ABOUT = "work", "graded", "selected", "build.json"
GRADE_BATCH = 64  # paragraphs
# Of a recipe, what changes no record: epochs alone are reckoned by it.
SAID = ("name", "tokens")


class Ask(NamedTuple):
    """What is to be built.

    Attributes:
      recipe: of the mixture.
      raw: directory or URL of raw inputs.
      out: directory.
      tokenizer: of the corpora.
      grader: directory of what `propagate train` made; None: it stops where a rule asks for grades.
      data: directory of the tasks whose test splits are looked for.
      place: where the pipeline runs.
    """

    recipe: Recipe
    raw: str
    out: Path
    tokenizer: str
    grader: Path | None
    data: Path | None
    place: engine.Placement

    @property
    def work(self) -> Path:
        """Where what lies in between is kept."""
        return self.out / WORK


def build(ask: Ask, say: Callable[[str], Any]) -> bool:
    """Builds what is not there yet; returns whether all is.

    Raises:
      ValueError, OSError: an input is at fault, or nothing can be written; what is there is whole.
    """
    files = steps.find_raw(ask.raw, ask.recipe.sources)
    _check(ask, files)
    with _owned(ask.work):
        return _build(ask, files, say)


@contextlib.contextmanager
def _owned(work: Path) -> Iterator[None]:
    """Keeps other processes out; the lock is this process's own, not that of those it starts."""
    with (work / "lock").open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ValueError(f"{work.parent}: another process is building it") from None
        yield


def _build(ask: Ask, files: Sequence[steps.Raw], say: Callable[[str], Any]) -> bool:
    work = str(ask.work.absolute())
    with engine.logged(ask.work / engine.LOGS / "stages.log"):
        stages = engine.stages(ask.recipe, ask.raw, files, work, ask.place.tasks, ask.data)
    if not engine.run(stages, work, ask.place, say):
        return False
    counted = engine.counts(stages, work)
    wanting = [source.name for source in needing_grades(ask.recipe.sources)]
    if wanting and ask.grader is None:
        say(
            f"Rules of {', '.join(wanting)} judge by grades: grade some records of "
            f"{ask.work / engine.UNIQUE}, train a grader, and give it as --grader (docs/curate.md)"
        )
        return False
    for source in ask.recipe.sources:
        _select(ask, source, say)
        _prepare(ask, source, say)
    _report(ask, counted, say)
    return True


def _check(ask: Ask, files: Sequence[steps.Raw]) -> None:
    """Writes what is built, or refuses to go on with something else."""
    if ask.recipe.decontaminate != () and ask.data is None:
        raise ValueError("--data: test splits are to be looked for (decontaminate=() says: none)")
    recipe = dataclasses.asdict(ask.recipe)
    about = {
        "recipe": {name: value for name, value in recipe.items() if name not in SAID},
        "raw": {file.path: file.size for file in files},
        "tasks": ask.place.tasks,
        "tokenizer": sha256(find_tokenizer(ask.tokenizer)),
        "data": None if ask.data is None else str(ask.data.resolve()),
    }
    about = json.loads(json.dumps(about))
    path = ask.work / ABOUT
    if not path.exists():
        if ask.out.exists() and any(ask.out.iterdir()):
            raise FileExistsError(f"{ask.out}: holds something else; it is not overwritten")
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            json.dump(about, file, indent=1)
        return
    changed = differences(json.loads(path.read_text("utf-8")), about)
    if changed:
        raise ValueError(
            f"{path}: something else was begun; give another --out:\n" + "\n".join(changed)
        )


def _select(ask: Ask, source: Source, say: Callable[[str], Any]) -> None:
    """Grades, where that is needed, and selects what is kept of a source."""
    found, target = ask.work / engine.UNIQUE / source.name, ask.work / SELECTED / source.name
    if target.exists():
        return
    if not found.is_dir():
        raise ValueError(
            f"{source.name}: nothing of it was kept; {ask.work / engine.ASIDE} has why"
        )
    if source.rules.needs_grades and ask.grader is not None:
        graded = ask.work / GRADED / source.name
        if jax.default_backend() == "cpu":  # asked no sooner: datatrove forks, JAX must not
            memory.keep_freed()
        propagate.score(ask.grader, found, graded, GRADE_BATCH, say)
        found = graded
    plan = select.Plan(source.rules, found)
    with whole_directory(target) as partial:
        select.write(plan, partial)
    said = ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in plan.counts.items())
    say(f"{source.name}: {said}")


def _prepare(ask: Ask, source: Source, say: Callable[[str], Any]) -> None:
    """The corpus of a source."""
    target = ask.out / source.name
    if target.exists():
        return
    manifest = prepare(
        [str(ask.work / SELECTED / source.name / select.DOCUMENTS / "**/*.jsonl.gz")],
        ask.tokenizer,
        target,
        seq_len=ask.recipe.seq_len,
        repeat_field="repeat",
        heldout_fraction=ask.recipe.heldout_fraction,
        workers=max(1, ask.place.workers),
    )
    train = manifest["splits"]["train"]
    say(f"{source.name}: {train['row_tokens']:,} tokens in {train['rows']:,} rows")


def _report(ask: Ask, counted: engine.Counts, say: Callable[[str], Any]) -> None:
    """Writes what came of it: the mixture's shares and epochs, and a page on the records."""
    recipe, rows, entries = ask.recipe, [], []
    for source in recipe.sources:
        manifest, _ = read_manifest(ask.out / source.name)
        train, share = manifest["splits"]["train"], recipe.shares[source.name]
        epochs = share * recipe.tokens / train["row_tokens"]
        sizes = [train["documents"], train["tokens"], train["row_tokens"], share * recipe.tokens]
        cells = [f"{share:.1%}", *(f"{size:,.0f}" for size in sizes), f"{epochs:.2f}"]
        rows.append([source.name, *cells, f"{train['efficiency']:.2%}"])
        entries.append({"name": source.name, "path": str(ask.out / source.name), "weight": share})
    head = ["source", "share", "documents", "tokens", "with repeats", "wanted", "epochs", "filled"]
    blocks: list[Block] = [
        Paragraph(
            f"Recipe {recipe.name}, {recipe.tokens:,.0f} tokens. Epochs: how often a run of so "
            "many tokens reads all of a source, its repeats among it. Filled: what of its rows is "
            "no padding."
        ),
        Table(head, rows),
        Heading("From raw files to records"),
        Table(
            ["records", ""],
            [[name.replace("_", " "), f"{n:,}"] for name, n in counted._asdict().items()],
        ),
    ]
    with whole_file(ask.out / "mixture.json") as file:
        file.write(json.dumps(entries, indent=1) + "\n")
    with whole_file(ask.out / "mixture.md") as file:
        file.write(markdown(blocks, f"Mixture {recipe.name}"))
    asides = [ask.work / engine.ASIDE]
    # In words: `prepare` has counted the tokens, and to do so again would take as long.
    found = survey(ask.work / SELECTED, asides=asides)
    with whole_file(ask.out / "report.html") as file:
        blocks += report.page(found, recipe.seq_len)
        file.write(page(f"Mixture {recipe.name}", "", blocks))
    say(markdown(blocks[:4]))


def parse(arguments: Sequence[str]) -> Ask:
    """What the command line asks for.

    Raises: ValueError, FileNotFoundError: what of it cannot be meant.
    """
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--recipe", type=Path, required=True, help="a Python file (configs/data)")
    parser.add_argument("--raw", required=True, help="directory or URL of raw inputs")
    parser.add_argument("--out", type=Path, required=True, help="directory of corpora")
    parser.add_argument("--tokenizer", required=True, help="directory, tokenizer.json or Hub id")
    parser.add_argument("--grader", type=Path, help="directory of what `propagate train` made")
    parser.add_argument("--data", type=Path, help="directory of tasks, as of cpt_jax.finetune")
    parser.add_argument(
        *("--set", "-s"),
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="how it is run: executor, tasks, workers ... (docs/curate.md)",
    )
    options = parser.parse_args(arguments)
    faults: list[str] = []
    changes = dict(map(parse_change, options.set))
    place = parse_as(engine.Placement, changes, "set", faults)
    faults = faults or [f"set.{fault}" for fault in place.faults()]
    if faults:
        raise ValueError("; ".join(faults))
    recipe = read_recipe(options.recipe)
    # Whole paths: a task may run where the command was not typed.
    raw = options.raw if "://" in options.raw else str(Path(options.raw).absolute())
    data = options.data and options.data.absolute()
    return Ask(recipe, raw, options.out, options.tokenizer, options.grader, data, place)


def main(arguments: Sequence[str]) -> int:
    """Builds; returns the exit code."""
    try:
        return 0 if build(parse(arguments), tell) else 1
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
