"""Trains one run: ``python -m cpt_jax.main --config=configs/fr_large.py --workdir=runs/fr_large``.

The same command resumes a run that was stopped. ``--config.FIELD=VALUE`` overrides a field of the
config; what follows a colon in ``--config=FILE:ARGUMENTS`` goes to the config file.
"""

import os
import sys
from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

from cpt_jax import config as config_lib

# Compiled programs; JAX_COMPILATION_CACHE_DIR names another place.
CACHE = Path.home() / ".cache" / "cpt_jax" / "compiled"
_CONFIG = config_flags.DEFINE_config_file("config", help_string="The run: a file of configs/.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Directory of the run; resumed if it holds it.", required=True
)


def main(arguments: list[str]) -> None:
    """Parses the config and trains; bad input ends with one message and exit code 2."""
    logging.set_verbosity(logging.WARNING)  # Orbax tells of every file at INFO
    if len(arguments) > 1:
        sys.exit(_complain(f"unexpected arguments: {' '.join(arguments[1:])}"))
    try:
        config = config_lib.parse(_CONFIG.value)
    except ValueError as error:
        sys.exit(_complain(error))
    import jax  # only now, so that --help and a faulty config need not wait for it

    from cpt_jax.training import loop

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a restart does not compile again
        jax.config.update("jax_compilation_cache_dir", str(CACHE))
    try:
        run = loop.prepare(config, Path(_WORKDIR.value))
    except (ValueError, OSError) as error:
        sys.exit(_complain(error))
    print(f"exported to {run.train()}")


def _complain(error: Exception | str) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    app.run(main)
