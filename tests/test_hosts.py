"""Runs of several real processes: one run in two or four, killed, stopped, and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_run
from safetensors.numpy import load_file

from cpt_jax import checkpoint
from cpt_jax import config as config_lib
from cpt_jax.checkpoint import Origin
from cpt_jax.data.sources import open_source
from cpt_jax.lock import Lock
from cpt_jax.training import loop, plan

CLM_STEPS, DECAY_STEPS, EVERY = 14, 10, 4
LAST = CLM_STEPS + DECAY_STEPS
CONFIG = """
import json, pathlib
from ml_collections import ConfigDict
def get_config():
    return ConfigDict(json.loads((pathlib.Path(__file__).parent / "config.json").read_text()))
"""


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Launched:
    """`launch.local`, with what its processes write."""

    def __init__(self, root: Path, workdir: Path, processes: int, *arguments: str):
        own = Path(__file__).parents[1]
        self.workdir = workdir
        train = f"-m cpt_jax.main --config={root}/config.py --workdir={workdir}".split()
        command = [sys.executable, *train, *arguments]
        if arguments:  # to be read by a shell, which knows JAX_PROCESS_ID
            command = ["sh", "-c", " ".join([f"exec {sys.executable}", *train, *arguments])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launch.local", "-n", str(processes), "--", *command],
            cwd=own,
            env=os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[tuple[float, str]] = []
        self.sent = 0.0  # when a process got its signal
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            self.lines.extend((time.monotonic(), line.rstrip("\n")) for line in lines)

    @property
    def said(self) -> list[str]:
        """What was written, without gloo's greetings."""
        return [line for _, line in self.lines if "[Gloo] Rank" not in line]

    @property
    def log(self) -> str:
        """All of it, for when a test fails."""
        return "\n".join(line for _, line in self.lines)

    def of(self, rank: int) -> list[str]:
        """What one process wrote."""
        return [line[4:] for line in self.said if line.startswith(f"[{rank}] ")]

    def pid(self, rank: int) -> int:
        """The process of this number."""
        for pid in children(self.process.pid):
            if f"JAX_PROCESS_ID={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0"):
                return pid
        raise AssertionError(f"no process {rank}: {self.log}")

    def when(self, step: int, deadline: float = 120) -> "Launched":
        """Waits until metrics.jsonl tells of a step."""
        until, file = time.monotonic() + deadline, self.workdir / "metrics.jsonl"
        while True:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            whole = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
            if whole and json.loads(whole[-1])["step"] >= step:
                return self
            time.sleep(0.005)

    def saved(self, deadline: float = 60) -> "Launched":
        """Waits until a checkpoint is whole: saving may take longer than some steps."""
        until = time.monotonic() + deadline
        while checkpoint.latest_step(self.workdir) is None:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.005)
        return self

    def send(self, rank: int, number: int) -> "Launched":
        os.kill(self.pid(rank), number)
        self.sent = time.monotonic()
        return self

    def end(self, deadline: float = 120) -> int:
        """Waits for the end, and returns the exit status."""
        try:
            return self.process.wait(deadline)
        finally:
            self.process.kill()
            self._reader.join()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpora")
    tiny_run.corpus(root, "a", 150, seed=1)
    tiny_run.corpus(root, "b", 40, seed=2)
    (root / "config.py").write_text(CONFIG)
    (root / "config.json").write_text(json.dumps(cut_config(root)))
    return root


def cut_config(root: Path) -> dict[str, Any]:
    """A run whose parameters are cut over all devices there are: none is whole on any host."""
    return raw_config(root, CLM_STEPS) | {"mesh": {"replica": 1, "fsdp": None}}


def raw_config(root: Path, clm_steps: int) -> dict[str, Any]:
    raw = tiny_run.raw_config(root, clm_steps=clm_steps, decay_steps=DECAY_STEPS)
    raw["checkpoint"] = {"every_steps": EVERY, "keep": 20}
    raw["evaluation"] |= {"every_steps": 1000, "rows_per_source": 6, "batch_size": 4}
    return raw


@pytest.fixture(scope="module")
def one(root) -> Path:
    """The run in one process, on one device."""
    return tiny_run.train(cut_config(root), root / "one")


@pytest.fixture(scope="module")
def two(root) -> Launched:
    launched = Launched(root, root / "two", 2)
    assert launched.end() == 0, launched.log
    return launched


@pytest.fixture(scope="module")
def killed(root) -> dict[int, Launched]:
    """One run of two processes, of which 1 and then 0 are killed; by the number of the killed."""
    starts = {}
    for rank, step in ((1, 6), (0, 16)):
        starts[rank] = Launched(root, root / "killed", 2).when(step).saved()
        beside = [Path(f"/proc/{pid}/cmdline") for pid in children(starts[rank].pid(1))]
        # Without it JAX's client may be faster than ours to see that process 0 is gone.
        assert any("relay.py" in command.read_text() for command in beside)
        starts[rank].send(rank, signal.SIGKILL)
        starts[rank].end()
    return starts


def assert_close(ours: Path, expected: Path, steps: tuple[int, ...]) -> None:
    """The same rows, counts and names; numbers and states to the rounding of sums in fp32."""
    got, wanted = tiny_run.metrics(ours), tiny_run.metrics(expected)
    assert len(got) == len(wanted)
    for mine, other in zip(got, wanted, strict=True):
        numbers = {key for key, value in other.items() if isinstance(value, float)}
        assert {k: v for k, v in mine.items() if k not in numbers} == {
            k: v for k, v in other.items() if k not in numbers
        }
        # A loss is a sum of 100 terms over devices in another order; norms square that.
        np.testing.assert_allclose(
            [mine[key] for key in numbers], [other[key] for key in numbers], rtol=1e-5
        )
    for step in steps:
        assert_states_close(tiny_run.state(ours, step), tiny_run.state(expected, step))


def assert_states_close(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(ours[name] / scale, value / scale, atol=1e-5, err_msg=name)


def assert_equal(ours: Path, expected: Path) -> None:
    assert tiny_run.metrics(ours) == tiny_run.metrics(expected)
    state, wanted = tiny_run.state(ours, LAST), tiny_run.state(expected, LAST)
    assert state.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(state[name], value)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (ours / "export" / name).read_bytes() == (expected / "export" / name).read_bytes()


@pytest.mark.slow
def test_two_processes_are_one_run(one, two):
    assert_close(two.workdir, one, (EVERY, CLM_STEPS, LAST))
    digests = [line["rows"] for line in tiny_run.metrics(two.workdir, "train")]
    assert len(set(digests)) == LAST
    exports = [load_file(run / "export" / "model.safetensors") for run in (one, two.workdir)]
    assert exports[0].keys() == exports[1].keys()
    for name, value in exports[0].items():
        np.testing.assert_allclose(exports[1][name], value, atol=1e-5 * np.abs(value).max())
    assert two.of(0)[-1] == f"exported to {two.workdir / 'export'}"
    assert two.of(1) == []  # one writer
    assert len((two.workdir / "starts.jsonl").read_text().splitlines()) == 1
    assert not (two.workdir / "run.lock").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 0])
def test_when_a_process_is_killed_the_others_say_so_and_end(killed, victim):
    """Within a minute, with status 1, and nothing of C++ or Python after the message."""
    launched, other = killed[victim], 1 - victim
    assert launched.process.returncode == 128 + signal.SIGKILL  # of the first that failed
    assert f"process {victim} of 2 was ended by SIGKILL" in launched.said, launched.log
    assert f"process {other} of 2 ended with exit status 1" not in launched.said  # the first only
    assert launched.of(other)[-1].startswith(f"error: process {victim} of 2 has died")
    at = max(at for at, line in launched.lines if line.startswith(f"[{other}] "))
    assert at - launched.sent < 60
    assert not [line for line in launched.said if "stack trace" in line or "Traceback" in line]


@pytest.mark.slow
def test_a_run_whose_processes_were_killed_ends_bit_identical(root, killed, two):
    last = Launched(root, killed[0].workdir, 2)
    assert last.end() == 0, last.log
    for start, reached in ((killed[0], 6), (last, 16)):
        (step,) = re.findall(r"^resuming at step (\d+) ", "\n".join(start.of(0)), re.M)
        assert 0 < int(step) <= reached + EVERY  # a step or two are taken while the kill arrives
    assert_equal(last.workdir, two.workdir)


@pytest.mark.slow
def test_one_process_asked_to_stop_stops_all_and_fewer_go_on(root):
    """Saved by four, gone on with by two, stopped there by a Ctrl-C, and gone on with by one."""
    # Long, as a signal is heard within a second, and a step may take ten milliseconds.
    raw = raw_config(root, 600)
    raw["checkpoint"]["every_steps"] = 200
    long = root / "long"
    long.mkdir()
    (long / "config.py").write_text(CONFIG)
    (long / "config.json").write_text(json.dumps(raw))
    workdir, straight = long / "run", long / "straight"

    four = Launched(long, workdir, 4).when(5).send(2, signal.SIGTERM)
    assert four.end() == 128 + signal.SIGTERM, four.log
    step = tiny_run.last_step(workdir)
    saved = tiny_run.state(workdir, step)
    assert step >= 5
    assert four.of(0)[-1].startswith(f"stopped at step {step} of 610 and saved")
    assert not [line for line in four.said if "stack trace" in line or "Traceback" in line]

    two = Launched(long, workdir, 2).when(step + 3).send(1, signal.SIGINT)
    assert two.end() == 128 + signal.SIGINT, two.log
    assert any(line.startswith(f"resuming at step {step} ") for line in two.of(0))
    last = tiny_run.last_step(workdir) + 3
    assert last > step + 6

    with pytest.raises(loop.Stopped):
        tiny_run.train(raw, workdir, stop=lambda now: now == last)
    for end in (step, last):
        with pytest.raises(loop.Stopped):
            tiny_run.train(raw, straight, stop=lambda now, end=end: now == end)
        if end == step:  # a stop's checkpoint goes with the next: look at it before
            assert_states_close(saved, tiny_run.state(straight, step))
    assert_close(workdir, straight, (last,))


@pytest.mark.slow
def test_processes_that_were_told_different_things_are_refused(root):
    """Another seed in one of them, before anything is computed or written."""
    launched = Launched(root, root / "differ", 2, "--config.seed=$JAX_PROCESS_ID")
    assert launched.end() == 2
    assert launched.of(1) == []
    said = "\n".join(launched.of(0))
    assert said.count("error:") == 1
    assert re.search(r"'--config.seed=0'\] in process 0, .*'--config.seed=1'\] in process 1", said)
    assert re.search(r"config: '\w{12}' in process 0, '\w{12}' in process 1", said)
    assert not (root / "differ").exists()


@pytest.mark.slow
def test_a_refusal_of_the_first_ends_all_with_one_message(root):
    """The directory has an owner, which only process 0 learns."""
    lock = Lock(root / "owned")
    launched = Launched(root, root / "owned", 2)
    assert launched.end() == 1
    assert launched.of(1) == []
    (said,) = launched.of(0)
    assert said.startswith(f"error: {root / 'owned'} is in use by process {os.getpid()}")
    lock.release()


@pytest.fixture
def counted(root, monkeypatch) -> list[tuple[str, int]]:
    """The reads of sources, as (corpus, row)."""
    reads = []
    kind = type(open_source(root / "a"))
    read = kind.__getitem__

    def count(self, index):
        reads.append((self.path.name, int(index)))
        return read(self, index)

    monkeypatch.setattr(kind, "__getitem__", count)
    return reads


def test_a_host_reads_its_own_rows_alone(root, counted):
    """Of 3 batches of 4 rows each of 4 hosts reads 3 rows, together those that one would read."""
    config = config_lib.parse(raw_config(root, 3))
    sources = {s.name: open_source(s.path) for s in config.data.sources}
    phase, _ = plan.plan_run(config, sources, Origin())

    def read(host: int, hosts: int) -> list[tuple[str, int]]:
        counted.clear()
        for _ in phase.batches(0, host=host, hosts=hosts, threads=2, prefetch=2):
            pass
        return sorted(counted)

    parts = [read(host, 4) for host in range(4)]
    assert [len(part) for part in parts] == [3] * 4
    assert sorted(row for part in parts for row in part) == read(0, 1)
