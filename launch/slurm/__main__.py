"""Submits a run to SLURM: one process per accelerator on each of some nodes.

  python -m launch.slurm --config=configs/fr_large.py --workdir=/scratch/runs/fr_large \\
    --nodes 4 --gpus-per-node 8 --time 24:00:00 --sbatch=--partition=gpu --sbatch=--account=lab

Workdir, data, environment and checkout must lie where every node sees them. The job is queued
again when it was preempted or came to the end of its time, and the run goes on from what it saved.
"""

import argparse
import re
import sys
from pathlib import Path

from launch import submission

SCRIPT = Path(__file__).with_name("run.sbatch")


def sbatch(options: argparse.Namespace, words: list[str]) -> list[str]:
    """Returns the command that submits a run, word by word."""
    return [
        "sbatch",
        f"--job-name={options.name}",
        f"--nodes={options.nodes}",
        f"--ntasks-per-node={options.gpus_per_node}",
        f"--gpus-per-node={options.gpus_per_node}",
        f"--cpus-per-task={options.cpus_per_task}",
        *([f"--time={options.time}"] if options.time else []),
        f"--signal=TERM@{options.grace}",
        *options.sbatch,
        str(SCRIPT),
        *submission.train(options.python, options, words),
    ]


def _time(text: str) -> str:
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected MINUTES, H:M:S or DAYS-H:M:S")
    return text


def main() -> None:
    """Submits, or prints the command that would."""
    made = submission.parser("slurm", __doc__)
    made.add_argument("--nodes", type=submission.positive, default=1, help="(default 1)")
    made.add_argument(
        "--gpus-per-node", type=submission.positive, default=8, metavar="N", help="(default 8)"
    )
    made.add_argument(
        "--cpus-per-task",
        type=submission.positive,
        default=8,
        metavar="N",
        help="cores for the process of each accelerator (default 8)",
    )
    made.add_argument("--time", type=_time, help="as sbatch takes it: 24:00:00, 2-0")
    made.add_argument(
        "--grace",
        type=submission.positive,
        default=300,
        metavar="SECONDS",
        help="SIGTERM comes so long before the time is up: enough for a step, an evaluation and "
        "a save (default 300)",
    )
    made.add_argument(
        "--python", default=sys.executable, help="on the nodes (default: the one that runs this)"
    )
    made.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="=OPTION",
        help="for sbatch as it is, such as --sbatch=--partition=gpu; may be repeated",
    )
    submission.run(
        made,
        lambda options, words: submission.execute(sbatch(options, words), dry_run=options.dry_run),
    )


if __name__ == "__main__":
    main()
