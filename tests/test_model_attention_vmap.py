"""Attention mapped over an axis beside the batch: equal to a loop over it, and a loop of its own.

Rows are of very different lengths, so that their loops have different ends.
"""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from cpt_jax.model.attention import attention
from cpt_jax.model.kernels import batching, gpu, tpu, xla
from cpt_jax.model.ranges import key_ranges
from tests.model_oracle import dense_attention, quick_jit, segments, visible

MAPPED = 3
# Of each of three: a whole row, packed rows, a short one, one of padding alone.
PACKED = np.stack(
    [
        segments([300], [120, 1, 100], length=300),
        segments([7], [], length=300),
        segments([50, 50], [299], length=300),
    ]
)
LAYERS = {
    "flash": (functools.partial(xla.flash, blocks=((64, 1.0),)), None),
    "banded": (functools.partial(xla.banded, window=4, causal=False, block=16), 4),
    "chosen": (functools.partial(attention, window=None, causal=False), None),
    "chosen, local": (functools.partial(attention, window=4, causal=False), 4),
}


def arrays(count, length=300, size=16, dtype=jnp.float32):
    rng = np.random.default_rng(0)
    shape = (*PACKED.shape[:2], length, 2, size)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for _ in range(count)]


def ranges(packed, window):
    return jax.vmap(lambda ids: key_ranges(ids, "bidirectional", window))(jnp.asarray(packed))


def assert_close(got, expected, atol=5e-6):
    for what, one, two in zip(("out", "dq", "dk", "dv"), got, expected, strict=True):
        np.testing.assert_allclose(one, two, atol=atol, err_msg=what)


def with_gradients(layer):
    def run(q, k, v, start, end, d_out):
        out, transpose = jax.vjp(lambda *qkv: layer(*qkv, start, end), q, k, v)
        return out, *transpose(d_out)

    return run


def one_by_one(run, *arguments):
    """The loop over the mapped axis that `jax.vmap` stands for."""
    results = [run(*(x[i] for x in arguments)) for i in range(MAPPED)]
    return [np.stack(result) for result in zip(*results, strict=True)]


@pytest.mark.parametrize("name", LAYERS)
def test_mapped_equals_a_loop_and_the_dense_oracle(name):
    layer, window = LAYERS[name]
    q, k, v, d_out = arrays(4)
    arguments = (q, k, v, *ranges(PACKED, window), d_out)
    got = quick_jit(jax.vmap(with_gradients(layer)))(*arguments)
    assert_close(got, one_by_one(quick_jit(with_gradients(layer)), *arguments))

    def dense(q, k, v, seen, d_out):
        out, transpose = jax.vjp(lambda q, k, v: dense_attention(q, k, v, seen), q, k, v)
        return out, *transpose(d_out)

    seen = np.stack([visible(ids, "bidirectional", window) for ids in PACKED])
    assert_close(got, one_by_one(quick_jit(dense), q, k, v, seen, d_out))


@pytest.mark.parametrize(
    "transform",
    [
        lambda layer: with_gradients(jax.vmap(layer)),  # the gradient of what is mapped
        lambda layer: jax.vmap(with_gradients(jax.checkpoint(layer))),
        lambda layer: jax.vmap(jax.jit(with_gradients(layer))),
    ],
    ids=["grad of vmap", "checkpoint", "jit within"],
)
def test_whatever_the_order_of_transformations(transform):
    layer, window = LAYERS["flash"]
    q, k, v, d_out = arrays(4)
    arguments = (q, k, v, *ranges(PACKED, window), d_out)
    expected = one_by_one(quick_jit(with_gradients(layer)), *arguments)
    assert_close(quick_jit(transform(layer))(*arguments), expected)


def test_what_is_not_mapped_is_shared_and_axes_nest():
    """Queries and gradients of each; keys, values and intervals of all: their gradients add up."""
    layer, _ = LAYERS["flash"]
    q, k, v, d_out = arrays(4)
    start, end = ranges(PACKED, None)

    def run(q, k, v, start, end, d_out):
        out, transpose = jax.vjp(
            lambda q, k, v: jax.vmap(layer, (0, None, None, None, None))(q, k, v, start, end),
            q,
            k,
            v,
        )
        return out, *transpose(d_out)

    one = (q, k[0], v[0], start[0], end[0], d_out)
    out, d_q, d_k, d_v = quick_jit(run)(*one)
    repeated = [jnp.broadcast_to(x, (MAPPED, *x.shape)) for x in one[1:5]]
    expected = one_by_one(quick_jit(with_gradients(layer)), q, *repeated, d_out)
    shared = [x.sum(0) for x in expected[2:]]
    assert_close([out, d_q, d_k, d_v], [*expected[:2], *shared], atol=2e-5)

    twice = jax.vmap(jax.vmap(with_gradients(layer)))
    pairs = [jnp.stack([x, x[::-1]]) for x in (q, k, v, start, end, d_out)]
    got = quick_jit(twice)(*pairs)
    first = one_by_one(quick_jit(with_gradients(layer)), q, k, v, start, end, d_out)
    assert_close([x[0] for x in got], first)
    assert_close([x[1] for x in got], [x[::-1] for x in first])


def test_mapped_on_a_mesh_with_rows_and_heads_divided():
    """`attention` under `jax.set_mesh` has a `shard_map` between the mapping and the kernel."""
    q, k, v, d_out = arrays(4)
    layer, window = LAYERS["chosen"]
    arguments = (q, k, v, *ranges(PACKED, window), d_out)
    expected = one_by_one(quick_jit(with_gradients(layer)), *arguments)
    mesh = jax.make_mesh((2, 1, 2), ("replica", "fsdp", "tensor"), (AxisType.Auto,) * 3)
    with jax.set_mesh(mesh):
        got = quick_jit(jax.vmap(with_gradients(layer)))(*arguments)
    assert_close(got, expected)


def test_mapped_within_a_shard_map_over_the_mapped_axis():
    q, k, v, d_out = arrays(4)
    layer, window = LAYERS["chosen"]
    arguments = (q, k, v, *ranges(PACKED, window), d_out)
    mesh = jax.make_mesh((MAPPED,), ("seeds",), (AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("seeds")
    mapped = jax.shard_map(
        jax.vmap(with_gradients(layer)), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    expected = one_by_one(quick_jit(with_gradients(layer)), *arguments)
    assert_close(quick_jit(mapped)(*arguments), expected)


def loops(jaxpr) -> tuple[set[int], set[tuple]]:
    """Of a program's loops: the known lengths, and for how many at once the others ask to go on."""
    lengths, wishes = set(), set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            lengths.add(equation.params["length"])
        if equation.primitive.name == "while":
            wishes.add(equation.params["cond_jaxpr"].out_avals[0].shape)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            more = loops(inner)
            lengths, wishes = lengths | more[0], wishes | more[1]
    return lengths, wishes


def test_each_row_has_a_loop_of_its_own():
    """The rows of all that is mapped are one loop; without `over_rows` a turn of it is of all."""
    q, k, v, d_out = arrays(4)
    rows = MAPPED * PACKED.shape[1]
    arguments = (q, k, v, *ranges(PACKED, None), d_out)
    layer, _ = LAYERS["flash"]
    program = jax.make_jaxpr(jax.vmap(with_gradients(layer)))(*arguments)
    blocks = -(-300 // 64)
    assert loops(program.jaxpr) == ({rows, blocks}, {()})

    def plain(q, k, v, start, end):
        inputs = xla._blocked(q, k, v, start, end, pad=20)
        return jax.lax.map(lambda row: xla._forward_row(*row, block=64), inputs)

    program = jax.make_jaxpr(jax.vmap(plain))(*arguments[:5])
    assert loops(program.jaxpr) == ({PACKED.shape[1], blocks}, {(MAPPED,)})


def test_over_rows_by_hand():
    """Three numbers a row; the function sees the rows of all, and a shared argument repeated."""
    seen = []

    def add(x, y):
        seen.append((x.shape, y.shape))
        return {"sum": x + y}

    x, y = jnp.arange(24.0).reshape(4, 2, 3), jnp.arange(6.0).reshape(2, 3)
    mapped = jax.vmap(batching.over_rows(add), (0, None))
    np.testing.assert_array_equal(mapped(x, y)["sum"], x + y)
    assert seen[-1] == ((8, 3), (8, 3))


@pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))
@pytest.mark.parametrize("window", [None, 64])
def test_tokamax_is_mapped_as_a_loop(window):
    """By tokamax's own rule, through its dense operator: the GPU's is a grid, without a loop."""
    packed = np.stack([segments([256], [100, 90], length=256)] * MAPPED)
    packed[1] = segments([9], [], length=256)
    how = {"causal": False, "implementation": "xla"}
    layer = functools.partial(gpu.flash, **how)
    if window is not None:
        layer = functools.partial(gpu.local, window=window, **how)
    rng = np.random.default_rng(0)
    shape = (*packed.shape, 2, 16)
    q, k, v, d_out = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for _ in range(4))
    arguments = (q, k, v, *ranges(packed, window), d_out)
    expected = one_by_one(quick_jit(with_gradients(layer)), *arguments)
    assert_close(quick_jit(jax.vmap(with_gradients(layer)))(*arguments), expected)


@pytest.mark.slow
def test_splash_is_mapped_as_a_loop():
    """By Pallas' own rule: the mapped axis is one more of the grid."""
    packed = np.stack([segments([128], length=128), segments([60, 30], length=128)])
    rng = np.random.default_rng(0)
    shape = (*packed.shape, 2, 128)
    q, k, v = (jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for _ in range(3))
    layer = functools.partial(tpu.splash, window=None, causal=False, interpret=True)
    start, end = ranges(packed, None)
    got = jax.jit(jax.vmap(layer))(q, k, v, start, end)
    each = [jax.jit(layer)(q[i], k[i], v[i], start[i], end[i]) for i in range(len(packed))]
    np.testing.assert_array_equal(got, np.stack(each))
