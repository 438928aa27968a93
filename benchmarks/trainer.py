"""The same fine-tuning in transformers' Trainer and here: F1 of paired seeds, losses, tokens/s.

    python -m benchmarks.trainer --model out/ --data tasks/ --out page/     # NCBI-disease, 5 seeds

It needs `pip install -e '.[trainer]'`: without accelerate there is no Trainer. A task of kind
tagging, on the CPU, in fp32. Both sides read the same rows (token ids, and a label at each word's
first token) and start from the same weights: of a seed, both heads begin with what our seed draws.
Rates, warmup, decay, clipping, batch and epochs are the same, dropout is the model's; the dev split
is scored after each epoch, and the test split with the best epoch's weights. Both sides'
probabilities are decoded and scored by `cpt_jax.finetune` (strict entity F1, which tests hold
against seqeval).

The Trainer is used as its documentation does: rows shuffled (or grouped by length: `--batches`),
and padded to the longest of their batch (`DataCollatorForTokenClassification`), fused AdamW, all
cores. With `--batches ours` it is given our batches instead, seed for seed: what is left of a
difference in F1 then is rounding, while in batches of its own each side draws its own luck. Ours
trains one seed after the other, in the batches of `finetune.batches`. Sides take
turns, and which is first changes from seed to seed. Tokens per second are of rows without their
padding, and of the median epoch: with the making of batches; without compiling, which is told
apart, scoring and saving. On a machine that has other work too, set OMP_WAIT_POLICY=passive:
PyTorch's threads wait for each other in busy loops otherwise, and a step took 40 times as long.
A table goes to standard output, a picture of the losses to --out.
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import torch
import transformers
from matplotlib.figure import Figure

from cpt_jax import memory
from cpt_jax.finetune import fit, metrics, run, tasks
from cpt_jax.finetune.batches import Shapes, TrainingOrder
from cpt_jax.finetune.decode import decode
from cpt_jax.finetune.encode import Encoded, encode, open_vocabulary
from cpt_jax.finetune.examples import Settings, Split
from cpt_jax.finetune.network import Network
from cpt_jax.finetune.program import Programs
from cpt_jax.finetune.significance import t_interval
from cpt_jax.finetune.tags import tag_names
from cpt_jax.finetune.tasks.loading import load
from cpt_jax.model import hub
from cpt_jax.seeds import hash_seed

OURS, TRAINER, METRIC = "cpt_jax", "Trainer", "entity_f1"
SMOOTHED = 20  # steps whose mean loss is a point of the picture


class Work(NamedTuple):
    """What all sides are given."""

    task: str
    model: Path
    settings: Settings
    network: Network
    encoded: Mapping[Split, Encoded]
    tags: int

    def score(self, split: Split, predicted: Sequence[Any]) -> dict[str, float]:
        """Metrics of a split, from what is predicted of its rows."""
        return metrics.score(decode(self.encoded[split], predicted))


class Seed(NamedTuple):
    """What a seed came to on one side.

    Attributes:
      f1: of the test split.
      losses: means of `SMOOTHED` steps.
      seconds: of each epoch, as `now` gives them.
    """

    f1: float
    losses: np.ndarray
    seconds: np.ndarray


def now() -> np.ndarray:
    """Seconds by the clock, and of all threads of this process."""
    return np.array([time.perf_counter(), time.process_time()])


class Timed(Programs):
    """Programs that time from an epoch's first step until the dev split is read."""

    _since: np.ndarray | None = None

    def restart(self) -> None:
        """Forgets the epochs there were."""
        self.epochs: list[np.ndarray] = []

    def train(self, *arguments: Any) -> Any:
        """As `Programs.train`."""
        self._since = now() if self._since is None else self._since
        return super().train(*arguments)

    def predict(self, params: Any, batch: Any) -> Any:
        """As `Programs.predict`; the losses of all steps have been fetched by then."""
        if self._since is not None:
            self.epochs.append(now() - self._since)
            self._since = None
        return super().predict(params, batch)


class Ours:
    """`cpt_jax.finetune`, one seed at a time.

    Attributes:
      order: which rows are in which batch.
      compiling: seconds in which all programs were traced and compiled.
    """

    def __init__(self, work: Work):
        settings = work.settings
        rows: dict[Split, Any] = {name: split.rows for name, split in work.encoded.items()}
        everything = [row for split in rows.values() for row in split]
        shapes = Shapes(everything, settings.batch)
        self.order = TrainingOrder(work.task, rows["train"], shapes)
        steps = self.order.steps_per_epoch * cast(int, settings.epochs)
        self._work = work
        score = functools.partial(work.score, "dev")
        self._job = fit.Job(work.task, rows, settings, score, METRIC, shapes, self.order, steps)
        self._programs = Timed(work.network, settings, steps, 1, jax.devices()[:1])
        shortest = min(everything, key=lambda row: len(row.input_ids))
        start = time.perf_counter()
        self._programs.restart()
        state, keys = self._programs.start([0], [True]), self._programs.keys([0], "dropout")
        for length in shapes.lengths:
            batch = shapes.collate([shortest], length)
            of_seeds = {name: array[None] for name, array in batch.items()}
            state, _ = self._programs.train(state, of_seeds, keys, 0)
            jax.block_until_ready(self._programs.predict(state.params, batch))
        self.compiling = time.perf_counter() - start

    def __call__(self, seed: int) -> Seed:
        """Trains with a seed."""
        self._programs.restart()
        (result,) = fit.Group(self._job, self._programs, [seed]).run()
        losses = result.losses[: len(result.losses) // SMOOTHED * SMOOTHED]
        means = losses.reshape(-1, SMOOTHED).mean(axis=1)
        test = self._work.score("test", result.predictions)
        return Seed(test[METRIC], means, np.array(self._programs.epochs))


class Watch(transformers.TrainerCallback):
    """Keeps the losses that the Trainer logs, and times its epochs."""

    def __init__(self):
        self.losses: list[float] = []
        self.seconds: list[np.ndarray] = []

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Begins to count."""
        self._since = now()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        """Scoring and saving come after it."""
        self.seconds.append(now() - self._since)

    def on_log(self, *_: Any, logs: Mapping[str, float], **__: Any) -> None:
        """Keeps the mean loss of the last steps."""
        self.losses += [logs["loss"]] if "loss" in logs else []


class OurBatches:
    """A data loader of transformers' Trainer that gives the batches which ours gives a seed."""

    def __init__(self, order: TrainingOrder, seed: int):
        self._order, self._seed, self._epoch = order, seed, 0

    def __len__(self) -> int:
        return self._order.steps_per_epoch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        first = self._epoch * len(self)
        self._epoch += 1
        for step in range(first, first + len(self)):
            of_seeds = self._order.batch([self._seed], step)
            batch = {name: array[0] for name, array in of_seeds.items()}
            rows = batch["weight"] > 0
            arrays = {
                "input_ids": batch["input_ids"],
                "attention_mask": batch["segment_ids"],
                "labels": np.where(batch["labels"] >= 0, batch["labels"], -100),
            }
            yield {name: torch.tensor(of[rows], dtype=torch.long) for name, of in arrays.items()}


class Trainer(transformers.Trainer):
    """The Trainer, which draws its own batches unless it is given some."""

    def __init__(self, batches: OurBatches | None, **arguments: Any):
        super().__init__(**arguments)
        self._given = batches

    def get_train_dataloader(self) -> Any:
        """Called once, before the first epoch."""
        return self._given or super().get_train_dataloader()


class Theirs:
    """transformers' Trainer.

    Args:
      work: what it is given.
      batches: how they are drawn: by the Trainer (`train_sampling_strategy`), or "ours".
      order: of our batches.
    """

    def __init__(self, work: Work, batches: str, order: TrainingOrder):
        self._work, self._batches, self._order = work, batches, order
        tokenizer = transformers.AutoTokenizer.from_pretrained(work.model)
        self._collator = transformers.DataCollatorForTokenClassification(tokenizer)
        self._examples: dict[Split, Any] = {
            name: [
                {
                    "input_ids": row.input_ids.tolist(),
                    "labels": [t if t >= 0 else -100 for t in tags],
                }
                for row in split.rows
                for tags in [row.targets["labels"].tolist()]
            ]
            for name, split in work.encoded.items()
        }

    def __call__(self, seed: int) -> Seed:
        """Trains with a seed."""
        watch = Watch()
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                OurBatches(self._order, seed) if self._batches == "ours" else None,
                model=self._model(seed),
                args=self._arguments(seed, folder),
                train_dataset=self._examples["train"],
                eval_dataset=self._examples["dev"],
                data_collator=self._collator,
                compute_metrics=lambda found: self._score("dev", found.predictions),
                callbacks=[watch],
            )
            trainer.train()
            trainer.compute_metrics = None
            found = trainer.predict(self._examples["test"]).predictions
        return Seed(
            self._score("test", found)[METRIC], np.array(watch.losses), np.array(watch.seconds)
        )

    def _model(self, seed: int) -> Any:
        """The model, with the head that our seed draws."""
        network, tags = self._work.network, self._work.tags
        drawn = network.initial(network.pretrained, jax.random.key(hash_seed(seed, "head")))
        cls = transformers.ModernBertForTokenClassification
        model = cls.from_pretrained(self._work.model, num_labels=tags, dtype=torch.float32)
        with torch.no_grad():
            model.classifier.weight.copy_(torch.tensor(np.asarray(drawn["classifier.kernel"]).T))
            model.classifier.bias.copy_(torch.tensor(np.asarray(drawn["classifier.bias"])))
        return model

    def _arguments(self, seed: int, folder: str) -> transformers.TrainingArguments:
        settings = self._work.settings
        return transformers.TrainingArguments(
            folder,
            seed=seed,
            learning_rate=settings.learning_rate,
            per_device_train_batch_size=settings.batch,
            per_device_eval_batch_size=settings.batch,
            num_train_epochs=cast(int, settings.epochs),
            warmup_steps=settings.warmup,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.clip_norm or 0.0,
            train_sampling_strategy="random" if self._batches == "ours" else self._batches,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=METRIC,
            logging_steps=SMOOTHED,
            use_cpu=True,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            report_to="none",
        )

    def _score(self, split: Split, logits: Any) -> dict[str, float]:
        probabilities = torch.from_numpy(logits).softmax(-1).numpy()
        return self._work.score(split, [{"probabilities": row} for row in probabilities])


def prepare(options: argparse.Namespace) -> Work:
    """Reads task and model."""
    changes = {"learning_rate": options.learning_rate, "epochs": options.epochs, "warmup": 0.1}
    task = tasks.find(options.task)
    task = dataclasses.replace(task, settings=task.settings.changed(changes))
    loaded, vocabulary = load(task, options.data), open_vocabulary(options.model)
    encoded = {
        split: encode(examples, vocabulary, task.kind, loaded.labels, task.settings)
        for split, examples in loaded.splits.items()
    }
    spec = hub.load_spec(options.model)
    network = run.network_of(str(options.model), loaded, spec, encoded["train"])
    tags = len(tag_names(loaded.labels))
    return Work(task.name, options.model, task.settings, network, cast(Any, encoded), tags)


def draw(found: Mapping[str, Sequence[Seed]], path: Path) -> None:
    """The training losses of all seeds and sides, one over the other."""
    figure = Figure(figsize=(7, 4))
    axes = figure.add_subplot()
    for number, (side, seeds) in enumerate(found.items()):
        for i, seed in enumerate(seeds):
            steps = SMOOTHED * np.arange(1, len(seed.losses) + 1)
            label = side if i == 0 else None
            axes.plot(steps, seed.losses, color=f"C{number}", alpha=0.6, linewidth=0.7, label=label)
    axes.set(xlabel="step", ylabel=f"training loss, means of {SMOOTHED} steps", yscale="log")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def table(found: Mapping[str, Sequence[Seed]], tokens: int) -> list[str]:
    """F1 of each seed, differences with their intervals, and tokens per second, in Markdown."""
    ours = np.array([seed.f1 for seed in found[OURS]])
    lines = [f"| | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for number in range(len(ours)):
        cells = [f"{100 * seeds[number].f1:.2f}" for seeds in found.values()]
        lines.append(f"| F1, seed {number} | {' | '.join(cells)} |")
    means, differences = [], []
    for side, seeds in found.items():
        f1 = np.array([seed.f1 for seed in seeds])
        means.append(f"{100 * f1.mean():.2f} ± {100 * f1.std(ddof=1):.2f}")
        low, high = t_interval(ours - f1)
        told = f"{100 * (ours - f1).mean():+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        differences.append("" if side == OURS else told)
    lines.append(f"| F1, mean ± standard deviation | {' | '.join(means)} |")
    lines.append(f"| {OURS} minus it (95 % interval) | {' | '.join(differences)} |")
    for place, unit in enumerate(("second", "CPU second")):
        speed = {
            side: tokens / np.median(np.concatenate([seed.seconds[:, place] for seed in seeds]))
            for side, seeds in found.items()
        }
        cells = [f"{of:,.0f} ({of / speed[TRAINER]:.2f}x)" for of in speed.values()]
        lines.append(f"| tokens per {unit} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Trains, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainer", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face directory")
    parser.add_argument("--data", type=Path, required=True, help="the directory of tasks")
    parser.add_argument("--out", type=Path, required=True, help="where the picture goes")
    parser.add_argument("--task", default="ncbi_disease")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument(
        "--batches", choices=("random", "group_by_length", "ours"), default="random", help="its own"
    )
    options = parser.parse_args()
    memory.keep_freed()
    torch.set_num_threads(os.cpu_count() or 1)
    work = prepare(options)
    ours = Ours(work)
    sides = {TRAINER: Theirs(work, options.batches, ours.order), OURS: ours}
    found: dict[str, list[Seed]] = {name: [] for name in sides}
    for seed in range(options.seeds):
        for name in list(sides)[:: 1 - 2 * (seed % 2)]:
            one = sides[name](seed)
            found[name].append(one)
            print(
                f"{name}, {seed}: F1 {one.f1:.4f}, {one.seconds.sum(0).round(1)} s", file=sys.stderr
            )
    tokens = sum(len(row.input_ids) for row in work.encoded["train"].rows)
    names = ("jax", "torch", "transformers", "accelerate")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(
        f"{work.task}, {options.epochs} epochs of {tokens:,} tokens, {versions}; compiling took "
        f"{OURS} {ours.compiling:.1f} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"the Trainer's batches: {options.batches}\n"
    )
    print("\n".join(table(found, tokens)))
    draw(found, options.out / f"{work.task}-losses.png")


if __name__ == "__main__":
    main()
