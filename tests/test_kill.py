"""kill -9 at random moments: the run goes on bit-identically."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_run

CLM_STEPS, DECAY_STEPS = 40, 20
LAST = CLM_STEPS + DECAY_STEPS
RUNNER = """
import json, sys
from pathlib import Path
import jax
from cpt_jax import config, sharding
from cpt_jax.training import loop
raw = json.loads(Path(sys.argv[1]).read_text())
mesh = sharding.make_mesh(jax.devices()[:1])
loop.prepare(config.parse(raw), Path(sys.argv[2]), mesh).train()
"""


def start(config: Path, workdir: Path, repo: Path, cache: Path) -> subprocess.Popen:
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),  # the same programs at every start
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", RUNNER, str(config), str(workdir)]
    with (workdir.parent / "stderr").open("ab") as errors:
        return subprocess.Popen(command, cwd=repo, env=environment, stderr=errors)


def step_of(workdir: Path) -> int:
    """The last step that metrics.jsonl tells of, while the run writes it."""
    file = workdir / "metrics.jsonl"
    whole = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return json.loads(whole[-1])["step"] if whole else -1


def saving(workdir: Path) -> bool:
    """Whether a checkpoint is being written at this moment."""
    return any("tmp" in path.name for path in (workdir / "checkpoints").glob("*"))


def kill_when(process: subprocess.Popen, moment, deadline: float = 120) -> bool:
    """Kills as soon as ``moment()`` holds; False if the run ended before."""
    until = time.monotonic() + deadline
    while process.poll() is None:
        assert time.monotonic() < until, "the run neither ended nor came to the moment of its kill"
        if moment():
            process.send_signal(signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.0005)
    assert process.returncode == 0
    return False


@pytest.mark.slow
def test_ten_kills_leave_no_trace(repo, tmp_path):
    tiny_run.corpus(tmp_path, "a", 150, seed=1)
    tiny_run.corpus(tmp_path, "b", 40, seed=2)
    raw = tiny_run.raw_config(tmp_path, clm_steps=CLM_STEPS, decay_steps=DECAY_STEPS)
    raw["checkpoint"]["every_steps"] = 3
    config = tmp_path / "config.json"
    config.write_text(json.dumps(raw))
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    cache = tmp_path / "cache"
    assert start(config, straight, repo, cache).wait(300) == 0

    rng = np.random.default_rng(0)
    during_a_save = boundary = kills = 0
    # Two within a step of the boundary, three in the middle of a save, the others anywhere.
    moments = [("step", CLM_STEPS), ("step", CLM_STEPS - 1), *[("save", 0)] * 3]
    moments += [("step", int(s)) for s in rng.integers(1, LAST - 2, 5)]
    moments.sort(key=lambda m: m[1] if m[0] == "step" else int(rng.integers(1, LAST - 4)))
    for kind, at in moments:
        process = start(config, killed, repo, cache)
        begun = step_of(killed)

        def here(kind=kind, at=at, begun=begun) -> bool:
            now = step_of(killed)
            return saving(killed) and now > begun if kind == "save" else now >= max(at, begun + 1)

        if not kill_when(process, here):
            break
        kills += 1
        during_a_save += saving(killed)
        boundary += abs(step_of(killed) - CLM_STEPS) <= 1
    while start(config, killed, repo, cache).wait(300) != 0:
        pytest.fail((tmp_path / "stderr").read_text()[-2000:])
    assert kills == 10
    assert during_a_save >= 3
    assert boundary >= 2

    assert tiny_run.metrics(killed) == tiny_run.metrics(straight)
    ours, expected = tiny_run.state(killed, LAST), tiny_run.state(straight, LAST)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (killed / "export" / name).read_bytes() == (straight / "export" / name).read_bytes()
