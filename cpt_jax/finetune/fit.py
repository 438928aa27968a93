"""Fine-tuning over many seeds at once: training, the best checkpoint of each, its predictions.

All seeds of a task are one program, where memory allows, else groups of them one after another.
The results of a group come when it ends; those that a caller has written are not asked for again,
and a group that was broken off begins anew: its state would be three times the model for each seed
and as slow to write as many steps to take.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from cpt_jax.finetune.batches import Batch, Shapes, TrainingOrder, in_order
from cpt_jax.finetune.examples import Settings, Split
from cpt_jax.finetune.network import Network, State, rate
from cpt_jax.finetune.program import Programs
from cpt_jax.finetune.rows import Row
from cpt_jax.model.modernbert import Params
from cpt_jax.telemetry import Progress

REPORT_SECONDS = 10.0  # between two lines of progress
USABLE = 0.9  # share of a device's memory: what is compiled is not all that lies there

# What a head predicts of a row, by name. Arrays over its tokens have the length it was padded to.
Predicted = dict[str, np.ndarray]
# Of what is predicted of each row of the dev split: metrics by name.
Score = Callable[[list[Predicted]], Mapping[str, float]]


class Result(NamedTuple):
    """What a seed came to.

    Attributes:
      seed: which.
      dev: metrics at the best step.
      best_step: steps taken when the metric was highest, the first of such.
      steps: taken in all; fewer than planned where it was stopped.
      seconds: its share of its group's.
      losses: the mean of each step's batch.
      evaluations: steps taken and dev metrics, of each time that the dev split was scored.
      predictions: of the test rows, by the parameters of the best step.
      failure: why there are no metrics and predictions, None where there are.
    """

    seed: int
    dev: dict[str, float]
    best_step: int
    steps: int
    seconds: float
    losses: np.ndarray
    evaluations: list[tuple[int, dict[str, float]]]
    predictions: list[Predicted]
    failure: str | None = None


class Job(NamedTuple):
    """What is the same for all seeds of a task."""

    task: str
    rows: Mapping[Split, Sequence[Row]]
    settings: Settings
    score: Score
    metric: str
    shapes: Shapes
    order: TrainingOrder
    steps: int


def fit(
    task: str,
    network: Network,
    rows: Mapping[Split, Sequence[Row]],
    settings: Settings,
    seeds: Sequence[int],
    score: Score,
    *,
    metric: str,
    multiple: int = 16,
    pad_id: int = 0,
    devices: Sequence[Any] | None = None,
) -> Iterator[Result]:
    """Trains with each seed, and yields what each came to, a group when it is done.

    Args:
      task: its name, in messages; the sequence of lengths is drawn from it.
      network: encoder and head.
      rows: of the three splits.
      settings: how to train.
      seeds: no two alike.
      score: metrics of the dev split from what is predicted of its rows.
      metric: of those, what the best step is chosen by: the highest, of equals the first.
      multiple: what lengths of batches are multiples of, tokens.
      pad_id: the token that pads.
      devices: spread the seeds over these; default: all of this process.

    Raises:
      ValueError: settings out of range; a seed twice; no training rows.
    """
    if faults := settings.faults():
        raise ValueError(f"{task}: {'; '.join(faults)}")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{task}: a seed twice in {list(seeds)}")
    if not rows["train"]:
        raise ValueError(f"{task}: no row to train on")
    shapes = Shapes(
        [row for split in rows.values() for row in split],
        settings.batch,
        multiple=multiple,
        pad_id=pad_id,
    )
    order = TrainingOrder(task, rows["train"], shapes)
    steps = settings.steps or order.steps_per_epoch * (settings.epochs or 0)
    job = Job(task, rows, settings, score, metric, shapes, order, steps)
    programs = None
    left = list(seeds)
    while left:
        programs = programs or fitting(job, network, len(left), devices or jax.local_devices())
        together, left = left[: programs.seeds], left[programs.seeds :]
        yield from Group(job, programs, together).run()


def fitting(job: Job, network: Network, seeds: int, devices: Sequence[Any]) -> Programs:
    """The programs of as many seeds at once as memory allows: all, or half, or half of that ..."""
    longest = {
        split: max(rows, key=lambda row: len(row.input_ids)) for split, rows in job.rows.items()
    }
    lengths = job.shapes.lengths

    def largest(*splits: Split) -> Batch:
        row = max((longest[split] for split in splits), key=lambda row: len(row.input_ids))
        return job.shapes.collate([row], lengths[job.shapes.bucket(row)])

    batches = largest("train"), largest("dev", "test")
    each = math.ceil(seeds / len(devices))  # seeds of a device
    while True:
        used = devices[: math.ceil(seeds / each)]
        programs = Programs(network, job.settings, job.steps, each * len(used), used)
        needed, available = programs.bytes_needed(*batches), programs.bytes_available()
        if each == 1 or available is None or needed <= USABLE * available:
            return programs
        Progress(0).say(
            f"{job.task}: {each} seeds on a device need {needed / 2**30:.1f} GiB, and there are "
            f"{available / 2**30:.1f}: half as many"
        )
        each = math.ceil(each / 2)


def evaluation_steps(settings: Settings, steps: int, steps_per_epoch: int) -> frozenset[int]:
    """After which steps, counted from 1, the dev split is scored."""
    if settings.evaluations is None:
        return frozenset([*range(steps_per_epoch, steps, steps_per_epoch), steps])
    count = min(settings.evaluations, steps)
    return frozenset(max(1, round(steps * i / count)) for i in range(1, count + 1))


class Group:
    """Seeds that are trained together.

    Args:
      job: the task.
      programs: of at least so many seeds.
      seeds: which.

    Attributes:
      best: the parameters of each seed's best step so far, stacked; None before the first
        evaluation.
    """

    best: Params | None = None

    def __init__(self, job: Job, programs: Programs, seeds: Sequence[int]):
        self._job, self._programs, self._seeds = job, programs, seeds
        # A program of more seeds than there are has the last again, stopped from the start.
        idle = programs.seeds - len(seeds)
        self._slots = [*seeds, *[seeds[-1]] * idle]
        self._active = [*[True] * len(seeds), *[False] * idle]
        self._failures: dict[int, str] = {}
        self._losses: list[np.ndarray] = []
        self._taken = [0] * len(seeds)
        self._evaluations: list[list[tuple[int, dict[str, float]]]] = [[] for _ in seeds]
        self._best = [0] * len(seeds)  # which of them was the best
        self._progress = Progress(job.steps)
        self._reported = time.monotonic()

    def run(self) -> Iterator[Result]:
        """Trains to the end, and yields the results."""
        start, job, programs = time.monotonic(), self._job, self._programs
        state = programs.start(self._slots, self._active)
        keys = programs.keys(self._slots, "dropout")
        when = evaluation_steps(job.settings, job.steps, job.order.steps_per_epoch)
        losses: list[jax.Array] = []  # of the steps that are not fetched yet
        for step in range(job.steps):
            batch = job.order.batch(self._slots, step)
            state, loss = programs.train(state, batch, keys, step)
            losses.append(loss)
            self._count(batch)
            evaluated = step + 1 in when
            # One step behind, so that the next batch is made while this one is computed.
            while len(losses) > (0 if evaluated else 1):
                self._note(losses.pop(0))
            if evaluated and any(self._active):
                with self._progress.paused():
                    self._evaluate(step + 1, state)
                state = state._replace(active=programs.mask(self._active))
            if not any(self._active):
                break
        del state
        results = list(self._results())
        self._progress.close()
        seconds = (time.monotonic() - start) / len(self._seeds)
        for result in results:
            yield result._replace(seconds=seconds)

    def _count(self, batch: Batch) -> None:
        """Counts a step's tokens, of seeds that are still trained."""
        self._progress.count(int(batch["segment_ids"][self._active].sum()), 0.0)

    def _note(self, loss: jax.Array) -> None:
        """Keeps the losses of a step; a seed whose loss is not finite is stopped."""
        values, step = np.asarray(loss), len(self._losses) + 1
        self._losses.append(values)
        for i, seed in enumerate(self._seeds):
            if not self._active[i]:
                continue
            self._taken[i] = step
            if not np.isfinite(values[i]):
                why = f"loss, gradient or update of step {step} is not finite"
                self._fail(i, f"{why}: seed {seed} is stopped")
        last = step == self._job.steps
        if any(self._active) and (last or time.monotonic() - self._reported > REPORT_SECONDS):
            self._report(step, values[self._active])

    def _fail(self, i: int, why: str) -> None:
        """Stops a seed, which gets no metrics; the others go on."""
        self._active[i], self._failures[i] = False, why
        self._progress.say(f"{self._job.task}: {why}")

    def _report(self, step: int, losses: np.ndarray) -> None:
        settings = self._job.settings
        lr = settings.learning_rate * float(rate(step - 1, self._job.steps, settings.warmup))
        seeds = f"{len(losses)} seeds" if len(losses) > 1 else "1 seed"
        phase = f"{self._job.task}, {seeds}, losses {losses.min():.4f} to {losses.max():.4f}"
        self._progress.report(step, phase=phase, loss=float(losses.mean()), lr=lr)
        self._reported = time.monotonic()

    def _evaluate(self, step: int, state: State) -> None:
        """Scores the dev split, and keeps the parameters of the seeds that were never better."""
        job, improved = self._job, [False] * len(self._slots)
        predicted = self._predict(state.params, "dev")
        for i in range(len(self._seeds)):
            if not self._active[i]:
                continue
            if not _are_numbers(predicted[i]):
                why = f"predictions after step {step} are not numbers"
                self._fail(i, f"{why}: seed {self._seeds[i]} is stopped")
                continue
            found = self._evaluations[i]
            found.append((step, dict(job.score(predicted[i]))))
            if len(found) == 1 or self._value(i, -1) > self._value(i, self._best[i]):
                self._best[i], improved[i] = len(found) - 1, True
            patience = job.settings.patience
            if patience is not None and len(found) - 1 - self._best[i] >= patience:
                self._active[i] = False
        values = " ".join(f"{self._value(i, -1):.4f}" for i in range(len(self._seeds)))
        self._progress.say(f"{job.task}, step {step}: dev {job.metric} {values}")
        if self.best is None:
            self.best = jax.tree.map(lambda array: array.copy(), state.params)
        else:
            self.best = self._programs.choose(improved, self.best, state.params)

    def _value(self, seed: int, place: int) -> float:
        """The metric of one of a seed's evaluations, below all others where it is NaN."""
        found = self._evaluations[seed]
        value = found[place][1][self._job.metric] if found else math.nan
        return -math.inf if math.isnan(value) else value

    def _predict(self, params: Params, split: Split) -> list[list[Predicted]]:
        """What each seed predicts of each row."""
        rows = self._job.rows[split]
        found: list[list[Predicted]] = [[{}] * len(rows) for _ in self._seeds]
        for places, batch in in_order(rows, self._job.shapes):
            arrays = jax.device_get(self._programs.predict(params, batch))
            for i, predicted in enumerate(found):
                for row, place in enumerate(places):
                    predicted[place] = {name: array[i, row] for name, array in arrays.items()}
        return found

    def _results(self) -> Iterator[Result]:
        """What the seeds came to."""
        predicted: list[list[Predicted]] = [[] for _ in self._seeds]
        if self.best is not None and len(self._failures) < len(self._seeds):
            predicted = self._predict(self.best, "test")
        losses = np.array(self._losses)
        for i, seed in enumerate(self._seeds):
            if i not in self._failures and not _are_numbers(predicted[i]):
                self._fail(i, f"predictions of the test split are not numbers: seed {seed}")
            taken, failure = self._taken[i], self._failures.get(i)
            result = Result(
                seed=seed,
                dev={},
                best_step=0,
                steps=taken,
                seconds=0.0,
                losses=losses[:taken, i],
                evaluations=self._evaluations[i],
                predictions=[],
                failure=failure,
            )
            if failure is None:
                step, dev = self._evaluations[i][self._best[i]]
                result = result._replace(dev=dev, best_step=step, predictions=predicted[i])
            yield result


def _are_numbers(predicted: Sequence[Predicted]) -> bool:
    """Whether no prediction is NaN, which shows diverged weights where the loss does not."""
    return not any(np.isnan(array).any() for row in predicted for array in row.values())
