"""Fine-tuning on tasks.

    python -m cpt_jax.finetune --task ncbi_disease --model out/ --seeds 5 --out scores/out
    python -m cpt_jax.finetune list --data tasks/
    python -m cpt_jax.finetune compare scores/twin scores/detour --out verdict/
    python -m cpt_jax.finetune power scores/twin scores/detour --difference 1.0
    python -m cpt_jax.finetune score scores/out/ncbi_disease/seed-0.predictions.jsonl

The first trains with every seed that has no result in --out yet. Exit codes: 0 done; 1 a seed
failed, or something outside (a full disk); 2 refused, nothing trained; 130 Ctrl-C.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cpt_jax.finetune import metrics, tasks
from cpt_jax.finetune.tasks import loading
from cpt_jax.lock import tell
from cpt_jax.parsing import parse_change

DATA = "CPT_JAX_TASKS"  # the environment's name of the directory of tasks
MOST_SEEDS = 1_000  # of one call: far above what a table of results needs


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; returns the exit code."""
    named: dict[str, Callable[[Sequence[str]], int]] = {
        "list": _list,
        "compare": _compare,
        "power": _power,
        "score": _score,
    }
    command = named.get(arguments[0], _train) if arguments else _train
    try:
        return command(arguments if command is _train else arguments[1:])
    except (ValueError, FileNotFoundError, NotADirectoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the seeds that were finished keep their results", file=sys.stderr)
        return 130


def _parser(name: str = "") -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"python -m cpt_jax.finetune {name}".rstrip(),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get(DATA, "tasks")),
        help=f"directory that holds the tasks' folders (docs/tasks.md); default ${DATA}, or tasks/",
    )


def _train(arguments: Sequence[str]) -> int:
    parser = _parser()
    parser.add_argument("--task", required=True, help="a name of `list`, or a file NAME.yaml")
    parser.add_argument("--model", required=True, help="directory, repository, or finished run")
    parser.add_argument("--seeds", type=_seeds, default="1", help="how many, or a list: 0,3,4")
    parser.add_argument("--out", type=Path, required=True, help="the model's results")
    parser.add_argument("--train-examples", type=int, help="a sample of the training split")
    parser.add_argument(
        *("--set", "-s"),
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="another value of one of the task's settings (docs/finetune.md)",
    )
    _data(parser)
    options = parser.parse_args(arguments)
    # JAX is not loaded before the arguments are read.
    from cpt_jax.finetune import run

    task = tasks.find(options.task)
    settings = task.settings.changed(dict(map(parse_change, options.set)))
    task = dataclasses.replace(task, settings=settings)
    model = os.path.normpath(options.model) if Path(options.model).exists() else options.model
    ask = run.Ask(task, model, options.data, options.seeds, options.out, options.train_examples)
    for line in run.run(ask):
        tell(line)  # the other seeds are trained, though nobody reads of them
    return 0 if run.is_complete(ask) else 1


def _seeds(text: str) -> tuple[int, ...]:
    several = "," in text
    numbers = text.removesuffix(",").split(",")
    given = tuple(int(number) for number in numbers if number.isdecimal())
    if len(given) < len(numbers) or len(set(given)) < len(given) or text == "0":
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of seeds nor a list of different ones (0,3,7)"
        )
    if not several and given[0] > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text}: more seeds than {MOST_SEEDS:,}")
    return given if several else tuple(range(given[0]))


def _list(arguments: Sequence[str]) -> int:
    parser = _parser("list")
    _data(parser)
    options = parser.parse_args(arguments)
    for task in tasks.TASKS.values():
        entry = loading.entry(task, options.data)
        sizes = entry.sizes or {}
        there = ", ".join(f"{count} {split}" for split, count in sizes.items())
        state = there or (f"FAULTY: {entry.fault}" if entry.on_disk else "not on disk")
        print(f"{task.name:18} {task.title}, {task.kind}, {task.metric}: {state}")
        print(f"{'':18} {task.source} ({task.licence})")
    return 0


def _compare(arguments: Sequence[str]) -> int:
    from cpt_jax.finetune import compare

    parser = _parser("compare")
    parser.add_argument("results", nargs="+", type=Path, help="directories, one a model")
    parser.add_argument("--out", type=Path, help="where compare.md and compare.html go")
    options = parser.parse_args(arguments)
    print(compare.run(options.results, options.out, tasks.TASKS))
    return 0


def _power(arguments: Sequence[str]) -> int:
    from cpt_jax.finetune import power

    parser = _parser("power")
    parser.add_argument("results", nargs=2, type=Path, help="directories of two models")
    parser.add_argument("--difference", type=float, required=True, help="in percentage points")
    parser.add_argument("--power", type=float, default=0.8, help="chance to see it")
    options = parser.parse_args(arguments)
    print(power.run(options.results, options.difference, options.power))
    return 0


def _score(arguments: Sequence[str]) -> int:
    parser = _parser("score")
    parser.add_argument("predictions", type=Path, help="a file *.predictions.jsonl")
    for name, value in metrics.score_file(parser.parse_args(arguments).predictions).items():
        print(f"{name}: {100 * value:.2f} %   ({metrics.METRICS[name].rule})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
