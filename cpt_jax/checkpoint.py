"""Run directories and their checkpoints.

A run directory holds ``config.json`` (what the run is, written before anything else),
``metrics.jsonl``, ``checkpoints/STEP/{params,opt_state,meta}`` and ``export/``. Parameters and
optimizer state are separate Orbax items because Orbax will not restore a part of one item, and a
fork may want the parameters alone. A checkpoint appears by an atomic rename: what has a step's
name is complete.
"""

import datetime
import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from cpt_jax import config as config_lib

PACKAGES = ("cpt_jax", "jax", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


def open_run(workdir: Path, config: config_lib.Config, data: Mapping[str, str]) -> None:
    """Creates the run directory, or makes sure that the one there is this very run.

    Args:
      workdir: the run directory.
      config: the run.
      data: fingerprint of each prepared corpus, by source name.

    Raises:
      ValueError: if the directory holds another run, with every difference; or holds files that
        are no run.
    """
    description = {"config": config_lib.to_dict(config), "data": dict(data)}
    path = workdir / "config.json"
    if path.exists():
        old = json.loads(path.read_text())
        for group in config_lib.RESUMABLE:
            old["config"][group] = description["config"][group]
        found = config_lib.differences({k: old[k] for k in description}, description)
        if found:
            raise ValueError(
                f"{workdir} holds another run; it can only be resumed with the config and data it "
                "was started with. Use another --workdir, or fork it with config.init. "
                "Differences (there -> here):\n  " + "\n  ".join(found)
            )
        return
    if workdir.exists() and any(workdir.iterdir()):
        raise ValueError(f"{workdir} is not empty and holds no config.json of a run")
    workdir.mkdir(parents=True, exist_ok=True)
    description["versions"] = {p: importlib.metadata.version(p) for p in PACKAGES}
    description["versions"]["python"] = sys.version.split()[0]
    description["started"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    temporary = workdir / "config.json.tmp"
    temporary.write_text(json.dumps(description, indent=1))
    os.replace(temporary, path)


def read_config(run: Path) -> config_lib.Config:
    """Returns the config of a run directory.

    Raises:
      ValueError: if ``run`` is no run directory.
    """
    path = run / "config.json"
    if not path.exists():
        raise ValueError(f"{run} is not a run directory: it has no config.json")
    return config_lib.parse(json.loads(path.read_text())["config"])


class Checkpoints:
    """The checkpoints of one run directory. Saves are asynchronous; a failed one raises later."""

    def __init__(self, run: Path, *, keep: int = 1, keep_steps: tuple[int, ...] = ()):
        """Opens, and removes what a killed save left behind.

        Args:
          run: the run directory.
          keep: number of latest checkpoints that stay.
          keep_steps: steps that always stay.
        """
        policies = [
            preservation_policy.LatestN(keep),
            preservation_policy.CustomSteps(list(keep_steps)),
        ]
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(policies),
            cleanup_tmp_directories=True,
        )
        self._manager = ocp.CheckpointManager((run / "checkpoints").absolute(), options=options)

    def latest_step(self) -> int | None:
        """Returns the step of the latest complete checkpoint, or None."""
        return self._manager.latest_step()

    def save(self, step: int, params: Any, opt_state: Any, meta: Mapping[str, Any]) -> None:
        """Starts to save; returns once the arrays may be overwritten."""
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(params),
            opt_state=ocp.args.StandardSave(opt_state),
            meta=ocp.args.JsonSave(dict(meta)),
        )
        self._manager.save(step, args=items, force=True)

    def restore(self, step: int, params: Any, opt_state: Any) -> tuple[Any, Any]:
        """Returns the state of ``step``, shaped and placed like the two trees given.

        The trees may hold arrays or ``jax.ShapeDtypeStruct`` with shardings.
        """
        items = ocp.args.Composite(
            params=ocp.args.StandardRestore(params),
            opt_state=ocp.args.StandardRestore(opt_state),
        )
        restored = self._manager.restore(step, args=items)
        return restored["params"], restored["opt_state"]

    def close(self) -> None:
        """Waits for saves in flight."""
        self._manager.close()


def find_checkpoint(reference: str) -> tuple[Path, int]:
    """Returns the run directory and step that ``RUN@STEP`` or ``RUN@PHASE`` names.

    Raises:
      ValueError: if there is no such run, phase or checkpoint; the ones that exist are listed.
    """
    run_name, _, at = reference.rpartition("@")
    run = Path(run_name)
    config = read_config(run)
    ends, step = {}, 0
    for phase in config.phases:
        step += config_lib.phase_steps(phase, config.data.seq_len)
        ends[phase.name] = step
    if not at.isdigit() and at not in ends:
        raise ValueError(f"{reference}: {run} has no phase {at!r}; its phases: {', '.join(ends)}")
    step = int(at) if at.isdigit() else ends[at]
    there = sorted(int(p.name) for p in (run / "checkpoints").glob("*") if p.name.isdigit())
    if step not in there:
        raise ValueError(f"{reference}: no checkpoint of step {step}; there are {there} in {run}")
    return run, step


def load_params(reference: str) -> dict[str, jax.Array]:
    """Returns the parameters of ``RUN@STEP`` or ``RUN@PHASE``, whole, on the first device."""
    run, step = find_checkpoint(reference)
    with ocp.CheckpointManager(
        (run / "checkpoints").absolute(),
        options=ocp.CheckpointManagerOptions(create=False),
        item_handlers={
            "params": ocp.StandardCheckpointHandler(),
            "opt_state": ocp.StandardCheckpointHandler(),
            "meta": ocp.JsonCheckpointHandler(),
        },
    ) as manager:
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        target = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device)
            for name, leaf in manager.item_metadata(step)["params"].items()
        }
        items = ocp.args.Composite(params=ocp.args.StandardRestore(target))
        return manager.restore(step, args=items)["params"]
