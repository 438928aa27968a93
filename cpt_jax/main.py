"""Trains one run: ``python -m cpt_jax.main --config=configs/fr_large.py --workdir=runs/fr_large``.

The same command resumes a run that was stopped. ``--config.FIELD=VALUE`` overrides a field of the
config; what follows a colon in ``--config=FILE:ARGUMENTS`` goes to the config file.
"""

import os
import sys
from pathlib import Path

from absl import flags

from cpt_jax import command
from cpt_jax.config import Config

# Compiled programs; JAX_COMPILATION_CACHE_DIR names another place.
CACHE = Path.home() / ".cache" / "cpt_jax" / "compiled"
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Directory of the run; resumed if it holds it.", required=True
)
_PREFLIGHT = flags.DEFINE_bool("preflight", True, "Refuse to train where a check says stop.")


def main(config: Config) -> None:
    """Trains; bad input ends with one message and exit status 2."""
    import jax  # only now, so that --help and a faulty config need not wait for it

    from cpt_jax.training import loop

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a restart does not compile again
        jax.config.update("jax_compilation_cache_dir", str(CACHE))
    with command.refusing(ValueError, OSError):
        _check(config, Path(_WORKDIR.value))
        run = loop.prepare(config, Path(_WORKDIR.value))
    print(f"exported to {run.train()}")


def _check(config: Config, workdir: Path) -> None:
    """Prints what the cheap half of a preflight warns of; refuses to go on where it says stop."""
    from cpt_jax.preflight.plan import check_plan
    from cpt_jax.training.plan import plan_run
    from cpt_jax.training.start import prepare_start

    start = prepare_start(config, workdir)
    lines = check_plan(config, start, plan_run(config, start.train, start.origin), workdir)
    stops = [line for line in lines if line.level == "stop" and _PREFLIGHT.value]
    for line in lines:
        if line.level != "ok" and line not in stops:
            print(line, file=sys.stderr, flush=True)
    if stops:
        said = "\n  ".join(f"{line.check}: {line.text}" for line in stops)
        command.refuse(f"the preflight says stop:\n  {said}\n--nopreflight trains all the same")


if __name__ == "__main__":
    command.run(main)
