"""kill -9 in the middle of saves and at other moments: the run goes on bit-identically."""

import json
import multiprocessing
import multiprocessing.process
import os
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_run

CLM_STEPS, DECAY_STEPS, EVERY = 48, 36, 3
LAST = CLM_STEPS + DECAY_STEPS
SAVES = 20  # kills in the middle of one


def train(config: Path, workdir: Path) -> None:
    """A whole run, in a process of its own."""
    import jax

    from cpt_jax import config as config_lib
    from cpt_jax import sharding
    from cpt_jax.training import loop

    errors = os.open(workdir.parent / "stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(errors, 2)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # the same programs always
    mesh = sharding.make_mesh(jax.devices()[:1])
    loop.prepare(config_lib.parse(json.loads(config.read_text())), workdir, mesh).train()


def start(config: Path, workdir: Path) -> multiprocessing.process.BaseProcess:
    # Imports are most of the cost of so short a run: they are made once, in the process that forks.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cpt_jax.training.loop"])
    process = context.Process(target=train, args=(config, workdir))
    process.start()
    return process


def step_of(workdir: Path) -> int:
    """The last step that metrics.jsonl tells of, while the run writes it."""
    file = workdir / "metrics.jsonl"
    whole = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return json.loads(whole[-1])["step"] if whole else -1


def saving(workdir: Path) -> set[str]:
    """The checkpoints that are being written at this moment."""
    return {path.name for path in (workdir / "checkpoints").glob("*-tmp*")}


def kill_when(process: multiprocessing.process.BaseProcess, moment, deadline: float = 120) -> bool:
    """Kills as soon as ``moment()`` holds; False if the run ended before."""
    until = time.monotonic() + deadline
    while process.is_alive():
        assert time.monotonic() < until, "the run neither ended nor came to the moment of its kill"
        if moment():
            process.kill()
            process.join()
            return True
        time.sleep(0.0005)
    assert process.exitcode == 0
    return False


@pytest.mark.slow
def test_twenty_kills_during_saves_leave_no_trace(tmp_path):
    """And five more: two within a step of the phases' boundary, three at any step."""
    tiny_run.corpus(tmp_path, "a", 150, seed=1)
    tiny_run.corpus(tmp_path, "b", 40, seed=2)
    raw = tiny_run.raw_config(tmp_path, clm_steps=CLM_STEPS, decay_steps=DECAY_STEPS)
    raw["checkpoint"]["every_steps"] = EVERY
    config = tmp_path / "config.json"
    config.write_text(json.dumps(raw))
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    first = start(config, straight)
    first.join(300)
    assert first.exitcode == 0, (tmp_path / "stderr").read_text()[-2000:]

    rng = np.random.default_rng(0)

    def in_a_save(begun: int):
        """Some way into the first or second save of this start; at most one is completed."""
        left, seen, since = int(rng.integers(1, 3)), set(), 0.0
        wait = rng.uniform(0, 0.02)

        def here() -> bool:
            nonlocal since
            now = saving(killed) if step_of(killed) > begun else set()
            if now - seen:
                since = time.monotonic()
                seen.update(now)
            return len(seen) >= left and time.monotonic() >= since + wait and bool(now)

        return here

    def after(step: int):
        return lambda begun: lambda: step_of(killed) >= max(step, begun + 1)

    half = [in_a_save] * (SAVES // 2)
    moments = [*half, *[after(0)] * 3, after(CLM_STEPS - 1), after(CLM_STEPS), *half]
    during_a_save = boundary = 0
    for moment in moments:
        process = start(config, killed)
        assert kill_when(process, moment(step_of(killed))), "the run ended before its kills"
        during_a_save += moment is in_a_save and bool(saving(killed))
        boundary += moment is not in_a_save and abs(step_of(killed) - CLM_STEPS) <= 1
    last = start(config, killed)
    last.join(300)
    assert last.exitcode == 0, (tmp_path / "stderr").read_text()[-2000:]
    assert during_a_save == SAVES
    assert boundary >= 2

    assert tiny_run.metrics(killed) == tiny_run.metrics(straight)
    ours, expected = tiny_run.state(killed, LAST), tiny_run.state(straight, LAST)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (killed / "export" / name).read_bytes() == (straight / "export" / name).read_bytes()
