"""What the launchers share: their command line, and showing or starting what they would submit.

A launcher's own options come with those of ``cpt_jax.main``, in any order: ``--config``, its
fields and ``--workdir`` go on to the run, after the config was read and checked here, so that a
typo costs no hours in a queue.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from cpt_jax import command, remote
from cpt_jax import main as program

ENTRY = program.__name__  # importing it defines its flags, which belong to the command line


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options that every launcher has."""
    made = argparse.ArgumentParser(
        prog=f"python -m launch.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --node is a typo, not --nodes
        usage=f"python -m launch.{name} --config=FILE --workdir=DIR [--config.FIELD=VALUE] "
        "[OPTION ...]",
    )
    made.add_argument("--dry-run", action="store_true", help="print what would be submitted")
    made.add_argument(
        "--name", default="cpt-jax", type=_name, help="of the job: a-z, 0-9 and - (default cpt-jax)"
    )
    made.add_argument(
        "--compilation-cache",
        metavar="DIR",
        help="compiled programs, where all processes and later starts find them",
    )
    return made


def positive(text: str) -> int:
    """An argparse type: a whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return number


def _name(text: str) -> str:
    # What Kubernetes and Google Cloud take; a pod's own name adds up to 20 characters to it.
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected up to 40 of a-z, 0-9 and -, from a letter to no dash"
        )
    return text


def run(
    made: argparse.ArgumentParser, submit: Callable[[argparse.Namespace, list[str]], int | None]
) -> NoReturn:
    """Reads the command line and hands ``submit`` the options and the words for ``cpt_jax.main``.

    Whatever is wrong with config or options ends in one message and exit status 2.
    """
    options, words = made.parse_known_args()
    sys.argv[1:] = words

    def body(_) -> int | None:
        with command.refusing(ValueError):
            remote.parse(workdir())
            return submit(options, words)

    command.run(body, "workdir")


def train(python: str, options: argparse.Namespace, words: Sequence[str]) -> list[str]:
    """Returns the command that trains, word by word."""
    variables = []
    if options.compilation_cache:
        variables = ["env", f"JAX_COMPILATION_CACHE_DIR={options.compilation_cache}"]
    return [*variables, python, "-m", ENTRY, *words]


def workdir() -> str:
    """Returns the run's directory, as it was typed."""
    assert command.WORKDIR.value is not None  # required by `run`
    return command.WORKDIR.value


def check_far_workdir(mounts: Sequence[str]) -> None:
    """Makes sure that the run's directory outlives machines that come and go.

    Args:
      mounts: directories of theirs that outlive them.

    Raises:
      ValueError: it would be lost with the machine.
    """
    named = workdir()
    kept = any(named == mount or named.startswith(mount.rstrip("/") + "/") for mount in mounts)
    if not (kept or remote.parse(named)):
        where = f"below {' or '.join(mounts)}, or " if mounts else ""
        raise ValueError(
            f"--workdir={named}: it would be lost with the machine: name a directory {where}"
            "in an object store (gs://BUCKET/RUN)"
        )


def execute(words: Sequence[str], *, dry_run: bool, **options) -> int:
    """Runs a command, or prints it as a shell would take it; returns its exit status."""
    if dry_run:
        print(shlex.join(words))
        return 0
    try:
        return subprocess.run(list(words), **options).returncode
    except FileNotFoundError:
        command.refuse(f"{words[0]} is not installed here; --dry-run prints what it would be given")
