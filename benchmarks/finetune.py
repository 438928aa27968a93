"""Seconds of a training step of several seeds at once, next to as many steps of one seed.

    python -m benchmarks.finetune --model out/ --data tasks/       # NCBI-disease, 5 seeds

Batches and settings are the task's; compiling is not counted. The same steps are taken by one
program of all seeds, by one of a single seed, in turn, and by one of all seeds in which `jax.vmap`
maps attention's loops, as `cpt_jax.model.kernels.batching` avoids. A table goes to standard output.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax

from cpt_jax import memory
from cpt_jax.finetune import run, tasks
from cpt_jax.finetune.batches import Shapes, TrainingOrder
from cpt_jax.finetune.encode import encode, open_vocabulary
from cpt_jax.finetune.network import Network
from cpt_jax.finetune.program import Programs
from cpt_jax.finetune.tasks.loading import load
from cpt_jax.model import hub
from cpt_jax.model.kernels import batching, xla


class Side:
    """Steps of some seeds at once, one after another."""

    def __init__(
        self, network: Network, settings: Any, order: TrainingOrder, seeds: list[int], steps: int
    ):
        self._programs = Programs(network, settings, steps, len(seeds), jax.devices()[:1])
        self._order, self._seeds = order, seeds
        self._state = self._programs.start(seeds, [True] * len(seeds))
        self._keys = self._programs.keys(seeds, "dropout")

    def step(self, number: int) -> float:
        """The seconds of one."""
        batch = self._order.batch(self._seeds, number)
        start = time.perf_counter()
        self._state, loss = self._programs.train(self._state, batch, self._keys, number)
        jax.block_until_ready((self._state, loss))
        return time.perf_counter() - start


def sides(options: argparse.Namespace) -> dict[str, Side]:
    """All ways of taking the steps."""
    task = tasks.find(options.task)
    task = dataclasses.replace(task, settings=task.settings.changed({"batch": options.batch}))
    loaded, vocabulary = load(task, options.data), open_vocabulary(options.model)
    encoded = encode(loaded.splits["train"], vocabulary, task.kind, loaded.labels, task.settings)
    spec = hub.load_spec(options.model)
    network = run.network_of(str(options.model), loaded, spec, encoded)
    shapes = Shapes(encoded.rows, task.settings.batch, pad_id=vocabulary.pad)
    order = TrainingOrder(task.name, encoded.rows, shapes)
    seeds, steps = list(range(options.seeds)), options.steps
    made = {
        "one by one": Side(network, task.settings, order, [0], steps),
        "at once": Side(network, task.settings, order, seeds, steps),
    }
    for number in range(steps):
        for side in made.values():  # compiles each length
            side.step(number)
    plain = Side(network, task.settings, order, seeds, steps)
    xla.over_rows, kept = (lambda function: function), batching.over_rows
    xla._each_row.cache_clear()
    jax.clear_caches()
    for number in range(steps):
        plain.step(number)
    xla.over_rows = kept
    xla._each_row.cache_clear()
    return {**made, "at once, loops mapped": plain}


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetune", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face directory")
    parser.add_argument("--data", type=Path, required=True, help="the directory of tasks")
    parser.add_argument("--task", default="ncbi_disease")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--batch", type=int, default=16, help="rows")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    options = parser.parse_args()
    memory.keep_freed()
    made = sides(options)
    rounds: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(options.repeats):
        for name, side in made.items():
            taken = sum(side.step(number) for number in range(options.steps))
            rounds[name].append(taken * (options.seeds if name == "one by one" else 1))
            print(f"{name} {turn}: {rounds[name][-1]:.2f} s", file=sys.stderr)
    medians = {name: statistics.median(taken) for name, taken in rounds.items()}
    print(
        f"{options.task}, {options.seeds} seeds, {options.steps} steps of {options.batch} rows, "
        f"{jax.device_count()} {jax.devices()[0].device_kind}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} at the end\n"
    )
    print("| seeds | median seconds | ratio |\n|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {medians['one by one'] / median:.2f}x |")


if __name__ == "__main__":
    main()
