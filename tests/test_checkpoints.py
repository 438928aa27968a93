"""Checkpoints without training: failed saves, damage, other devices, owners, averages, history."""

import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_run

from convert.__main__ import main as convert
from cpt_jax import checkpoint, lock, saving, sharding, telemetry
from cpt_jax import config as config_lib
from cpt_jax.checkpoint import Origin
from cpt_jax.data.prepare import prepare
from cpt_jax.model.spec import ModelSpec
from cpt_jax.saving import Checkpoints
from cpt_jax.training import signals, start

SHAPES = {"a.kernel": (16, 64), "b.bias": (8,)}


def some_state(seed: int = 0) -> tuple[dict, dict]:
    """Parameters, and moments and a count like Adam's."""
    rng = np.random.default_rng(seed)
    params, mu, nu = (
        {
            name: jnp.asarray(rng.standard_normal(shape), jnp.float32)
            for name, shape in SHAPES.items()
        }
        for _ in range(3)
    )
    return params, {"mu": mu, "nu": nu, "count": jnp.int32(seed)}


@pytest.fixture
def disk_full():
    """Within it no file grows beyond 4 kB, root's neither: writes fail as on a full disk."""

    class Full:
        def __enter__(self):
            self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self.limits[1]))

        def __exit__(self, *_):
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)

    return Full()


# --- what stays


def test_a_checkpoint_out_of_turn_takes_no_regular_one_s_place(tmp_path):
    """Stopped at 7, between the saves of 6 and 8: 7 goes as soon as 8 is there."""
    kept = {}
    checkpoints = Checkpoints(tmp_path, every=2, keep=3, keep_steps=(1,))
    for step in (1, 2, 4, 6, 7, 8):
        checkpoints.save(step, *some_state(), Origin())
        checkpoints.close()
        checkpoints = Checkpoints(tmp_path, every=2, keep=3, keep_steps=(1,))
        kept[step] = checkpoint.saved_steps(tmp_path)
    checkpoints.close()
    assert kept[7] == [1, 2, 4, 6, 7]
    assert kept[8] == [1, 4, 6, 8]


# --- failing to save

# Orbax's own threads raise as well, where nobody catches.
orbax_raises = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@orbax_raises
def test_a_save_that_fails_stops_the_run(tmp_path, disk_full):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, *some_state(), Origin())
    checkpoints.check()
    checkpoints.close()
    checkpoints = Checkpoints(tmp_path)
    message = f"(?s){tmp_path}: a checkpoint could not be saved: .*from the checkpoint of step 1$"

    def save() -> None:
        checkpoints.save(2, *some_state(1), Origin())
        until = time.monotonic() + 20
        while time.monotonic() < until:
            checkpoints.check()  # as each report of the loop does
            time.sleep(0.01)

    with disk_full, pytest.raises(saving.SaveError, match=message):
        save()
    checkpoints.close()
    assert checkpoint.saved_steps(tmp_path) == [1]
    # A run would have ended: here threads of the failed save may still write where the next one is
    # to be, once the disk has room again.
    seen: list[list[Path]] = []
    while len(seen) < 10 or seen[-1] != seen[-10]:
        seen.append(sorted(tmp_path.rglob("*")))
        time.sleep(0.1)
    again = Checkpoints(tmp_path)
    params, _ = again.restore(1, *some_state(2))
    again.save(2, *some_state(1), Origin())
    again.close()
    np.testing.assert_array_equal(params["a.kernel"], some_state()[0]["a.kernel"])
    assert checkpoint.saved_steps(tmp_path) == [2]


@orbax_raises
def test_a_save_that_fails_at_the_end_is_told_by_close(tmp_path, disk_full):
    checkpoints = Checkpoints(tmp_path)
    with disk_full:
        checkpoints.save(1, *some_state(), Origin())
        with pytest.raises(saving.SaveError, match="the same command goes on, anew"):
            checkpoints.close()


@pytest.mark.parametrize("tensorboard", [False, True])
def test_metrics_on_a_full_disk(tmp_path, disk_full, tensorboard):
    """One message, at once; what was there is whole, and the torn line goes at the next start."""
    message = f"(?s){tmp_path}: the metrics of step .* could not be written: .*the same command"

    def write() -> None:
        with telemetry.RunLog(tmp_path, tensorboard=tensorboard) as log:
            for step in range(1, 1000):
                log.write("train", step=step, loss=1.0)

    with disk_full, pytest.raises(OSError, match=message):
        write()
    with telemetry.RunLog(tmp_path, tensorboard=tensorboard) as log:
        log.truncate_after(5)
        log.write("train", step=6, loss=1.0)
    steps = [line["step"] for line in telemetry.read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == [1, 2, 3, 4, 5, 6]


# --- reading what is damaged


@pytest.fixture
def damaged(tmp_path):
    """A directory with the checkpoints of steps 1 and 2, whose second is to be damaged."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2):
        checkpoints.save(step, *some_state(step), Origin())
    checkpoints.close()
    return tmp_path


@orbax_raises
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_file_names_the_way_back(damaged, damage, capfd):
    files = (damaged / "checkpoints" / "2" / "params").rglob("d/*")
    largest = max(files, key=lambda file: file.stat().st_size)
    if damage == "truncated":
        largest.write_bytes(largest.read_bytes()[:-1000])
    else:
        largest.unlink()
    path = damaged / "checkpoints" / "2"
    checkpoints = Checkpoints(damaged, keep=2)
    message = (
        f"(?s){path}: this checkpoint cannot be read: .* of step 1: .*mv {path} {path}.damaged"
    )
    with pytest.raises(ValueError, match=message):
        checkpoints.restore(2, *some_state())
    checkpoints.close()
    assert "Traceback" not in capfd.readouterr().err
    path.rename(f"{path}.damaged")
    assert checkpoint.latest_step(damaged) == 1


def test_a_checkpoint_without_an_item_is_set_aside(damaged, capfd):
    shutil.rmtree(damaged / "checkpoints" / "2" / "opt_state")
    assert checkpoint.latest_step(damaged) == 1
    checkpoints = Checkpoints(damaged, keep=2)
    assert "2 lacks opt_state" in capfd.readouterr().err
    checkpoints.save(2, *some_state(5), Origin())  # its step comes again, and is saved again
    checkpoints.close()
    assert checkpoint.saved_steps(damaged) == [1, 2]
    assert (damaged / "checkpoints" / "2.incomplete").is_dir()


def test_another_runs_checkpoint_is_not_resumed(tmp_path):
    description = {"config": {}, "model": {}}
    for name in ("ours", "theirs"):
        checkpoint.open_run(tmp_path / name, description)
        checkpoints = Checkpoints(tmp_path / name)
        checkpoints.save(1 if name == "ours" else 2, *some_state(), Origin())
        checkpoints.close()
    copied = tmp_path / "ours" / "checkpoints" / "2"
    shutil.copytree(tmp_path / "theirs" / "checkpoints" / "2", copied)
    checkpoints = Checkpoints(tmp_path / "ours")
    with pytest.raises(ValueError, match=f"{copied}: .* saved by another run"):
        checkpoints.restore(2, *some_state())
    checkpoints.restore(1, *some_state())
    checkpoints.close()


def test_a_renamed_checkpoint_is_not_resumed(tmp_path):
    checkpoint.open_run(tmp_path / "run", {"config": {}, "model": {}})
    checkpoints = Checkpoints(tmp_path / "run")
    checkpoints.save(1, *some_state(), Origin())
    checkpoints.close()
    renamed = (tmp_path / "run" / "checkpoints" / "1").rename(tmp_path / "run/checkpoints/3")
    checkpoints = Checkpoints(tmp_path / "run")
    with pytest.raises(ValueError, match=f"{renamed}: .* saved after step 1 and renamed"):
        checkpoints.restore(3, *some_state())
    checkpoints.close()


# --- devices


def test_saved_on_eight_devices_restored_on_fewer(tmp_path):
    """Bit-equal, moments and count too; cut over the devices, which is harder than copied."""

    def placed(devices: int, tree):
        mesh = sharding.make_mesh(jax.devices()[:devices])

        def place(leaf):
            cut = jax.P(mesh.axis_names) if leaf.ndim else jax.P()
            return jax.device_put(leaf, jax.NamedSharding(mesh, cut))

        return jax.tree.map(place, tree)

    whole = some_state(3)
    checkpoints = Checkpoints(tmp_path)
    params, moments = placed(8, whole)
    checkpoints.save(1, params, moments, Origin())
    checkpoints.close()
    checkpoints = Checkpoints(tmp_path)
    for devices in (1, 2, 4):
        target = placed(devices, jax.tree.map(jnp.zeros_like, whole))
        restored = checkpoints.restore(1, *target)
        leaves = [jax.tree.leaves(tree) for tree in (restored, whole, target)]
        for ours, wanted, like in zip(*leaves, strict=True):
            np.testing.assert_array_equal(ours, wanted)
            assert ours.sharding == like.sharding
    checkpoints.close()


# --- one owner

HOLDER = """
import sys, time
from pathlib import Path
from cpt_jax.lock import Lock
held = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_run_directory_has_one_owner(tmp_path, repo):
    workdir = tmp_path / "new" / "run"
    command = [sys.executable, "-c", HOLDER, str(workdir)]
    with subprocess.Popen(command, cwd=repo, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match=f"in use by process {owner.pid} on .* since 20"):
            lock.Lock(workdir)
        owner.kill()  # as kill -9 does: nothing is tidied up
    assert (workdir / lock.NAME).exists()
    ours = lock.Lock(workdir)
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
        lock.Lock(workdir)
    ours.release()
    assert list(workdir.iterdir()) == []


def test_a_lock_leaves_nothing_where_nothing_was_made(tmp_path):
    lock.Lock(tmp_path / "a" / "b").release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/run: cannot be written \(Not a directory\)"):
        lock.Lock(tmp_path / "file" / "run")


# --- stopping


@pytest.fixture
def ctrl_c():
    """Python's own handler of SIGINT, which a worker of pytest-xdist does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_signal_is_a_wish_and_the_second_acts(ctrl_c, capfd):
    with signals.stop_wish() as wish:
        assert not wish(1)
        signal.raise_signal(signal.SIGINT)
        assert wish(2)
        assert wish.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "SIGINT: saving after this step" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_wish_is_heard_where_nobody_reads_what_is_said():
    """Ctrl-C ends the `tee` of `... 2>&1 | tee log` as well."""
    body = """
import os, signal, sys
from cpt_jax import telemetry
from cpt_jax.training import signals
reader, writer = os.pipe()
os.dup2(writer, 2)
os.close(reader)
progress = telemetry.Progress(10)
with signals.stop_wish() as wish:
    signal.raise_signal(signal.SIGINT)
    progress.report(1, phase="clm", loss=1.0, lr=1e-3)
    progress.say("a line")
    sys.stdout.write(f"{wish(1)}")
sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", body], stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == ("True", 130)


# --- what a directory tells of its past


@pytest.fixture
def begun(tmp_path):
    """A run of 6 + 4 steps that saves every 2: its config, and its directory without a state."""
    config = config_lib.parse(tiny_run.raw_config(tmp_path))
    description = {"config": config_lib.to_dict(config), "model": {}}
    checkpoint.open_run(tmp_path / "run", description)
    (tmp_path / "run" / "checkpoints").mkdir()
    return config, tmp_path / "run"


def reached(run: Path, step: int) -> None:
    lines = [{"kind": "train", "step": done} for done in range(1, step + 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_killed_before_its_first_checkpoint_a_run_starts_anew_and_says_so(begun, capfd):
    config, run = begun
    start.check_history(config, run)
    reached(run, 3)  # the save of step 2 may have been on its way
    start.check_history(config, run)
    assert "stopped at step 3 before its first checkpoint: starting anew" in capfd.readouterr().err


def test_a_run_does_not_begin_within_another(begun):
    _, run = begun
    inner = run / "checkpoints" / "inner"
    with pytest.raises(ValueError, match=r"inner lies in .*run, the directory of another run"):
        checkpoint.open_run(inner, checkpoint.read_run(run))
    assert not inner.exists()


@pytest.mark.parametrize("whole", [True, False])
def test_deleted_checkpoints_are_not_passed_over(begun, whole):
    config, run = begun
    reached(run, 3 if whole else 5)
    if whole:
        (run / "checkpoints").rmdir()
    with pytest.raises(ValueError, match="there is no complete checkpoint: they were deleted"):
        start.check_history(config, run)
    assert (run / "metrics.jsonl").read_text().count("\n") >= 3


@pytest.mark.parametrize(
    "garbage",
    ["gar{bage", "[1]", '{"kind": "train"}', '{"kind": "train", "step": "2"}', "\x00\x00"],
)
def test_garbage_in_the_metrics_is_told_before_compute(begun, garbage):
    config, run = begun
    whole = '{"kind": "train", "step": 1}'
    (run / "metrics.jsonl").write_text(f"{whole}\n{garbage}\n{whole}\n")
    with pytest.raises(
        ValueError, match=r"metrics\.jsonl:2: not a JSON object with a kind and a step"
    ):
        start.check_history(config, run)


@pytest.mark.parametrize("garbage", ["[]", "3", '{"code": 3}', "{"])
def test_garbage_in_the_starts_is_told_before_compute(begun, garbage):
    config, run = begun
    (run / "starts.jsonl").write_text(f"{{}}\n{garbage}\n")
    with pytest.raises(ValueError, match=r"starts\.jsonl:2: not"):
        start.check_history(config, run)


def test_a_directory_that_hosts_do_not_share_is_told(begun, tmp_path, monkeypatch):
    """What `peers.agree` is given, by which processes with directories of their own differ."""
    _, run = begun
    monkeypatch.setattr(checkpoint, "SHARED", 0.2)
    opened = checkpoint.read_run(run)["id"]
    assert checkpoint.identity(run, wait=True) == {f"run in {run}": opened}
    late = tmp_path / "late"
    assert checkpoint.identity(late, wait=True) == {f"run in {late}": None}
    monkeypatch.setattr(checkpoint, "SHARED", 60.0)
    shutil.copytree(run, tmp_path / "copied")
    threading.Timer(0.3, (tmp_path / "copied").rename, (late,)).start()  # at once, as by a mount
    assert checkpoint.identity(late, wait=True) == {f"run in {late}": opened}


def test_a_licence_is_known_as_the_card_quotes_it(begun):
    config, run = begun
    (run / "export").mkdir()
    license = 'é "x"'
    (run / "export" / "README.md").write_text(f"---\nlicense: {json.dumps(license)}\n---\n")
    export = dataclasses.replace(config.export, license=license)
    start.check_history(dataclasses.replace(config, export=export), run)


@pytest.mark.parametrize("written", ["", 'license: "mit"', "license: apache-2.0"])
def test_a_licence_that_comes_after_the_card_is_named(begun, written):
    config, run = begun
    (run / "export").mkdir()
    (run / "export" / "README.md").write_text(f"---\n{written}\n---\n")
    export = dataclasses.replace(config.export, license="apache-2.0")
    named = dataclasses.replace(config, export=export)
    start.check_history(config, run)
    if written == "license: apache-2.0":
        start.check_history(named, run)
    else:
        with pytest.raises(ValueError, match=r"README\.md is written already, without it"):
            start.check_history(named, run)


def test_an_export_in_another_dtype_is_named(begun):
    config, run = begun
    (run / "export").mkdir()
    (run / "export" / "config.json").write_text('{"dtype": "bfloat16"}')
    with pytest.raises(ValueError, match=r"in bfloat16.*\n.*convert to-hf .* --dtype float32"):
        start.check_history(config, run)


def resume(config: config_lib.Config, run: Path) -> None:
    checkpoint.open_run(run, start.prepare_start(config, run).description)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("template", r"corpora\.a\.template: '\[CLS\] text \[SEP\]' -> 'text \[SEP\]'"),
        ("text", r"corpora\.a\.documents: 40 -> 50"),
        ("tokenizer", r"corpora\.a\.tokenizer: '[0-9a-f]{12}' -> '[0-9a-f]{12}'"),
        ("shape", r"config\.model\.overrides\.hidden_size: 16 -> 32"),
    ],
)
def test_a_resume_under_other_data_says_what_changed(tmp_path, change, line):
    tiny_run.corpus(tmp_path, "a", 40, seed=1)
    raw = tiny_run.raw_config(tmp_path)
    raw["data"]["sources"] = raw["data"]["sources"][:1]
    resume(config_lib.parse(raw), tmp_path / "run")

    tokenizer, text, options = tmp_path / "tokenizer", tmp_path / "a.jsonl", {}
    if change == "template":
        options["template"] = "text [SEP]"
    elif change == "tokenizer":
        tokenizer = shutil.copytree(tokenizer, tmp_path / "other tokenizer")
        file = tokenizer / "tokenizer.json"
        file.write_text(file.read_text().replace('"w118"', '"word"'))
    elif change == "text":
        tiny_run.corpus(tmp_path, "b", 50, seed=2)
        text = tmp_path / "b.jsonl"
    else:
        raw["model"] = raw["model"] | {"overrides": tiny_run.MODEL | {"hidden_size": 32}}
    seq_len, share = tiny_run.SEQ_LEN, 0.2
    out = tmp_path / "other"
    prepare([str(text)], tokenizer, out, seq_len=seq_len, heldout_fraction=share, **options)
    raw["data"]["sources"][0]["path"] = str(out)
    with pytest.raises(ValueError, match=f"(?s)holds another run.*{line}"):
        resume(config_lib.parse(raw), tmp_path / "run")


# --- averages


def test_the_average_of_the_last_checkpoints_of_a_phase(tmp_path, capsys):
    tiny_run.tokenizer(tmp_path / "a")
    spec = ModelSpec(**tiny_run.MODEL, vocab_size=125, pad_token_id=0)  # pyright: ignore
    config = config_lib.parse(tiny_run.raw_config(tmp_path))  # ends of phases: 6, 10
    description = {"config": config_lib.to_dict(config), "model": spec.to_hf()}
    run = tmp_path / "run"
    checkpoint.open_run(run, description)
    checkpoints = Checkpoints(run, keep=9)
    rng, saved = np.random.default_rng(0), {}
    for step in (4, 6, 8, 9, 10):
        saved[step] = {
            path: np.float32(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4))
            for path, shape in spec.param_shapes().items()
        }
        params = {path: jnp.asarray(array) for path, array in saved[step].items()}
        checkpoints.save(step, params, {"count": jnp.int32(0)}, Origin())
    checkpoints.close()
    averaged, steps = checkpoint.average_params(f"{run}@decay", 3)
    assert steps == [8, 9, 10]
    for path, array in averaged.items():
        exact = np.stack([saved[step][path] for step in steps]).astype(np.longdouble).mean(0)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, exact.astype(np.float32))
    with pytest.raises(ValueError, match=r"phase 'decay' has 3 up to step 10: \[8, 9, 10\]"):
        checkpoint.average_params(f"{run}@decay", 4)  # the fourth is of the other phase

    assert convert(["to-hf", str(run), str(tmp_path / "out"), "--average", "2"]) == 0
    assert "mean of the checkpoints of steps 9, 10" in capsys.readouterr().out
    assert "the mean of those after 9, 10 steps" in (tmp_path / "out" / "README.md").read_text()
    from safetensors.numpy import load_file

    norm = load_file(tmp_path / "out" / "model.safetensors")["model.final_norm.weight"]
    np.testing.assert_allclose(
        norm, (saved[9]["model.final_norm.scale"] + saved[10]["model.final_norm.scale"]) / 2, 1e-7
    )
