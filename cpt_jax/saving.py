"""Writing the checkpoints of a run: when they appear, which stay, and what happens if one fails."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from cpt_jax import peers, remote
from cpt_jax.checkpoint import ITEMS, Origin, directory, latest_step, reading, root_cause, run_id


class SaveError(OSError):
    """A checkpoint could not be saved: the run must not go on as if it were safe."""


@dataclasses.dataclass(frozen=True)
class _Regular(preservation_policy.PreservationPolicy):
    """Keeps the latest of the regular steps, and the latest step.

    One saved because the run was stopped goes with the next: it takes no regular one's place, so
    that what is kept does not depend on when a run was stopped.
    """

    every: int
    keep: int

    def should_preserve(self, checkpoints, *, context):
        regular = [info.step for info in checkpoints if info.step % self.every == 0]
        kept = {*regular[-self.keep :], checkpoints[-1].step}
        return [info.step in kept for info in checkpoints]


class Checkpoints:
    """The checkpoints of one run directory. Saves are asynchronous; a failed one raises later."""

    def __init__(
        self, run: Path, *, every: int = 1, keep: int = 1, keep_steps: tuple[int, ...] = ()
    ):
        """Opens, removes what a killed save left behind, and sets what is not whole aside.

        Args:
          run: the run directory.
          every: its regular steps are the multiples.
          keep: number of latest checkpoints of regular steps that stay, besides the latest.
          keep_steps: steps that always stay.
        """
        self._run, self._id = run, run_id(run)
        if jax.process_index() == 0:
            _set_aside_parts(run)
        peers.agree("its checkpoints", {})  # renamed before anyone lists them
        policies = [_Regular(every, keep), preservation_policy.CustomSteps(list(keep_steps))]
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(policies),
            cleanup_tmp_directories=True,
        )
        self._manager = ocp.CheckpointManager(directory(run), options=options)

    def save(self, step: int, params: Any, opt_state: Any, origin: Origin) -> None:
        """Starts to save; returns once the arrays may be overwritten.

        ``origin`` is what a run that continues from here starts from.

        Raises:
          SaveError: this save, or the one before it.
          OSError: the run is in a store, and its other files could not be sent there before.
        """
        remote.upload(self._run)
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(params),
            opt_state=ocp.args.StandardSave(opt_state),
            meta=ocp.args.JsonSave(
                {"run": self._id, "step": step, "origin": dataclasses.asdict(origin)}
            ),
        )
        with self._saving():
            self._manager.save(step, args=items, force=True)

    def check(self) -> None:
        """Raises SaveError if a save that was started has failed by now."""
        if not self._manager.is_saving_in_progress():
            with self._saving():
                self._manager.wait_until_finished()  # returns or raises at once

    def restore(self, step: int, params: Any, opt_state: Any) -> tuple[Any, Any]:
        """Returns the state of ``step``, shaped and placed like the two trees given.

        The trees may hold arrays or ``jax.ShapeDtypeStruct`` with shardings; on how many devices
        the state was saved does not matter.

        Raises:
          ValueError: it cannot be read, with the checkpoint to fall back to; it is another run's.
        """
        items = ocp.args.Composite(
            params=ocp.args.StandardRestore(params),
            opt_state=ocp.args.StandardRestore(opt_state),
            meta=ocp.args.JsonRestore(),
        )
        with reading(self._run, step, resuming=True):
            restored = self._manager.restore(step, args=items)
        meta, path = restored["meta"], directory(self._run) / str(step)
        if meta.get("step", step) != step:
            raise ValueError(
                f"{path}: this checkpoint was saved after step {meta['step']} and renamed: give it "
                "its name back, or take it away"
            )
        if self._id and meta.get("run", self._id) != self._id:
            raise ValueError(
                f"{path}: this checkpoint was saved by another run and "
                "copied here: take it away. config.init.source = RUN@STEP starts from another run's"
            )
        return restored["params"], restored["opt_state"]

    def close(self) -> None:
        """Waits for saves in flight.

        Raises:
          SaveError: one of them failed.
        """
        with self._saving():
            self._manager.close()

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax, TensorStore and the file system each have their own
            last = latest_step(self._run)
            there = "anew" if last is None else f"from the checkpoint of step {last}"
            raise SaveError(
                f"{remote.shown(self._run)}: a checkpoint could not be saved: {root_cause(error)}\n"
                "The run stops rather than go on unsaved. Once the disk may be written and has "
                f"room, the same command goes on, {there}"
            ) from error


def _set_aside_parts(run: Path) -> None:
    """Renames checkpoints that lack an item, as a torn copy of a run directory has them."""
    for path in (run / "checkpoints").glob("*"):
        lacking = [item for item in ITEMS if not (path / item).is_dir()]
        if path.name.isdecimal() and lacking:
            aside = path.with_name(f"{path.name}.incomplete")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            print(
                f"{path} lacks {' and '.join(lacking)}: it is no whole checkpoint, and is now "
                f"{aside.name}",
                file=sys.stderr,
            )
