"""What a run says about itself: ``metrics.jsonl``, TensorBoard and the progress line."""

import collections
import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cpt_jax import lock

METRICS = "metrics.jsonl"
KEYS = {"kind": str, "step": int}  # what every line has


class RunLog:
    """Appends the lines of a run to ``WORKDIR/metrics.jsonl``, and its numbers to TensorBoard.

    A line is one JSON object, handed to the operating system whole: a killed process loses no
    line. Floats are written with as many digits as they need to be read back exactly; NaN and
    infinities as ``NaN`` and ``Infinity``, as Python's ``json`` reads them.

    Args:
      workdir: the run directory; made if absent.
      process_index: only process 0 writes; in the others every method does nothing.
      tensorboard: whether to write event files as well.
      tracker: a Weights & Biases run that gets the numbers too.
    """

    def __init__(
        self,
        workdir: str | Path,
        *,
        process_index: int = 0,
        tensorboard: bool = True,
        tracker: "Tracker | None" = None,
    ):
        self.path = Path(workdir) / METRICS
        self._writes = process_index == 0
        self._tensorboard = tensorboard and self._writes
        self._tracker = tracker
        self._lines = None
        self._events = None
        self._purge_step = None

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def truncate_after(self, step: int) -> None:
        """Drops what was written after the checkpoint of ``step``, before a run resumes from it.

        That is every line of a later step, a phase that started at ``step`` (it will start again)
        and a last line that a crash tore. -1 drops all, for a run that starts from nothing again.
        Readers see the old file or the new, never a part.

        Raises:
          ValueError: a line other than the last is not JSON; names the file and the line.
        """
        if not self._writes:
            return
        self._purge_step = step + 1  # TensorBoard hides the events from there on
        if not self.path.exists():
            return
        kept = [
            line
            for line in read_metrics(self.path)
            if line["step"] < step or (line["step"] == step and line.get("event") != "start")
        ]
        self._close_files()
        new = self.path.with_suffix(".jsonl.new")
        with new.open("wb") as file:
            file.writelines(_encode(line) for line in kept)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def write(self, kind: str, *, step: int, **fields: Any) -> None:
        """Appends a line.

        Args:
          kind: "train", "eval" or "phase".
          step: optimizer steps of the run so far.
          **fields: strings, numbers, None, or 0-d arrays, which become numbers.

        Raises:
          OSError: the line could not be written, or not whole (a full disk).
        """
        if not self._writes:
            return
        fields = {name: _plain(value) for name, value in fields.items()}
        if self._lines is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lines = self.path.open("ab", buffering=0)
        line = _encode({"kind": kind, "step": int(step), **fields})
        try:
            if self._lines.write(line) != len(line):
                raise OSError("there was only room for a part of it")
            if self._tensorboard:
                self._write_events(kind, int(step), fields)
        except OSError as error:
            raise OSError(
                f"{self.path.parent}: the metrics of step {step} could not be written: {error}\n"
                "Nothing before them is lost: the same command goes on from the last checkpoint "
                "once the disk has room"
            ) from error
        if self._tracker is not None:
            self._tracker.write(dict(_scalars(kind, fields)), int(step))

    def close(self) -> None:
        """Closes the files and ends the tracker's run; a later ``write`` opens the files again."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None
        self._close_files()

    def _close_files(self) -> None:
        for file in (self._lines, self._events):
            if file is not None:
                with contextlib.suppress(OSError):  # what could not be written was told by `write`
                    file.close()
        self._lines = self._events = None

    def _write_events(self, kind: str, step: int, fields: dict[str, Any]) -> None:
        # Not through SummaryWriter: its thread dies of a full disk, and then `add_scalar` waits for
        # ever for that thread to empty its queue.
        from tensorboardX import record_writer, summary

        proto: Any = importlib.import_module("tensorboardX.proto.event_pb2")  # no stubs for it
        now = time.time()
        events = []
        if self._events is None:
            # with the step, as two starts within a second get two files
            name = f"events.out.tfevents.{now:.0f}.{self._purge_step or 0}"
            self._events = record_writer.RecordWriter(str(self.path.parent / name))
            events.append(proto.Event(wall_time=now, file_version="brain.Event:2"))
            if self._purge_step is not None:
                start = proto.SessionLog(status=proto.SessionLog.START)
                events.append(proto.Event(step=self._purge_step, session_log=start))
        for name, value in _scalars(kind, fields):
            scalar = summary.scalar(name, value)
            events.append(proto.Event(wall_time=now, step=step, summary=scalar))
        for event in events:
            self._events.write(event.SerializeToString())
        self._events.flush()


class Tracker:
    """A Weights & Biases run that is sent numbers, their names and the project's: nothing else.

    No config, no console output, no code, no command line, nothing of the machine. The key is read
    from the environment by ``wandb`` itself.

    Args:
      workdir: the run directory; ``wandb`` keeps its files there.
      project: the project's name.
    """

    def __init__(self, workdir: Path, project: str):
        wandb: Any = importlib.import_module("wandb")
        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        # The same at each start of this run, so that it goes on in one curve.
        name = hashlib.sha256((workdir / "config.json").read_bytes()).hexdigest()[:16]
        try:
            self._run = wandb.init(
                project=project,
                id=name,
                name=name,
                resume="allow",
                dir=str(workdir),
                settings=settings,
            )
        except Exception as error:  # wandb has its own: no network, a key that it does not know
            raise OSError(
                f"config.logging.wandb_project: wandb does not start: {error}. Mend that, set "
                "WANDB_MODE=offline, or leave the field at None"
            ) from error

    @staticmethod
    def check() -> None:
        """Raises ValueError if ``wandb`` is not installed, or has no key."""
        if importlib.util.find_spec("wandb") is None:
            raise ValueError(
                "config.logging.wandb_project: wandb is not installed: pip install -e '.[wandb]', "
                "or leave the field at None"
            )
        if not os.environ.get("WANDB_API_KEY") and os.environ.get("WANDB_MODE") != "offline":
            raise ValueError(
                "config.logging.wandb_project: no key in the environment: set WANDB_API_KEY, or "
                "WANDB_MODE=offline to send nothing yet"
            )

    def write(self, numbers: dict[str, float], step: int) -> None:
        """Sends the numbers of a line."""
        self._run.log(numbers, step=step)

    def close(self) -> None:
        """Waits until all is sent."""
        self._run.finish()


def _scalars(kind: str, fields: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields a line's numbers by the names of curves: ``train/loss``, ``eval/notes/mlm_loss``."""
    group = f"{kind}/{fields['source']}" if "source" in fields else kind
    for name, value in fields.items():
        if isinstance(value, int | float):
            yield f"{group}/{name}", value


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Returns the lines of a ``metrics.jsonl``; a torn last line, left by a crash, is left out.

    Raises:
      ValueError: another line is not a JSON object with a step; names the file and the line.
    """
    path = Path(path)
    *whole, _torn = path.read_bytes().split(b"\n")
    lines = []
    for number, text in enumerate(whole, 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or [type(line.get(key)) for key in KEYS] != [*KEYS.values()]:
            raise ValueError(
                f"{path}:{number}: not a JSON object with a kind and a step. Something other than "
                "a run wrote into the file: mend or delete this line"
            )
        lines.append(line)
    return lines


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Returns a 0-d array (NumPy's or JAX's, bfloat16 too) as the Python number it holds."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    array = np.asarray(value)
    if array.ndim:
        raise ValueError(f"a metric of shape {array.shape}: a line holds single values only")
    return array.item() if array.dtype.kind in "biuf" else float(array)


class Progress:
    """The line that says how far the run is and how fast, and the numbers behind it.

    Call ``count`` after each step, ``report`` every few steps, once the step's loss has been
    fetched (JAX returns before it computes), and wrap what is not training in ``paused``. On a
    terminal the line is rewritten in place; elsewhere each report is a line of its own. The time
    left is reckoned from the median of recent reports, so that neither a compilation nor a
    suspended machine bends it.

    Args:
      total_steps: optimizer steps of the whole run.
      peak_flops: FLOP/s of all devices that work on the rows counted; None when unknown.
      shown: whether there is a line, on standard error; for the first process only.
      clock: returns seconds, from any origin.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        peak_flops: float | None = None,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._peak, self._clock, self._shown = total_steps, peak_flops, clock, shown
        self._recent: collections.deque[float] = collections.deque(maxlen=21)  # seconds per step
        self._live = None
        self._start_over()

    def _start_over(self) -> None:
        self._tokens = self._flops = self._steps = 0
        self._since, self._away = self._clock(), 0.0

    def count(self, tokens: int, flops: float) -> None:
        """Adds one finished step: its tokens and its ``model.flops.training_flops``."""
        self._steps += 1
        self._tokens += tokens
        self._flops += flops

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Within it (evaluation, saving) time does not count."""
        start = self._clock()
        try:
            yield
        finally:
            self._away += max(0.0, self._clock() - start)

    def report(self, step: int, *, phase: str, loss: float, lr: float) -> dict[str, float | None]:
        """Writes the line, and starts measuring anew.

        Returns:
          ``seconds`` of training since the last report, ``tokens_per_second`` and ``mfu`` (share
          of the devices' peak, 0 to 1) in them; None for what cannot be told, such as the MFU of
          a device whose peak is unknown.
        """
        seconds = self._clock() - self._since - self._away
        rate = mfu = None
        if seconds > 0 and self._steps:
            rate = self._tokens / seconds
            mfu = self._flops / seconds / self._peak if self._peak else None
            self._recent.append(seconds / self._steps)
        self._start_over()
        if self._shown:
            left = (self._total - step) * statistics.median(self._recent) if self._recent else None
            self._show(
                f"step {step}/{self._total}  {phase}  loss {loss:.4f}  lr {lr:.2e}  "
                f"{'-' if rate is None else _short(rate)} tokens/s  "
                f"MFU {'-' if mfu is None else f'{mfu:.1%}'}  "
                f"ETA {'-' if left is None else _clock_face(left)}"
            )
        return {"seconds": seconds if seconds > 0 else None, "tokens_per_second": rate, "mfu": mfu}

    def say(self, line: str) -> None:
        """Writes a line of its own, which the changing one does not replace."""
        if not self._shown:
            return
        if self._live is None:
            lock.say(line)
        else:
            self._live.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leaves the last line on the screen and gives the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self, line: str) -> None:
        if not sys.stderr.isatty():
            lock.say(line)
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        from rich.text import Text

        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def _short(number: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.3g}"


def _clock_face(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"
