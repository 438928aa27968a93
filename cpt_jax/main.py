"""Trains one run: ``python -m cpt_jax.main --config=configs/fr_large.py --workdir=runs/fr_large``.

The same command resumes a run that was stopped. ``--config.FIELD=VALUE`` overrides a field of the
config; what follows a colon in ``--config=FILE:ARGUMENTS`` goes to the config file.
"""

import os
from pathlib import Path

from absl import flags

from cpt_jax import command
from cpt_jax.config import Config

# Compiled programs; JAX_COMPILATION_CACHE_DIR names another place.
CACHE = Path.home() / ".cache" / "cpt_jax" / "compiled"
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Directory of the run; resumed if it holds it.", required=True
)


def main(config: Config) -> None:
    """Trains; bad input ends with one message and exit status 2."""
    import jax  # only now, so that --help and a faulty config need not wait for it

    from cpt_jax.training import loop

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a restart does not compile again
        jax.config.update("jax_compilation_cache_dir", str(CACHE))
    with command.refusing(ValueError, OSError):
        run = loop.prepare(config, Path(_WORKDIR.value))
    print(f"exported to {run.train()}")


if __name__ == "__main__":
    command.run(main)
