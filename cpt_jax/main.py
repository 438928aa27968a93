"""Trains one run: ``python -m cpt_jax.main --config=configs/fr_large.py --workdir=runs/fr_large``.

The same command resumes a run that was stopped. ``--config.FIELD=VALUE`` overrides a field of the
config; what follows a colon in ``--config=FILE:ARGUMENTS`` goes to the config file. Started as
several processes (docs/hosts.md), all of them train the one run.

Exit codes, for whatever restarts runs: 0 finished and exported; 143 or 130 stopped by SIGTERM or
Ctrl-C, the same command goes on; 1 a fault outside (a full disk, data that cannot be read, another
process in the directory, a process of this run that died), the same command goes on once it is
mended; 2 refused before any compute; 3 too many updates were not finite, which a restart would only
repeat. The processes of a run end with the same code.
"""

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from cpt_jax import command, hosts, lock, peers
from cpt_jax.config import Config

if TYPE_CHECKING:
    from cpt_jax.training.plan import PhasePlan
    from cpt_jax.training.start import Start

# Compiled programs; JAX_COMPILATION_CACHE_DIR names another place.
CACHE = Path.home() / ".cache" / "cpt_jax" / "compiled"
_PREFLIGHT = flags.DEFINE_bool("preflight", True, "Refuse to train where a check says stop.")
FAULT, NOT_FINITE, SIGNAL = peers.FAULT, 3, 128  # SIGNAL + its number, as shells report it


def main(config: Config) -> int:
    """Trains; what goes wrong ends with one message. Returns the exit code."""
    from cpt_jax import remote

    assert command.WORKDIR.value is not None  # required
    with contextlib.ExitStack() as closing:
        try:
            with command.refusing(ValueError):
                workdir = closing.enter_context(remote.directory(command.WORKDIR.value))
        except OSError as error:  # an object store that does not answer
            peers.end(FAULT, f"error: {error}")
        return _train(config, workdir, shown=remote.shown(workdir))


def _train(config: Config, workdir: Path, shown: str) -> int:
    import jax  # only now, so that --help and a faulty config need not wait for it

    from cpt_jax import memory
    from cpt_jax.training import export, loop, signals

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a restart does not compile again
        jax.config.update("jax_compilation_cache_dir", str(CACHE))
    with command.refusing(RuntimeError):  # JAX_PLATFORMS names what there is not
        platform = jax.default_backend()
    if platform == "cpu":
        memory.keep_freed()
    try:
        with command.refusing(ValueError, FileNotFoundError):
            run = loop.prepare(config, workdir, check=functools.partial(_check, config, workdir))
    except OSError as error:  # a directory in use, a disk, a network: may be mended outside
        peers.end(FAULT, f"error: {error}")
    code, finished = 0, export.is_written(workdir)
    with signals.stop_wish() as wish:
        try:
            model = run.train(wish)
            said = f"{'finished before: ' if finished else ''}exported to {shown}/{model.name}"
        except loop.Stopped as stopped:
            assert wish.signal is not None  # or it would not have stopped
            code, said = SIGNAL + wish.signal, str(stopped)
        except (loop.NonFiniteError, OSError) as error:
            not_finite = isinstance(error, loop.NonFiniteError)
            peers.end(NOT_FINITE if not_finite else FAULT, f"error: {error}")
    if jax.process_index() == 0:
        lock.say(said, sys.stderr if code else sys.stdout)
    peers.finish()
    return code


def _check(config: Config, workdir: Path, start: "Start", plans: "list[PhasePlan]") -> None:
    """Prints what the cheap half of a preflight warns of; refuses to go on where it says stop."""
    import jax

    from cpt_jax.preflight.plan import check_plan

    lines = check_plan(config, start, plans, workdir)
    stops = [line for line in lines if line.level == "stop" and _PREFLIGHT.value]
    for line in lines:
        if line.level != "ok" and line not in stops and jax.process_index() == 0:
            print(line, file=sys.stderr, flush=True)
    if stops:
        said = "\n  ".join(f"{line.check}: {line.text}" for line in stops)
        command.refuse(f"the preflight says stop:\n  {said}\n--nopreflight trains all the same")


if __name__ == "__main__":
    with peers.together():
        try:
            with command.refusing(ValueError):
                hosts.start()
        except OSError as fault:
            peers.end(FAULT, f"error: {fault}")
        command.run(main, "workdir")
