"""What is read from compiled programs, against programs small enough to count by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cpt_jax.model.kernels import xla
from launch import hlo
from launch.roofline import received

# One device of eight. The loop turns three times; its all-reduce is over four devices, the permute
# over pairs; the gather outside is over all.
PROGRAM = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[16,8]{1,0})->f32[128,8]{1,0}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%slice (p0: f32[100,8], p1: s32[]) -> bf16[1,8] {
  %p0 = f32[100,8]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,8]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,8}
  ROOT %half = bf16[1,8]{1,0} convert(%row)
}

%body (arg: (s32[], f32[16,8], f32[100,8])) -> (s32[], f32[16,8], f32[100,8]) {
  %arg = (s32[], f32[16,8]{1,0}, /*index=2*/f32[100,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = f32[16,8]{1,0:T(8,128)} get-tuple-element(%arg), index=1
  %table = f32[100,8]{1,0} get-tuple-element(%arg), index=2
  %cut = bf16[1,8]{1,0} fusion(%table, %i), kind=kLoop, calls=%slice
  %r = f32[16,8]{1,0} all-reduce(%x), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add
  %s = (f32[16,8]{1,0}, f32[16,8]{1,0}, u32[], u32[]) collective-permute-start(%r), \
source_target_pairs={{0,1},{1,0}}
  %d = f32[16,8]{1,0} collective-permute-done(%s)
  ROOT %t = (s32[], f32[16,8]{1,0}, f32[100,8]{1,0}) tuple(%i, %d, %table)
}

%condition (arg: (s32[], f32[16,8], f32[100,8])) -> pred[] {
  %c = (s32[], f32[16,8]{1,0}, f32[100,8]{1,0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (input: f32[16,8], rows: f32[100,8]) -> f32[128,8] {
  %input = f32[16,8]{1,0} parameter(0)
  %rows = f32[100,8]{1,0} parameter(1)
  %n = s32[] constant(0)
  %init = (s32[], f32[16,8]{1,0}, f32[100,8]{1,0}) tuple(%n, %input, %rows)
  %loop = (s32[], f32[16,8]{1,0}, f32[100,8]{1,0}) while(%init), condition=%condition, \
body=%body, backend_config={"known_trip_count":{"n":"3"},"other":{"n":"9"}}
  %y = f32[16,8]{1,0} get-tuple-element(%loop), index=1
  %alone = f32[16,8]{1,0} all-reduce(%y), replica_groups={{0},{1},{2},{3}}, to_apply=%add
  ROOT %g = f32[128,8]{1,0} all-gather(%alone), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, \
dimensions={0}
}
"""
ARRAY = 16 * 8 * 4  # bytes of the array that goes round


def test_exchanges_are_counted_as_often_as_they_happen():
    program = hlo.Program(PROGRAM)
    assert program.entry == "main"
    assert program.unknown_loops == []
    found = {(c.kind, c.operand, c.times, c.groups) for c in hlo.collectives(program)}
    assert found == {
        ("all-reduce", ARRAY, 3.0, ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("collective-permute", ARRAY, 3.0, ((0, 1), (1, 0))),
        ("all-gather", ARRAY, 1.0, ((0, 1, 2, 3, 4, 5, 6, 7),)),
    }


@pytest.mark.parametrize(
    ("form", "groups"),
    [
        ("{{0,2},{1,3}}", ((0, 2), (1, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", ((3, 1), (2, 0))),
        ("mesh['a'=1,'b'=4] {'b':(2)2}", ((0, 1), (2, 3))),
        ("mesh['a'=1,'b'=4] {'b':(1)2}", ((0, 2), (1, 3))),
        ("{}", ()),
    ],
)
def test_groups_in_all_forms(form, groups):
    old = "replica_groups={{0,1,2,3,4,5,6,7}}"
    assert old in PROGRAM
    program = hlo.Program(PROGRAM.replace(old, f"replica_groups={form}"))
    assert hlo.collectives(program)[-1].groups == groups


def test_groups_of_an_unknown_form_are_not_all_devices():
    program = hlo.Program(PROGRAM.replace("replica_groups={{0,1,2,3,4,5,6,7}}", "replica_groups=?"))
    with pytest.raises(ValueError, match="unknown form"):
        hlo.collectives(program)


def test_a_loop_of_unknown_length_is_named():
    text = PROGRAM.replace('"known_trip_count":{"n":"3"},', "")
    program = hlo.Program(text)
    assert program.unknown_loops == ["loop"]
    assert {c.times for c in hlo.collectives(program)} == {1.0}


def test_traffic_by_hand():
    """Each turn: a row of the table read and half of it written, 2 arrays of either exchange."""
    turn = (8 * 4 + 4 + 8 * 2) + 2 * ARRAY + 2 * ARRAY
    outside = 2 * ARRAY + ARRAY + 8 * ARRAY
    assert hlo.traffic(hlo.Program(PROGRAM)) == 3 * turn + outside
    marked = PROGRAM.replace("f32[16,8]{1,0} all-reduce(%x)", "f32[16,8]{1,0:S(1)} all-reduce(%x)")
    saved = 3 * (ARRAY + 2 * ARRAY)  # written by the one, read by the other
    assert hlo.traffic(hlo.Program(marked), "S(1)") == 3 * turn + outside - saved
    assert hlo.traffic(hlo.Program(marked)) == 3 * turn + outside


def test_what_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.Program("HloModule m\n")


def ring(kind: str, operand: float, size: int) -> float:
    """Bytes that one of `size` devices receives when the array goes round in a ring."""
    passes = {"all-gather": size - 1, "all-reduce": 2 * (size - 1) / size}
    return operand * passes.get(kind, (size - 1) / size)


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "reduce-scatter", "all-to-all"])
@pytest.mark.parametrize("islands", [1, 2, 4])
def test_islands_receive_together_what_a_ring_does(kind, islands):
    exchange = hlo.Collective(kind, 960.0, (), 1.0)
    near, far = received(exchange, [i * islands // 8 for i in range(8)])
    assert near + far == pytest.approx(ring(kind, 960.0, 8))
    assert (far > 0) == (islands > 1)


def test_only_a_share_goes_between_islands():
    """Two hosts of four: each of the four takes a quarter of the sum to its like."""
    hosts = [0, 0, 0, 0, 1, 1, 1, 1]
    assert received(hlo.Collective("all-reduce", 800.0, (), 1.0), hosts) == (1200.0, 200.0)
    assert received(hlo.Collective("all-gather", 100.0, (), 1.0), hosts) == (600.0, 100.0)
    within = ((0, 1, 2, 3), (4, 5, 6, 7))
    assert received(hlo.Collective("all-reduce", 800.0, within, 1.0), hosts) == (1200.0, 0.0)
    across = ((0, 4), (1, 5), (2, 6), (3, 7))
    assert received(hlo.Collective("reduce-scatter", 800.0, across, 1.0), hosts) == (0.0, 400.0)
    assert received(hlo.Collective("collective-permute", 5.0, ((0, 1),), 1.0), hosts) == (5.0, 0.0)
    assert received(hlo.Collective("collective-permute", 5.0, ((0, 4),), 1.0), hosts) == (0.0, 5.0)


def test_exchanges_of_a_program_that_xla_compiled():
    """A sum over the rows' axis in a loop of 5, a gather over the columns' axis after it."""
    devices = jax.devices()
    if len(devices) < 8:
        pytest.skip("needs eight devices")
    mesh = Mesh(np.array(devices[:8]).reshape(4, 2), ("r", "c"))
    spec = PartitionSpec("r", "c")

    def f(x):
        def turn(_, x):
            return jnp.sin(jax.lax.psum(x, "r"))

        return jax.lax.all_gather(jax.lax.fori_loop(0, 5, turn, x), "c", tiled=True)

    mapped = jax.shard_map(
        f, mesh=mesh, in_specs=spec, out_specs=PartitionSpec("r"), check_vma=False
    )
    argument = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, spec))
    program = hlo.Program(jax.jit(mapped).lower(argument).compile().as_text() or "")
    shard = 16 * 16 * 4
    totals: dict[int, float] = {}
    for exchange in hlo.collectives(program):
        size = len(exchange.groups[0])
        near, far = received(exchange, [0] * 8)
        assert far == 0
        totals[size] = totals.get(size, 0) + exchange.times * near
    assert totals == {4: 5 * 2 * shard * 3 / 4, 2: shard}


LENGTH = 512


def dense(q, k, v, k_start, k_end):
    """Attention with all its scores at once."""
    keys = jnp.arange(q.shape[1])
    seen = (keys >= k_start[..., None]) & (keys < k_end[..., None])
    scores = jnp.where(seen[:, None], jnp.einsum("blhk,bmhk->bhlm", q, k), -1e30)
    return jnp.einsum("bhlm,bmhk->blhk", jax.nn.softmax(scores), v)


def in_blocks(q, k, v, k_start, k_end):
    """The same, with the scores taken apart so that no dimension is the length."""
    blocks = q.reshape(q.shape[0], -1, 64, *q.shape[2:])
    others = k.reshape(k.shape[0], -1, 32, *k.shape[2:])
    scores = jnp.einsum("bnqhk,bmshk->bhnqms", blocks, others)
    weights = jnp.exp(scores - scores.max((-1, -2), keepdims=True))
    values = v.reshape(others.shape)
    return jnp.einsum("bhnqms,bmshk->bnqhk", weights, values).reshape(q.shape)


def row_by_row(*arrays):
    """The same, one row after another, and nothing kept of it."""
    one = jax.checkpoint(lambda row: dense(*(x[None] for x in row))[0])
    return jax.lax.map(one, arrays)


def test_tokens_by_tokens_are_found_and_nothing_else():
    def squares(attend, rows: int) -> list[str]:
        array = jax.ShapeDtypeStruct((rows, LENGTH, 2, 8), jnp.float32)
        bounds = jax.ShapeDtypeStruct((rows, LENGTH), jnp.int32)

        def loss(q, k, v, start, end):
            return attend(q, k, v, start, end).sum()

        step = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
        text = step.lower(array, array, array, bounds, bounds).compile().as_text()
        return hlo.square_buffers(hlo.Program(text or ""), LENGTH, rows)

    def banded(*arrays):
        return xla.banded(*arrays, window=8, causal=False)

    for rows in (1, 3):
        assert squares(dense, rows)
        assert squares(in_blocks, rows)
        assert squares(row_by_row, rows)
        assert squares(xla.flash, rows) == []
        assert squares(banded, rows) == []


def test_only_buffers_are_judged():
    """Three rows of 512: scores in blocks, scores of one row, both inside a fusion, and others."""
    text = """HloModule m

%inside (p: f32[512,16]) -> f32[512,16] {
  %p = f32[512,16]{1,0} parameter(0)
  %hidden = f32[512,512]{1,0} broadcast(%p), dimensions={0,1}
  ROOT %r = f32[512,16]{1,0} reduce(%hidden)
}

ENTRY %main (x: f32[512,16]) -> f32[512,16] {
  %x = f32[512,16]{1,0} parameter(0)
  %blocks = f32[3,8,64,16,32]{4,3,2,1,0} custom-call(%x), custom_call_target="scores"
  %row = pred[512,512]{1,0} custom-call(%x), custom_call_target="mask"
  %logits = f32[3,500,512]{2,1,0} custom-call(%x), custom_call_target="logits"
  ROOT %f = f32[512,16]{1,0} fusion(%x), kind=kLoop, calls=%inside
}
"""
    found = hlo.square_buffers(hlo.Program(text), LENGTH, 3)
    assert [line.partition(":")[0] for line in found] == ["blocks", "row"]


def test_widths_that_look_like_rows_are_not_judged():
    assert hlo.can_tell((768, 2304, 1152, 50368), 8192, 8)
    assert not hlo.can_tell((768, 8192), 8192, 1)
    assert not hlo.can_tell((384,), 256, 2)  # 2 rows x 384 are 3 x 256
    assert hlo.can_tell((384,), 256, 3)
    pairs = itertools.product((1, 64), (8192,))
    assert all(hlo.can_tell((1024, 3072, 2624, 5248, 50368), length, r) for r, length in pairs)
    assert not hlo.can_tell((128, 2048), 512, 1)  # the embedding is as large as a row's scores
