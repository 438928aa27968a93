"""Meshes: what is refused, where everything lies, and that a mesh changes no number."""

import dataclasses
import functools
import math
import re
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from cpt_jax import config, sharding
from cpt_jax.config import LearningRate, Objective, Optimizer, Phase
from cpt_jax.model import modernbert
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training import objectives, optim
from cpt_jax.training.state import State, abstract_state, new_optimizer
from cpt_jax.training.step import abstract_batch, jit_train_step, make_train_step

SPEC = ModelSpec(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,  # a global layer and a local one
    num_attention_heads=4,
    local_attention=8,
    max_position_embeddings=64,
    attention_bias=True,
    embedding_dropout=0.1,
    attention_out_dropout=0.1,
    mlp_dropout=0.1,
    pad_token_id=0,
    cls_token_id=1,
    sep_token_id=2,
    bos_token_id=3,
    eos_token_id=4,
)
VOCABULARY = objectives.Vocabulary(size=120, mask_id=4, special_ids=(0, 1, 2, 3, 4))
ROWS, LENGTH, STEPS = 16, 40, 10
MESHES = {
    "dp": config.Mesh(),
    "fsdp": config.Mesh(replica=1, fsdp=None),
    "tensor": config.Mesh(replica=2, tensor=4),
    "mixed": config.Mesh(replica=2, fsdp=2, tensor=2),
}
CASES: list[tuple[Objective, int]] = [("mlm", 1), ("clm", 2)]  # objective and micro-batches


def rows(step: int) -> dict[str, np.ndarray]:
    """Packed rows with padding at their ends, of uneven numbers of targets."""
    rng = np.random.default_rng(step)
    segments = np.sort(rng.integers(1, 4, (ROWS, LENGTH)), axis=1).astype(np.int32)
    segments[np.arange(LENGTH) >= LENGTH - rng.integers(0, 20, (ROWS, 1))] = 0
    ids = np.where(segments > 0, rng.integers(5, 120, (ROWS, LENGTH)), 0).astype(np.int32)
    ordinals = np.arange(step * ROWS, (step + 1) * ROWS, dtype=np.uint32)
    return {"input_ids": ids, "segment_ids": segments, "ordinals": ordinals}


def program(mesh, objective: Objective, microbatches: int):
    """A step that is compiled for a mesh, and its abstract state."""
    phase = Phase(
        name="phase",
        objective=objective,
        mask_rate=0.3 if objective == "mlm" else None,
        tokens=10**6,
        batch_size=ROWS,
        microbatches=microbatches,
        learning_rate=LearningRate("warmup_constant", 1e-3),
    )
    # A large eps: Adam divides by the root of the second moment, which for an entry whose gradients
    # are rounding errors alone makes a whole step of them.
    tx = optim.make_tx(Optimizer(weight_decay=1e-3, clip_norm=1.0, eps=1e-3), 1e-3)
    step = make_train_step(
        modernbert.structure(SPEC),
        phase,
        tx,
        first_step=0,
        tokens_per_step=ROWS * LENGTH,
        vocabulary=VOCABULARY,
        frozen=frozenset(),
        seed=0,
    )
    state = abstract_state(SPEC.param_shapes(), tx, mesh)
    return jit_train_step(step, state), state, tx


class Trained(NamedTuple):
    """What ten steps gave."""

    losses: list[float]
    first: dict[str, np.ndarray]  # moments, a tenth of the first step's gradients
    state: State
    program: str  # compiled, for one device
    donated: int  # bytes of a device's arguments that its results are written over


@functools.cache
def trained(name: str | None, objective: Objective, microbatches: int) -> Trained:
    """Ten steps on one of `MESHES`, or on one device."""
    if name is None:
        mesh = sharding.make_mesh(jax.devices()[:1])
    else:
        mesh = sharding.make_mesh(axes=MESHES[name])
    step, abstract, tx = program(mesh, objective, microbatches)
    with jax.set_mesh(mesh):
        drawn = modernbert.init_params(SPEC, jax.random.key(0))
        placed = sharding.placement(mesh, SPEC.param_shapes()).params
        where = sharding.named(mesh, placed)
        abstract = abstract._replace(params=sharding.place(drawn, where))
        zero = sharding.number(mesh, np.int32(0))
        state = State(zero, abstract.params, new_optimizer(tx, abstract))
        step = step.lower(state, abstract_batch(mesh, ROWS, LENGTH)).compile()
        losses, first = [], {}
        for number in range(STEPS):
            state, metrics = step(state, sharding.place_batch(mesh, rows(number)))
            losses.append(float(metrics["loss"]))
            first = first or jax.device_get(adam_of(state).mu)
    donated = step.memory_analysis().alias_size_in_bytes
    return Trained(losses, first, state, step.as_text(), donated)


def adam_of(state: State) -> Any:
    """Adam's part of the optimizer's state: count, mu and nu."""
    chain: Any = state.opt_state
    return chain[1]


def largest_error(ours, expected) -> float:
    """Over all arrays, relative to the largest entry of each."""
    errors = jax.tree.map(
        lambda a, b: np.abs(np.asarray(a) - b).max() / np.abs(b).max(), ours, expected
    )
    return max(jax.tree.leaves(errors))


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize(("objective", "microbatches"), CASES)
def test_a_mesh_changes_no_number(name, objective, microbatches):
    """Loss, gradients, parameters and moments of ten steps, next to those of one device.

    fp32 sums in another order: 1e-5 of each tensor's largest entry.
    """
    losses, first, state, *_ = trained(None, objective, microbatches)
    expected = jax.device_get(state)
    ours, gradients, state, *_ = trained(name, objective, microbatches)
    assert losses[0] != losses[-1]
    np.testing.assert_allclose(ours, losses, rtol=1e-6)
    assert largest_error(gradients, first) < 1e-5
    assert largest_error(jax.device_get(state.params), expected.params) < 1e-5
    adam, expected_adam = jax.device_get(adam_of(state)), adam_of(expected)
    assert (adam.count, expected_adam.count, state.step) == (STEPS, STEPS, STEPS)
    assert largest_error(adam.mu, expected_adam.mu) < 1e-5
    assert largest_error(adam.nu, expected_adam.nu) < 1e-5


# Where each parameter and its moments lie, written out by hand: the parameter; its moments on a
# mesh with fsdp; and without, where an axis of one device may be named or not.
EMBEDDING = WO = (
    ("tensor", "fsdp"),
    ("tensor", ("fsdp", "replica")),
    (("tensor", "replica"), None),
)
FUSED = ((("fsdp", "tensor"),), (("fsdp", "tensor", "replica"),), (("tensor", "replica"),))
VECTORS = (
    "model.embeddings.norm.scale",
    "model.layers.1.attn_norm.scale",
    "model.layers.{}.attn.Wqkv.bias",
    "model.layers.{}.attn.Wo.bias",
    "model.layers.{}.mlp_norm.scale",
    "model.final_norm.scale",
    "head.norm.scale",
    "decoder.bias",
)
BY_HAND = {
    "model.embeddings.tok_embeddings.embedding": EMBEDDING,
    "model.layers.{}.attn.Wqkv.kernel": FUSED,
    "model.layers.{}.attn.Wo.kernel": WO,
    "model.layers.{}.mlp.Wi.kernel": FUSED,
    "model.layers.{}.mlp.Wo.kernel": WO,
    "head.dense.kernel": (
        ("fsdp", "tensor"),
        (("fsdp", "replica"), "tensor"),
        ("replica", "tensor"),
    ),
    **dict.fromkeys(VECTORS, ((), (), ())),
}


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize(("objective", "microbatches"), CASES)
def test_where_everything_lies_after_a_step(name, objective, microbatches):
    """Every parameter and moment that the compiled step returns, and its bytes on a device.

    Each is written over the one that the step was given.
    """
    run = trained(name, objective, microbatches)
    state, leaves = run.state, jax.tree.leaves(run.state)
    assert run.donated == sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    assert isinstance(state.step.sharding, NamedSharding)
    mesh = state.step.sharding.mesh
    expected = {path.format(layer): spec for path, spec in BY_HAND.items() for layer in range(2)}
    assert state.params.keys() == expected.keys()
    adam = adam_of(state)
    for path, (where, with_fsdp, without) in expected.items():
        spread = with_fsdp if mesh.shape["fsdp"] > 1 else without
        for leaf, spec in (
            (state.params[path], where),
            (adam.mu[path], spread),
            (adam.nu[path], spread),
        ):
            assert leaf.sharding.is_equivalent_to(NamedSharding(mesh, P(*spec)), leaf.ndim), path
            axes = [a for dim in spec for a in ((dim,) if isinstance(dim, str) else dim or ())]
            cut = np.prod([mesh.shape[axis] for axis in axes])
            sizes = {shard.data.size for shard in leaf.addressable_shards}
            assert sizes == {leaf.size / cut}, path
    assert adam.count.sharding.is_fully_replicated
    assert state.step.sharding.is_fully_replicated


@pytest.mark.parametrize("name", MESHES)
def test_no_device_holds_all_rows_or_all_heads(name):
    """Of activations, each buffer of the compiled step holds the device's rows alone.

    And of the channels of q, k and v and of the gated unit, its share over tensor.
    """
    text = trained(name, *CASES[0]).program
    mesh = sharding.make_mesh(axes=MESHES[name])
    rows, tensor = ROWS // sharding.batch_shards(mesh), mesh.shape["tensor"]
    shapes = {tuple(map(int, s.split(","))) for s in re.findall(r"f32\[([\d,]+)\]", text)}

    def per_token(rows):
        """What is left of shapes that begin with so many rows of tokens, however written."""
        lead = ((rows, LENGTH), (rows * LENGTH,))
        return {s[len(n) :] for s in shapes for n in lead if s[: len(n)] == n and len(s) > len(n)}

    assert (32,) in per_token(rows), "the search is broken"
    assert not per_token(ROWS)
    sizes = {math.prod(shape) for shape in per_token(rows)}
    assert {96 // tensor, 48 // tensor} <= sizes  # q, k and v or input and gate; the gated unit
    assert tensor == 1 or 96 not in sizes
    if tensor == 1:  # what moves are weights, and numbers
        moved = re.findall(r"= (.*?) (?:all-\w+|reduce-scatter|collective-permute)\(", text)
        assert any("[48,32]" in shapes for shapes in moved), "the search is broken"
        assert not [shapes for shapes in moved if f"[{rows},{LENGTH}," in shapes]


def test_where_parameters_are_kept_changes_no_bit_of_a_gradient():
    """Replicas and fsdp spread the rows alike and add them up in one order.

    Later steps differ in the last bit: a norm over all gradients is added up as they are cut.
    """
    for case in CASES:
        dp, fsdp = (trained(name, *case) for name in ("dp", "fsdp"))
        assert dp.losses[0] == fsdp.losses[0]
        for path, gradient in dp.first.items():
            np.testing.assert_array_equal(fsdp.first[path], gradient, err_msg=path)


# --- what is refused


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"tensor": 3}, r"config\.mesh\.tensor: 3 .* devices, 8; allowed: 1, 2, 4, 8$"),
        ({"replica": 16}, r"config\.mesh\.replica: 16 does not divide"),
        ({"replica": 2, "fsdp": 2}, r"replica=2 x fsdp=2 x tensor=1 are 4 devices, and .* 8;"),
        ({"fsdp": 4, "tensor": 4}, r"fsdp=4 x tensor=4 are 16, which does not divide .* 8;"),
    ],
)
def test_sizes_that_are_not_the_devices(axes, message):
    with pytest.raises(ValueError, match=message):
        sharding.make_mesh(axes=config.Mesh(**axes))


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ({}, (8, 1, 1)),
        ({"tensor": 2}, (4, 1, 2)),
        ({"replica": 1, "fsdp": None}, (1, 8, 1)),
        ({"replica": 2, "fsdp": None, "tensor": 2}, (2, 2, 2)),
        ({"replica": 8}, (8, 1, 1)),
    ],
)
def test_none_takes_what_the_others_leave(axes, shape):
    mesh = sharding.make_mesh(axes=config.Mesh(**axes))
    assert mesh.devices.shape == shape
    assert mesh.axis_names == ("replica", "fsdp", "tensor")
    assert set(mesh.devices.flat) == set(jax.devices())


SHAPES = {"a.kernel": (8, 12), "a.bias": (12,), "b.kernel": (8, 6)}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"*.kernel": P("fsdp"), "c.*": P()}, r"match no parameter: 'c\.\*'"),
        ({"*.kernel": P("fsdp"), "a.*": P()}, r"a\.kernel is named by two rules: .*kernel', 'a\."),
        ({"a.kernel": P("fsdp")}, r"b\.kernel \[8, 6\] is named by no rule"),
        (
            {"*.kernel": P(None, ("fsdp", "tensor"))},
            r"b\.kernel \[8, 6\]: 6 \(dimension 1\) .*config\.mesh's fsdp=2 x tensor=2",
        ),
        (
            {"*.kernel": P("fsdp"), "a.bias": P(None, "fsdp")},
            r"a\.bias \[12\] has fewer dimensions",
        ),
    ],
)
def test_rules_that_do_not_fit(rules, message):
    mesh = sharding.make_mesh(axes=MESHES["mixed"])
    with pytest.raises(ValueError, match=message):
        sharding.placement(mesh, SHAPES, rules)


def test_a_model_that_the_mesh_cannot_cut():
    """Heads, which no shape tells of; and each kind of matrix once, not once a layer."""
    mesh = sharding.make_mesh(axes=config.Mesh(tensor=8))
    with pytest.raises(
        ValueError, match=r"mesh\.tensor: 8 .* 4 attention heads; allowed: 1, 2, 4$"
    ):
        sharding.check_model(mesh, SPEC.param_shapes(), SPEC.num_attention_heads)
    shapes = {**SPEC.param_shapes(), "head.dense.kernel": (36, 32)}
    shapes |= {f"model.layers.{i}.mlp.Wo.kernel": (44, 32) for i in range(2)}
    with pytest.raises(
        ValueError, match=r"mlp\.Wo\.kernel \[44, 32\]: 44 \(dim.*tensor=8"
    ) as error:
        sharding.check_model(mesh, shapes, 8)
    assert str(error.value).count("mlp.Wo.kernel") == 1


def test_an_untied_decoder_is_cut_too():
    untied = {**SPEC.param_shapes(), "decoder.kernel": (32, 128)}
    placed = sharding.placement(sharding.make_mesh(axes=MESHES["mixed"]), untied)
    assert placed.params["decoder.kernel"] == P("fsdp", "tensor")


def test_moments_stay_whole_where_no_dimension_divides():
    mesh = sharding.make_mesh(jax.devices()[:5])
    placed = sharding.placement(mesh, {"a.kernel": (8, 12)}, {"*.kernel": P("fsdp")})
    assert placed.moments["a.kernel"] == P("fsdp")


# --- which devices are neighbours


@dataclasses.dataclass(frozen=True)
class Device:
    """As much of a device as is looked at."""

    id: int
    process_index: int
    slice_index: int = 0
    platform: str = "gpu"
    device_kind: str = "NVIDIA H100 80GB HBM3"


def test_inner_axes_stay_within_a_host():
    """Two hosts of four, handed over in no order."""
    devices = [Device(i, i // 4) for i in (3, 6, 0, 5, 7, 1, 2, 4)]
    hosts = np.vectorize(lambda device: device.process_index)(sharding.arrange((2, 2, 2), devices))
    assert hosts.tolist() == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]


def test_inner_axes_stay_within_a_slice():
    """Four slices of four: over replica as far as it goes, then over fsdp, never over tensor."""
    devices = [Device(i, i // 2, slice_index=i // 4) for i in range(16)]
    slices = np.vectorize(lambda device: device.slice_index)

    def of(*shape):
        return slices(sharding.arrange(shape, devices)).reshape(shape)

    assert [set(row.flat) for row in of(4, 2, 2)] == [{0}, {1}, {2}, {3}]
    assert all(len(set(group)) == 1 for group in of(2, 4, 2).reshape(8, 2))
    assert [set(row.flat) for row in of(2, 4, 2)] == [{0, 1}, {2, 3}]
    three = [Device(i, i, slice_index=i // 4) for i in range(12)]
    with pytest.raises(ValueError, match=r"'tensor': 2.* over 3 slices evenly; .* multiple of 3$"):
        sharding.arrange((2, 2, 2), three)


def test_hosts_that_tensor_joins_read_the_same_rows(monkeypatch):
    def part(shape, per_host, process=0):
        devices = [Device(i, i // per_host) for i in range(8)]
        mesh = jax.sharding.Mesh(np.array(devices).reshape(shape), sharding.AXES)
        monkeypatch.setattr(jax, "process_index", lambda: process)
        return sharding.host_part(mesh)

    assert part((8, 1, 1), 8) == (0, 1)
    assert [part((4, 2, 1), 2, process) for process in range(4)] == [(i, 4) for i in range(4)]
    assert [part((2, 1, 4), 2, process) for process in range(4)] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    with pytest.raises(ValueError, match="hosts share some rows and not others"):
        part((4, 1, 2), 3)
