"""The pipeline that datatrove runs: raw files to records, each once.

read/       records that are long enough, in their source's language and in no test split
unique/     of those, each text once, and of near duplicates one; a directory for each source
aside/      all others, with the reason
logs/       what each task said and counted; a task that is noted there is not run again

A task that was broken off begins anew and writes its files over. What is written depends on the
number of tasks, not on how many of them run at once, nor on where.
"""

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.exact_dedup import (
    ExactDedupConfig,
    ExactDedupFilter,
    ExactDedupSignature,
    ExactFindDedups,
)
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.utils.hashing import HashConfig
from datatrove.utils.text import TextNormConfig

from cpt_jax.curate.recipe import Recipe
from cpt_jax.curate.steps import NAMED, Keep, Raw, ReadSources, Words, records, writer

READ, UNIQUE, ASIDE, LOGS = "read", "unique", "aside", "logs"
SAY_SECONDS = 10.0
# Of 64 bits: datatrove's other one, of xxhash, takes no text from its version 4 on.
SHA1 = HashConfig(hash_fc="sha1")


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where and how the tasks run.

    Attributes:
      executor: here; by SLURM's sbatch; in the Ray cluster of RAY_ADDRESS, or one of this machine.
      tasks: into how many the raw files are shared out; what is written depends on it.
      workers: of them at a time; -1: all.
      partition, time, qos: of SLURM.
      memory_gb: of a task, by SLURM and Ray.
      environment: commands of the shell that a SLURM job begins with.
    """

    executor: Literal["local", "slurm", "ray"] = "local"
    tasks: int = 8
    workers: int = 1
    partition: str = ""
    time: str = "24:00:00"
    qos: str = "normal"
    memory_gb: int = 4
    environment: str = ""

    def faults(self) -> list[str]:
        """What cannot be meant."""
        faults = []
        if self.tasks < 1:
            faults.append(f"tasks: {self.tasks} is not 1 or more")
        if self.workers < 1 and self.workers != -1:
            faults.append(f"workers: {self.workers} is not 1 or more, or -1, all tasks")
        if self.memory_gb < 1:
            faults.append(f"memory_gb: {self.memory_gb} is not 1 or more")
        if self.executor == "slurm" and not self.partition:
            faults.append("partition: SLURM asks for one")
        return faults


class Stage(NamedTuple):
    """Steps that a record goes through in one task, and in how many tasks."""

    name: str
    steps: list[PipelineStep]
    tasks: int


class Counts(NamedTuple):
    """Records: those that were read; that could not be; that are too short, in another language or
    in a test split; that are there twice; that nearly are; and what is left.
    """

    read: int
    faulty: int
    unfit: int
    duplicates: int
    near_duplicates: int
    unique: int


def text_of(document: Document) -> str:
    """What must not be there twice."""
    return document.text


def stages(
    recipe: Recipe, root: str, files: Sequence[Raw], out: str, tasks: int, data: Path | None
) -> list[Stage]:
    """What is done to the raw files, one after the other.

    Args:
      recipe: of the mixture.
      root: the directory of raw inputs.
      files: in it (`steps.find_raw`).
      out: where all is written.
      tasks: see `Placement`.
      data: the directory of the tasks whose test splits are looked for; None: none are.
    """

    def aside(step: str, reason: str | None = None) -> Any:
        return writer(f"{out}/{ASIDE}/{step}", reason)

    exact, near = f"{out}/exact", f"{out}/near"
    config = ExactDedupConfig(content_getter=text_of, hash_config=SHA1)
    once = ExactDedupFilter(f"{exact}/duplicates", config)
    once_noted = ExactDedupFilter(f"{exact}/duplicates", config, aside("exact", "duplicate"))
    wanted = recipe.decontaminate
    read: list[PipelineStep] = [
        ReadSources(root, files, recipe.sources, aside("faults")),
        Keep(recipe.sources, None if wanted == () else data, wanted or (), aside("unfit")),
        writer(f"{out}/{READ}"),
    ]
    before = records(f"{out}/{READ}")
    written = writer(f"{out}/{UNIQUE}", name="${source}/" + NAMED)
    found = [
        Stage(READ, read, tasks),
        Stage("exact-1", [before, ExactDedupSignature(f"{exact}/hashes", config, tasks)], tasks),
        Stage(
            "exact-2", [ExactFindDedups(f"{exact}/hashes", f"{exact}/duplicates", config)], tasks
        ),
    ]
    if recipe.near is None:
        return [*found, Stage(UNIQUE, [before, once_noted, written], tasks)]
    # Numbers are kept: two notes or leaflets that differ in a dose are two.
    same = TextNormConfig(norm_numbers=False)
    size = recipe.near.words, recipe.near.buckets, recipe.near.hashes
    how = MinhashConfig(*size, norm_config=same, hash_config=SHA1)
    words: Any = Words()  # datatrove's annotation knows of a language's name alone
    sign = MinhashDedupSignature(f"{near}/signatures", how, language=words)
    return [
        *found,
        Stage("near-1", [before, once, sign], tasks),
        Stage(
            "near-2",
            [MinhashDedupBuckets(f"{near}/signatures", f"{near}/pairs", config=how)],
            how.num_buckets,
        ),
        Stage("near-3", [MinhashDedupCluster(f"{near}/pairs", f"{near}/remove", config=how)], 1),
        Stage(
            UNIQUE,
            [
                before,
                once_noted,
                MinhashDedupFilter(f"{near}/remove", aside("near", "near duplicate")),
                written,
            ],
            tasks,
        ),
    ]


def executor(stage: Stage, out: str, place: Placement) -> PipelineExecutor:
    """What runs a stage and waits for it."""
    logs = f"{out}/{LOGS}/{stage.name}"
    common: dict[str, Any] = {"tasks": stage.tasks, "workers": place.workers, "logging_dir": logs}
    if place.executor == "ray":
        return RayPipelineExecutor(stage.steps, **common, mem_per_cpu_gb=place.memory_gb)
    return LocalPipelineExecutor(stage.steps, **common)


def submit(stages: Sequence[Stage], out: str, place: Placement) -> None:
    """Hands stages to SLURM, each to begin when the one before has ended well."""
    depends: Any = None
    for stage in stages:
        depends = SlurmPipelineExecutor(
            stage.steps,
            tasks=stage.tasks,
            workers=place.workers,
            logging_dir=f"{out}/{LOGS}/{stage.name}",
            job_name=f"curate-{stage.name}",
            partition=place.partition,
            time=place.time,
            qos=place.qos,
            mem_per_cpu_gb=place.memory_gb,
            env_command=place.environment or "true",
            mail_type="NONE",
            depends=depends,
        )
    depends.run()


def left(stage: Stage, out: str) -> int:
    """How many of a stage's tasks are not done."""
    done = Path(out, LOGS, stage.name, "completions")
    return stage.tasks - len(list(done.iterdir())) if done.is_dir() else stage.tasks


def run(stages: Sequence[Stage], out: str, place: Placement, say: Callable[[str], Any]) -> bool:
    """Runs what is not done yet; returns whether all is. SLURM's jobs are handed in, not awaited.

    Raises: OSError: a task failed; names the log.
    """
    waiting = [stage for stage in stages if left(stage, out)]
    if not waiting:
        return True
    if place.executor == "slurm":
        mark = Path(out, LOGS, "submitted")
        if mark.exists():
            say(f"SLURM has the jobs and is not through; without {mark} they are handed in again")
            return False
        submit(waiting, out, place)
        mark.touch()
        say(f"{len(waiting)} stages handed to SLURM; when they have ended the same command goes on")
        return False
    for stage in waiting:
        start = time.monotonic()
        with logged(Path(out, LOGS, f"{stage.name}.log")), _progress(stage, out, say):
            try:
                executor(stage, out, place).run()
            except Exception as error:  # of whatever kind a step raises
                raise OSError(f"{stage.name}: {error}; {out}/{LOGS}/{stage.name}.log") from error
        say(f"{stage.name}: {stage.tasks} tasks, {time.monotonic() - start:.0f} s")
    return True


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Standard error, of processes that are started too, to a file: each task says some pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(2)
    try:
        with path.open("a") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextlib.contextmanager
def _progress(stage: Stage, out: str, say: Callable[[str], Any]) -> Iterator[None]:
    """Says every so often how many tasks are done."""
    ended, start, first = threading.Event(), time.monotonic(), left(stage, out)

    def watch() -> None:
        while not ended.wait(SAY_SECONDS):
            now = left(stage, out)
            done, seconds = first - now, time.monotonic() - start
            eta = f", ETA {now * seconds / done / 60:.0f} min" if done else ""
            say(f"{stage.name}: {stage.tasks - now} of {stage.tasks} tasks{eta}")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def counts(stages: Sequence[Stage], out: str) -> Counts:
    """What became of the records, as the tasks counted.

    Raises: ValueError: there are more or fewer than were read.
    """
    found: Counter[tuple[str, int, str]] = Counter()
    for stage in stages:
        for file in Path(out, LOGS, stage.name, "stats").glob("*.json"):
            for place, step in enumerate(json.loads(file.read_text("utf-8"))):
                for name in ("read", "faults", "total", "dropped"):
                    found[stage.name, place, name] += step["stats"].get(name, 0)
    last = len(stages[-1].steps) - 1
    counted = Counts(
        read=found[READ, 0, "read"],
        faulty=found[READ, 0, "faults"],
        unfit=found[READ, 1, "dropped"],
        duplicates=found[UNIQUE, 1, "dropped"],
        near_duplicates=found[UNIQUE, 2, "dropped"] if last == 3 else 0,
        unique=found[UNIQUE, last, "total"],
    )
    if counted.read != sum(counted[1:]):
        raise ValueError(
            f"{out}: of {counted.read} records some are lost, or there twice: {counted}"
        )
    return counted
