"""Checks a run before it is paid for: ``python -m cpt_jax.preflight --config=... [--workdir=...]``.

Every line says ok, warn or stop, and why. Exit status: 0 where nothing says stop, 1 where something
does, 2 for what the training command refuses as well. Nothing is written.
"""

from pathlib import Path

from cpt_jax import command
from cpt_jax.config import Config
from cpt_jax.preflight.lines import worst


def main(config: Config) -> int:
    """Prints the lines; returns the exit status."""
    from cpt_jax import sharding
    from cpt_jax.preflight.model import check_model
    from cpt_jax.preflight.plan import check_plan
    from cpt_jax.training import loop
    from cpt_jax.training.plan import plan_run
    from cpt_jax.training.start import prepare_start

    workdir = Path(command.WORKDIR.value) if command.WORKDIR.value else None
    lines = []
    with command.refusing(ValueError, OSError):
        start = prepare_start(config, workdir)
        plans = plan_run(config, start.train, start.origin)
        loop.check_phases(config, start, plans, sharding.make_mesh())
        for line in check_plan(config, start, plans, workdir):
            lines.append(line)
            print(line, flush=True)
        for line in check_model(config, start):
            lines.append(line)
            print(line, flush=True)
    return 1 if worst(lines) == "stop" else 0


if __name__ == "__main__":
    command.run(main)
