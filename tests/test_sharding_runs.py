"""Whole runs on meshes: where they start from, go on, fork and end, to the bit."""

import contextlib
import copy
import json
import shutil
from typing import Any

import jax
import numpy as np
import pytest
import tiny_run
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from safetensors.numpy import load_file

from cpt_jax import config, sharding
from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training import loop
from cpt_jax.training.start import initial_params

CUT = {"replica": 1, "fsdp": 4, "tensor": 2}
WQKV = "model.layers.1.attn.Wqkv.kernel"  # [16, 48]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Three steps of CLM and two of MLM, of eight rows."""
    root = tmp_path_factory.mktemp("corpora")
    tiny_run.corpus(root, "a", 150, seed=1)
    tiny_run.corpus(root, "b", 40, seed=2)
    raw = tiny_run.raw_config(root)
    for phase, steps in zip(raw["phases"], (3, 2), strict=True):
        phase |= {"batch_size": 8, "tokens": steps * 8 * tiny_run.SEQ_LEN}
        # Adam's steps of entries whose gradients are rounding errors alone: see test_sharding.
        phase["learning_rate"] |= {"peak": 1e-3}
    raw["optimizer"]["eps"] = 1e-3
    raw["evaluation"] |= {"every_steps": 5, "batch_size": 8}
    raw["checkpoint"] = {"every_steps": 1, "keep": 9}
    return raw


def on(raw, axes=None, **fields):
    return {**copy.deepcopy(raw), "mesh": axes or {}, **fields}


@pytest.fixture(scope="module")
def one_device(raw, tmp_path_factory):
    return tiny_run.train(on(raw), tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="module")
def stopped(raw, tmp_path_factory):
    """A run on eight replicas that was stopped after its second step."""
    workdir = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(loop.Stopped):
        tiny_run.train(on(raw), workdir, devices=8, stop=lambda step: step == 2)
    return workdir


def begun(raw, workdir, devices) -> loop.State:
    """The state that a run begins with, or goes on from, on a mesh."""
    run = config.parse(raw)
    prepared = loop.prepare(run, workdir, sharding.make_mesh(jax.devices()[:devices], run.mesh))
    with contextlib.ExitStack() as ends:
        for closes in (prepared.closing, prepared.checkpoints, prepared.log, prepared.progress):
            ends.callback(closes.close)
        return prepared.state


def adam_of(state: loop.State) -> Any:
    """Adam's part of the optimizer's state: count, mu and nu."""
    chain: Any = state.opt_state
    return chain[1]


def named(state: loop.State) -> dict[str, np.ndarray]:
    """Everything of a state, as `tiny_run.state` names it but for the punctuation."""
    adam = adam_of(state)
    trees = {"params": state.params, "mu": adam.mu, "nu": adam.nu}
    leaves = {f"{kind} {path}": leaf for kind, tree in trees.items() for path, leaf in tree.items()}
    return jax.device_get({**leaves, "count": adam.count})


def saved(run, step) -> dict[str, np.ndarray]:
    """A checkpoint by the same names, read without the run's code."""
    found = {}
    for key, array in tiny_run.state(run, step).items():
        words = key.replace("'", "").replace("]", "").split("[")[1:]
        found["count" if words[-1] == "count" else " ".join(words[-2:])] = array
    return found


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("devices", "axes"), [(8, CUT), (8, {"replica": 2, "fsdp": 2, "tensor": 2}), (1, {})]
)
def test_restored_on_another_mesh(raw, stopped, devices, axes):
    """Parameters, both moments and the count, bit by bit; straight to where they belong."""
    state = begun(on(raw, axes), stopped, devices)
    assert state.step == 2
    assert_same(named(state), saved(stopped, 2))
    assert isinstance(state.step.sharding, NamedSharding)
    mesh = state.step.sharding.mesh
    assert mesh.size == devices
    moments = (("fsdp", "tensor", "replica"),)
    for leaf, spec in (
        (state.params[WQKV], P(("fsdp", "tensor"))),
        (adam_of(state).mu[WQKV], P(*moments)),
        (adam_of(state).nu[WQKV], P(*moments)),
    ):
        assert leaf.sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)


def test_goes_on_over_three_meshes(raw, one_device, stopped, tmp_path):
    """Eight replicas, then fsdp and tensor through the phase boundary, then all three axes.

    The one-device run's losses and parameters (fp32 sums in another order), and an export that is
    bit by bit what the last checkpoint holds.
    """
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    with pytest.raises(loop.Stopped):
        tiny_run.train(on(raw, CUT), run, devices=8, stop=lambda step: step == 4)
    tiny_run.train(on(raw, {"fsdp": 2, "tensor": 2}), run, devices=8)
    ours, expected = (tiny_run.metrics(which, "train") for which in (run, one_device))
    assert [line["rows"] for line in ours] == [line["rows"] for line in expected]
    for key in ("loss", "grad_norm", "update_norm", "lr"):
        np.testing.assert_allclose(
            [line[key] for line in ours], [line[key] for line in expected], rtol=1e-5
        )
    ours, expected = (saved(which, 5) for which in (run, one_device))
    for name, array in expected.items():
        assert np.abs(ours[name] - array).max() <= 1e-5 * np.abs(array).max(), name
    exported = load_file(run / "export" / "model.safetensors")
    for name, array in ours.items():
        kind, _, path = name.partition(" ")
        if kind == "params":
            tensor = exported.pop(hub.hf_name(path))
            np.testing.assert_array_equal(tensor.T if path.endswith(".kernel") else tensor, array)
    assert not exported


def test_starts_and_forks_are_placed_as_they_are(raw, one_device, tmp_path):
    """Drawn at random, read from a Hugging Face directory, and continued with its moments."""
    state = begun(on(raw, CUT), tmp_path / "drawn", 8)
    spec = ModelSpec.from_hf(json.loads((one_device / "config.json").read_text())["model"])
    drawn = initial_params(config.parse(raw), spec)
    assert_same(jax.device_get(state.params), jax.device_get(drawn))

    pretrained = {"source": str(one_device)}
    model = {**raw["model"], "size": None, "overrides": {}}
    state = begun(on(raw, CUT, init=pretrained, model=model), tmp_path / "pretrained", 8)
    assert_same(jax.device_get(state.params), hub.load_params(one_device, spec))
    assert state.params[WQKV].sharding.shard_shape((16, 48)) == (2, 48)

    fork = {"source": f"{one_device}@clm", "state": "params+opt_state"}
    again = on(raw, CUT, init=fork, model=model, phases=raw["phases"][1:])
    state = begun(again, tmp_path / "fork", 8)
    assert state.step == 0
    assert_same(named(state), saved(one_device, 3))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"tensor": 4}, r"config\.mesh\.tensor: 4 does not divide the model's 2 attention heads"),
        (
            {"fsdp": None, "replica": 1, "tensor": 1},
            r"4 rows cannot be spread evenly over .* 8; allowed: multiples of 8",
        ),
        ({"fsdp": 5}, r"config\.mesh\.fsdp: 5 does not divide the number of devices, 8"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused_before_anything_is_written(raw, tmp_path, axes, message):
    run = on(raw, axes)
    run["phases"][0]["batch_size"] = 4
    with pytest.raises(ValueError, match=message):
        tiny_run.train(run, tmp_path / "run", devices=8)
    assert not (tmp_path / "run").exists()
