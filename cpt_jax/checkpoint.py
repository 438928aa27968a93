"""Run directories and their checkpoints.

A run directory holds ``config.json`` (what the run is, written before anything else),
``metrics.jsonl``, ``checkpoints/STEP/{params,opt_state,meta}`` and ``export/``. Parameters and
optimizer state are separate Orbax items because Orbax will not restore a part of one item, and a
fork may want the parameters alone. A checkpoint appears by an atomic rename: what has a step's
name is complete.
"""

import contextlib
import dataclasses
import datetime
import gc
import importlib.metadata
import io
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from cpt_jax import config as config_lib
from cpt_jax import lock, parsing, remote, trees

ITEMS = ("params", "opt_state", "meta")
SHARED = 90.0  # seconds until a run directory that one host has made is seen by the others
PACKAGES = ("cpt_jax", "jax", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a run starts: at nothing, or at a checkpoint whose data it continues.

    Attributes:
      rows: rows drawn before, over all sources; the ordinal of the first row.
      tokens: tokens seen before.
      cursors: rows drawn before from each source, by its name.
      updates: of Adam before, by its count: steps less those skipped as not finite.
    """

    rows: int = 0
    tokens: int = 0
    cursors: Mapping[str, int] = dataclasses.field(default_factory=dict)
    updates: int = 0


def open_run(workdir: Path, description: Mapping[str, Any]) -> None:
    """Creates the run directory, or makes sure that the one there is this very run.

    Args:
      workdir: the run directory.
      description: JSON types; ``config`` (``config.to_dict``) and whatever else a resumed run must
        have in common with the run that began: fingerprints of data, the model, the origin.

    Raises:
      ValueError: if the directory holds another run, or files that are no run, or lies in a run.
    """
    if (workdir / "config.json").exists():
        refuse_other_run(workdir, description)
        return
    for above in workdir.absolute().parents:
        if (above / "config.json").exists() and (above / "checkpoints").is_dir():
            raise ValueError(f"{workdir} lies in {above}, the directory of another run")
    temporary = workdir / "config.json.tmp"  # may be left there by a kill
    if workdir.exists() and set(workdir.iterdir()) - {temporary, workdir / lock.NAME}:
        raise ValueError(f"{workdir} is not empty and holds no config.json of a run")
    workdir.mkdir(parents=True, exist_ok=True)
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    versions["python"] = sys.version.split()[0]
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    identity = {"id": uuid.uuid4().hex, "versions": versions, "started": started}
    whole = {**description, **identity}
    temporary.write_text(json.dumps(whole, indent=1))
    os.replace(temporary, workdir / "config.json")


def refuse_other_run(workdir: Path, description: Mapping[str, Any]) -> None:
    """Raises ValueError, with every difference, unless ``workdir`` is the run described.

    Keys that both have are compared, but not what a resumed run may change
    (``config.RESUMABLE``).
    """
    old = read_run(workdir)
    old, new = ({k: d[k] for k in description if k in old} for d in (old, description))
    found = [
        line
        for line in parsing.differences(old, new)
        if not any(trees.matches(p, line.split(":")[0]) for p in config_lib.RESUMABLE)
    ]
    if found:
        raise ValueError(
            f"{workdir} holds another run; it can only be resumed with the config and data it "
            "was started with. Use another --workdir, or fork it with config.init. "
            "Differences (there -> here):\n  " + "\n  ".join(found)
        )


def read_run(run: Path) -> dict[str, Any]:
    """Returns what ``open_run`` wrote of a run: its description, versions and start.

    Raises:
      ValueError: if ``run`` is no run directory.
    """
    path = run / "config.json"
    if not path.exists():
        raise ValueError(f"{run} is not a run directory: it has no config.json")
    try:
        described = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(described, dict) or not {"config", "model"} <= described.keys():
        raise ValueError(f"{path} is not a run's: it has no config and model (another model's?)")
    return described


def run_id(run: Path) -> str | None:
    """Returns what tells a run from all others; None: it began before there was such a thing."""
    return read_run(run).get("id") if (run / "config.json").exists() else None


def identity(run: Path, wait: bool) -> dict[str, Any]:
    """Returns what all processes find in a run directory that one of them has opened, if any.

    A host that has a directory of its own would wait in the first save for the others' parts. NFS
    may show another host an old state for a minute: with ``wait`` it may take a while.
    """
    if remote.url_of(run):  # a spool, which is each process's own
        return {}
    deadline = time.monotonic() + SHARED
    while wait and not (run / "config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return {f"run in {run}": run_id(run)}


def latest_step(run: Path) -> int | None:
    """Returns the step of a run's latest complete checkpoint, or None."""
    return max(saved_steps(run), default=None)


def directory(run: Path) -> epath.Path:
    """Returns where the checkpoints of a run are: in its directory, or in the store it is for."""
    return epath.Path(remote.url_of(run) or run.absolute()) / "checkpoints"


def saved_steps(run: Path) -> list[int]:
    """Returns the steps of a run's complete checkpoints; a save in progress has another name."""
    if url := remote.url_of(run):
        return remote.saved_steps(url, ITEMS)
    return sorted(
        int(path.name)
        for path in (run / "checkpoints").glob("*")
        if path.name.isdecimal() and all((path / item).is_dir() for item in ITEMS)
    )


@contextlib.contextmanager
def reading(run: Path, step: int, *, resuming: bool = False) -> Iterator[None]:
    """Turns what goes wrong in reading a checkpoint into one ValueError that says what to do."""
    failure = None
    # When one read fails, each other that Orbax has in flight prints a traceback of its own, some
    # only when the failure's is let go.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        except Exception as error:
            failure = root_cause(error)
        if failure:
            time.sleep(0.5)
            gc.collect()
    if failure:
        path = directory(run) / str(step)
        earlier = [other for other in saved_steps(run) if other < step]
        remedy = "there is no earlier one in this run"
        if earlier and resuming:
            remedy = f"the one before it is of step {earlier[-1]}: to go back to that, move this "
            move = "gcloud storage mv" if remote.url_of(run) else "mv"
            remedy += f"one away\n  {move} {path} {path}.damaged"
        elif earlier:
            remedy = f"earlier ones are of steps {earlier}"
        raise ValueError(
            f"{path}: this checkpoint cannot be read: {failure}\nIf that repeats, it is damaged; "
            + remedy
        )


def root_cause(error: BaseException) -> str:
    """Returns the first line of what is at the bottom of an error of Orbax."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first if len(first) <= 300 else f"{first[:100]} ... {first[-200:]}"  # paths between


def names_checkpoint(reference: str) -> bool:
    """Whether a reference is ``RUN@...`` (a Hub model's revision is written the same way)."""
    run, separator, _ = reference.rpartition("@")
    return bool(separator) and (Path(run) / "checkpoints").is_dir()


def find_checkpoint(reference: str) -> tuple[Path, int]:
    """Returns the run directory and step that ``RUN@STEP`` or ``RUN@PHASE`` names.

    Raises:
      ValueError: if there is no such run, phase or checkpoint; the ones that exist are listed.
    """
    run_name, separator, at = reference.rpartition("@")
    if not separator:
        raise ValueError(f"{reference!r} names no checkpoint: expected RUN@STEP or RUN@PHASE")
    run = Path(run_name)
    ends = _phase_ends(run)
    if not at.isdecimal() and at not in ends:
        raise ValueError(f"{reference}: {run} has no phase {at!r}; its phases: {', '.join(ends)}")
    step = int(at) if at.isdecimal() else ends[at]
    there = saved_steps(run)
    if step not in there:
        raise ValueError(f"{reference}: no checkpoint of step {step}; there are {there} in {run}")
    return run, step


def _phase_ends(run: Path) -> dict[str, int]:
    """Returns the last step of each phase of a run, in their order."""
    config = config_lib.parse(read_run(run)["config"])
    ends, step = {}, 0
    for phase in config.phases:
        step += config_lib.phase_steps(phase, config.data.seq_len)
        ends[phase.name] = step
    return ends


def average_params(reference: str, last: int) -> tuple[dict[str, np.ndarray], list[int]]:
    """Returns the mean of a phase's ``last`` checkpoints up to the one named, and their steps.

    Args:
      reference: ``RUN@STEP`` or ``RUN@PHASE``.
      last: how many, at least 1.

    Returns:
      float32 arrays by path, each summed in float64; the steps they are the mean of.

    Raises:
      ValueError: the phase has fewer checkpoints; one that cannot be read.
    """
    run, step = find_checkpoint(reference)
    ends = _phase_ends(run)
    name = next(name for name, end in ends.items() if step <= end)
    begin = max((end for end in ends.values() if end < step), default=0)
    there = [other for other in saved_steps(run) if begin < other <= step]
    if not 1 <= last <= len(there):
        raise ValueError(
            f"{reference}: an average of {last} checkpoints; phase {name!r} has {len(there)} up to "
            f"step {step}: {there}. A run keeps the last config.checkpoint.keep, one every "
            "config.checkpoint.every_steps: both may be changed when it is resumed"
        )
    steps = there[-last:]
    sums: dict[str, np.ndarray] = {}
    for other in steps:
        params = load_params(f"{run}@{other}")
        for path, array in params.items():
            sums[path] = sums.get(path, 0.0) + np.asarray(array, np.float64)
    return {path: (total / last).astype(np.float32) for path, total in sums.items()}, steps


def load_params(
    reference: str, shardings: Mapping[str, jax.sharding.Sharding] | None = None
) -> dict[str, jax.Array]:
    """Returns the parameters of ``RUN@STEP`` or ``RUN@PHASE``, by path.

    ``shardings`` says where each goes; a path that is not in it, and all if None, whole to the
    first device.
    """
    with _reader(reference) as (manager, step):
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        where = shardings or {}
        target = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where.get(name, device))
            for name, leaf in manager.item_metadata(step)["params"].items()
        }
        items = ocp.args.Composite(params=ocp.args.StandardRestore(target))
        return manager.restore(step, args=items)["params"]


def load_opt_state(reference: str, target: Any) -> Any:
    """Returns the optimizer state of ``RUN@STEP`` or ``RUN@PHASE``, placed like ``target``."""
    with _reader(reference) as (manager, step):
        items = ocp.args.Composite(opt_state=ocp.args.StandardRestore(target))
        return manager.restore(step, args=items)["opt_state"]


def load_origin(reference: str) -> Origin:
    """Returns where a run that continues ``RUN@STEP`` or ``RUN@PHASE`` starts."""
    with _reader(reference) as (manager, step):
        items = ocp.args.Composite(meta=ocp.args.JsonRestore())
        return Origin(**manager.restore(step, args=items)["meta"]["origin"])


@contextlib.contextmanager
def _reader(reference: str) -> Iterator[tuple[ocp.CheckpointManager, int]]:
    """Opens another run's checkpoints without touching them: that run may be writing."""
    run, step = find_checkpoint(reference)
    with (
        ocp.CheckpointManager(
            directory(run),
            options=ocp.CheckpointManagerOptions(create=False),
            item_handlers={
                "params": ocp.StandardCheckpointHandler(),
                "opt_state": ocp.StandardCheckpointHandler(),
                "meta": ocp.JsonCheckpointHandler(),
            },
        ) as manager,
        reading(run, step),
    ):
        yield manager, step
