"""Checks a run before it is paid for: ``python -m cpt_jax.preflight --config=... [--workdir=...]``.

Every line says ok, warn or stop, and why. Exit status: 0 where nothing says stop, 1 where something
does, 2 for what the training command refuses as well. Nothing is written.
"""

import contextlib
import itertools

from cpt_jax import command
from cpt_jax.config import Config


def main(config: Config) -> int:
    """Prints the lines; returns the exit status."""
    from cpt_jax import remote, sharding
    from cpt_jax.preflight.model import check_model
    from cpt_jax.preflight.plan import check_plan
    from cpt_jax.training import loop
    from cpt_jax.training.start import check_history

    named, workdir, stops = command.WORKDIR.value, None, 0
    with command.refusing(ValueError, OSError), contextlib.ExitStack() as closing:
        if named:
            workdir = closing.enter_context(remote.directory(named))
        start, plans = loop.plan_phases(config, workdir, sharding.make_mesh(axes=config.mesh))
        if workdir is not None and start.begun:
            check_history(config, workdir)
        for line in itertools.chain(
            check_plan(config, start, plans, workdir), check_model(config, start)
        ):
            print(line, flush=True)
            stops += line.level == "stop"
    return 1 if stops else 0


if __name__ == "__main__":
    command.run(main)
