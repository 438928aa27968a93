"""The run log against crashes and resumes; the progress line against the clock."""

import contextlib
import importlib
import importlib.machinery
import io
import json
import math
import struct
import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from cpt_jax import telemetry
from cpt_jax.telemetry import Progress, RunLog, read_metrics

# --- metrics.jsonl


@pytest.fixture
def open_log():
    """Makes logs of a directory, and closes them at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda workdir, tensorboard=False, **options: stack.enter_context(
            RunLog(workdir, tensorboard=tensorboard, **options)
        )


def lines_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_floats_round_trip_exactly(tmp_path, open_log):
    rng = np.random.default_rng(0)
    doubles = [struct.unpack("d", rng.bytes(8))[0] for _ in range(200)] + [0.1, 5e-324, -0.0]
    singles = rng.standard_normal(50).astype(np.float32)
    log = open_log(tmp_path)
    for step, value in enumerate([*doubles, *singles]):
        log.write("train", step=step, loss=value)
    back = [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl")]
    for double, read in zip(doubles, back, strict=False):
        assert struct.pack("d", double) == struct.pack("d", read) or math.isnan(double)
    assert np.array(back[len(doubles) :], np.float32).tobytes() == singles.tobytes()


def test_values_become_plain_json(tmp_path, open_log):
    log = open_log(tmp_path)
    log.write(
        "train",
        step=3,
        tokens=np.int64(2**40),
        loss=jnp.float32(0.5),
        rough=jnp.bfloat16(1.5),
        overflow=jnp.int32(7),
        mfu=None,
        rows="9f1c",
        bad=float("nan"),
    )
    (line,) = lines_of(tmp_path)
    assert math.isnan(line.pop("bad"))
    assert line == {
        "kind": "train",
        "step": 3,
        "tokens": 2**40,
        "loss": 0.5,
        "rough": 1.5,
        "overflow": 7,
        "mfu": None,
        "rows": "9f1c",
    }
    with pytest.raises(ValueError, match="single values"):
        log.write("train", step=4, loss=np.zeros(2))


def test_a_line_is_in_the_file_before_anything_is_closed(tmp_path, open_log):
    log = open_log(tmp_path)
    for step in range(3):
        log.write("train", step=step, loss=1.0)
        assert len(lines_of(tmp_path)) == step + 1
    log.close()
    log.write("train", step=3, loss=1.0)
    assert [line["step"] for line in lines_of(tmp_path)] == [0, 1, 2, 3]


def write_a_run(log):
    """Two phases of two steps; what is written after the checkpoint of step 2 is marked `late`."""
    log.write("phase", step=0, phase="clm", event="start", late=False)
    log.write("train", step=1, loss=4.0, late=False)
    log.write("train", step=2, loss=3.0, late=False)
    log.write("eval", step=2, source="notes", mlm_loss=2.0, late=False)
    log.write("phase", step=2, phase="clm", event="end", late=False)
    log.write("phase", step=2, phase="mlm", event="start", late=True)
    log.write("train", step=3, loss=2.0, late=True)


@pytest.mark.parametrize("torn", ["", '{"kind": "train", "st', '{"kind": "train", "step": 4}'])
def test_a_resumed_run_has_each_line_once(tmp_path, open_log, torn):
    write_a_run(open_log(tmp_path))
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + torn)

    log = open_log(tmp_path)
    log.truncate_after(2)
    assert [line["late"] for line in lines_of(tmp_path)] == [False] * 5
    log.write("phase", step=2, phase="mlm", event="start", late=True)
    log.write("train", step=3, loss=2.0, late=True)

    write_a_run(open_log(tmp_path / "straight"))
    assert lines_of(tmp_path) == lines_of(tmp_path / "straight")
    assert [file.name for file in tmp_path.glob("metrics*")] == ["metrics.jsonl"]


def test_truncating_in_the_middle_of_writing(tmp_path, open_log):
    """The open file is the old one after a rewrite; what follows must go to the new one."""
    log = open_log(tmp_path)
    write_a_run(log)
    log.truncate_after(1)
    log.write("train", step=2, loss=9.0)
    assert [line["step"] for line in lines_of(tmp_path)] == [0, 1, 2]
    log.truncate_after(-1)
    assert lines_of(tmp_path) == []


def test_truncating_needs_no_file(tmp_path, open_log):
    open_log(tmp_path).truncate_after(10)
    assert list(tmp_path.iterdir()) == []


def test_damage_in_the_middle_is_not_passed_over(tmp_path, open_log):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "a", "step": 1}\n{"step"\n{"kind": "a", "step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: not a JSON object"):
        open_log(tmp_path).truncate_after(3)
    assert path.read_text().count("\n") == 3


def test_other_processes_write_nothing(tmp_path, open_log):
    open_log(tmp_path).write("train", step=5, loss=1.0)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    log = open_log(tmp_path, process_index=1, tensorboard=True)
    log.truncate_after(0)
    log.write("train", step=6, loss=1.0)
    log.close()
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_tensorboard_events(tmp_path, open_log):
    proto: Any = importlib.import_module("tensorboardX.proto.event_pb2")  # no stubs for it
    log = open_log(tmp_path, tensorboard=True)
    log.write("train", step=7, loss=0.25, phase="clm", mfu=None)
    log.write("eval", step=8, source="notes", mlm_loss=1.5)
    log.close()
    log.truncate_after(7)
    log.write("train", step=8, loss=0.125)
    log.close()
    seen, sessions = {}, []
    for path in sorted(tmp_path.glob("events*")):
        raw = path.read_bytes()
        while raw:
            # a TFRecord: length (8 bytes), its checksum (4), the event, its checksum (4)
            (size,) = struct.unpack("<Q", raw[:8])
            event = proto.Event.FromString(raw[12 : 12 + size])
            raw = raw[16 + size :]
            if event.HasField("session_log"):
                sessions.append((event.step, event.session_log.status))
            for value in event.summary.value:
                seen[value.tag, event.step] = value.simple_value
    assert seen == {
        ("train/loss", 7): 0.25,
        ("eval/notes/mlm_loss", 8): 1.5,
        ("train/loss", 8): 0.125,
    }
    # what TensorBoard needs to hide the first run's events from step 8 on
    assert sessions == [(8, proto.SessionLog.START)]


# --- Weights & Biases


class FakeWandb(types.ModuleType):
    """What is asked of the library, and what it would send."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
        self.settings, self.started, self.sent, self.finished = {}, {}, [], False

    def Settings(self, **settings):
        self.settings = settings

    def init(self, *, settings, **started):
        self.started = started
        return self

    def log(self, numbers, *, step):
        self.sent.append((step, numbers))

    def finish(self):
        self.finished = True


def test_wandb_is_sent_numbers_and_nothing_else(tmp_path, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_API_KEY", "a planted secret")
    (tmp_path / "config.json").write_text('{"config": "a planted sentence"}')
    telemetry.Tracker.check()
    with RunLog(tmp_path, tensorboard=False, tracker=telemetry.Tracker(tmp_path, "detours")) as log:
        log.write("train", step=1, loss=0.5, phase="clm", rows="9f1c", finite=True)
        log.write("eval", step=2, source="notes", mlm_loss=1.5)
    assert wandb.sent == [
        (1, {"train/loss": 0.5, "train/finite": True}),
        (2, {"eval/notes/mlm_loss": 1.5}),
    ]
    assert wandb.finished
    assert wandb.settings["console"] == "off"
    assert wandb.settings["disable_git"]
    assert wandb.settings["x_disable_meta"]
    assert wandb.started["project"] == "detours"
    assert set(wandb.started) == {"project", "id", "name", "resume", "dir"}
    written = [file.read_text() for file in tmp_path.iterdir()]
    assert "planted" not in str([wandb.settings, wandb.started, wandb.sent])
    assert not any("secret" in text for text in written)


def test_wandb_wants_the_library_and_a_key(monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with pytest.raises(ValueError, match=r"wandb is not installed: pip install -e '\.\[wandb\]'"):
        telemetry.Tracker.check()
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    with pytest.raises(ValueError, match="set WANDB_API_KEY"):
        telemetry.Tracker.check()


# --- the progress line


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def run_steps(progress, clock, steps, seconds, tokens=1000, flops=5e9):
    for _ in range(steps):
        clock.now += seconds
        progress.count(tokens, flops)


def test_progress_numbers_and_line(capsys):
    clock = Clock()
    progress = Progress(7300, peak_flops=1e11, clock=clock)
    run_steps(progress, clock, 10, 0.5)
    numbers = progress.report(100, phase="clm", loss=3.25, lr=2e-4)
    assert numbers == {"seconds": 5.0, "tokens_per_second": 2000.0, "mfu": pytest.approx(0.1)}
    assert capsys.readouterr().err == (
        "step 100/7300  clm  loss 3.2500  lr 2.00e-04  2k tokens/s  MFU 10.0%  ETA 1:00:00\n"
    )


def test_unknown_peak_is_a_dash(capsys):
    clock = Clock()
    progress = Progress(10, clock=clock)
    run_steps(progress, clock, 1, 1.0)
    assert progress.report(1, phase="mlm", loss=1.0, lr=1e-5)["mfu"] is None
    assert "MFU -  ETA 0:00:09" in capsys.readouterr().err


def test_time_away_from_training_does_not_count():
    clock = Clock()
    progress = Progress(10, shown=False, clock=clock)
    run_steps(progress, clock, 1, 1.0)
    with progress.paused():
        clock.now += 500
    run_steps(progress, clock, 1, 1.0)
    assert progress.report(2, phase="mlm", loss=1.0, lr=1e-5)["seconds"] == 2.0


def test_jumps_of_the_clock(capsys):
    """A suspended machine does not bend the time left; a clock set back gives no rate."""
    clock = Clock()
    progress = Progress(100, clock=clock)
    for step in range(1, 6):
        run_steps(progress, clock, 1, 2.0)
        if step == 3:
            clock.now += 50_000
        progress.report(step, phase="mlm", loss=1.0, lr=1e-5)
    assert capsys.readouterr().err.splitlines()[-1].endswith("ETA 0:03:10")
    run_steps(progress, clock, 1, -3600.0)
    numbers = progress.report(6, phase="mlm", loss=1.0, lr=1e-5)
    assert numbers == {"seconds": None, "tokens_per_second": None, "mfu": None}
    assert capsys.readouterr().err.splitlines()[-1].endswith("ETA 0:03:08")


def test_a_terminal_shows_one_line_that_changes(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen, clock = Terminal(), Clock()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress(10, clock=clock)
    for step in (1, 2):
        run_steps(progress, clock, 1, 1.0)
        progress.report(step, phase="mlm", loss=1.0, lr=1e-5)
    progress.close()
    between = screen.getvalue().split("step 1/10")[1].split("step 2/10")[0]
    assert "\x1b[2K" in between  # the first line is erased before the second is written
