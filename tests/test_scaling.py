"""`launch.scaling`: layouts compiled and timed on this CPU's devices, and the arithmetic around."""

import dataclasses
import functools
import importlib.util
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import tiny_run

from cpt_jax import config
from cpt_jax.model import modernbert
from launch import layouts, roofline, scaling, scaling_lines, scaling_table, topologies
from launch.scaling_lines import Ask, Line
from launch.topologies import CHIPS, GIB, Topology

LENGTH = 512
PREDICT, TIME = Ask(True, 0.5, 1), Ask(False, 0.5, 2)
OVERRIDES = {**tiny_run.MODEL, "vocab_size": 125, "max_position_embeddings": LENGTH}
WIDER = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
}


def experiment(**phase) -> layouts.Experiment:
    """A tiny model at a length at which its widths are no multiple of it."""
    raw = tiny_run.raw_config(tiny_run.Path("/nowhere"))
    raw["data"]["seq_len"] = LENGTH
    raw["model"]["overrides"] = OVERRIDES
    raw["phases"][0] |= phase
    return scaling_lines.experiment(config.parse(raw), None, None)


def topology(count: int, memory: float = GIB) -> Topology:
    """Some CPU devices with an H100's data and as much memory."""
    chip = dataclasses.replace(CHIPS["h100"], memory=memory, usable=1.0)
    return Topology(f"cpu:{count}", chip, jax.devices()[:count])


def layout(**fields) -> layouts.Layout:
    """One row on each device, all of them on replica."""
    return dataclasses.replace(layouts.Layout(config.Mesh(), 1, 1, False, None), **fields)


def lines(what, where, how, rows: str = "1", ask: Ask = PREDICT) -> list[Line]:
    """All lines of a layout."""
    return list(scaling_lines.lines(what, where, how, rows, ask))


@functools.cache
def compiled() -> layouts.Compiled:
    """The tiny step for four devices."""
    return layouts.compile_layout(experiment(), layout(), topology(4))


@functools.cache
def line_of_four() -> Line:
    """Its line, compiled as any other."""
    (line,) = lines(experiment(), topology(4), layout())
    return line


def num_params() -> tuple[int, int]:
    """Of the tiny model's matrices, and of its vectors, counted on arrays."""
    params = modernbert.init_params(experiment().spec, jax.random.key(0)).values()
    matrices = sum(leaf.size for leaf in params if leaf.ndim > 1)
    return matrices, sum(leaf.size for leaf in params) - matrices


def test_a_layout_is_compiled_and_predicted():
    what, line = experiment(), line_of_four()
    assert line.fits
    assert (line.devices, line.mesh, line.rows) == (4, "4x1x1", 1)
    matrices, vectors = num_params()
    # Parameters; two moments, of matrices a quarter; step and count.
    assert line.state == 4 * (matrices + vectors) + 8 * (matrices // 4 + vectors) + 2 * 4
    assert line.square == "none"
    # Gradients are summed over all four devices (once or twice their size, by how a compiler does
    # it), and new parameters collected from them.
    assert line.received is not None
    assert line.received >= 2 * 3 / 4 * 4 * (matrices + vectors)
    assert line.received < 4 * 3 / 4 * 4 * (matrices + vectors)
    assert line.network == 0
    assert line.flops == what.flops(1)[0]
    assert line.seconds is not None
    assert line.tokens_per_second == pytest.approx(4 * LENGTH / line.seconds)
    assert line.weak is not None
    assert line.overlapped is not None
    assert 0 < line.weak < 1
    assert line.weak <= line.overlapped <= 1


def test_the_compiled_step_takes_and_keeps_what_was_placed():
    what = experiment()
    rows = 2 * LENGTH * 4  # of a device: ids and documents of one row; its ordinal is not read
    assert compiled().executable.memory_analysis().argument_size_in_bytes == compiled().state + rows
    (state, _), _ = compiled().executable.input_shardings
    kept = compiled().executable.output_shardings[0]
    shapes = jax.tree.leaves(what.spec.param_shapes(), is_leaf=lambda x: isinstance(x, tuple))
    for before, after, shape in zip(
        state.params.values(), kept.params.values(), shapes, strict=True
    ):
        assert before.is_equivalent_to(after, len(shape))


def dense(q, k, v, k_start, k_end, *, window, causal, **_):
    """Attention with all its scores at once, in the place of the model's."""
    keys = jnp.arange(q.shape[1])
    seen = (keys >= k_start[..., None]) & (keys < k_end[..., None])
    scores = jnp.where(seen[:, None], jnp.einsum("blhk,bmhk->bhlm", q, k), -1e30)
    return jnp.einsum("bhlm,bmhk->blhk", jax.nn.softmax(scores), v)


def test_tokens_by_tokens_are_reported(monkeypatch):
    monkeypatch.setattr(modernbert, "attention", dense)
    (line,) = lines(experiment(), topology(1), layout())
    assert str(LENGTH) in (line.square or "")
    assert "TOKENS x TOKENS" in scaling_table.text(line)


def test_what_does_not_fit_is_said_and_the_largest_found(monkeypatch):
    """One real program; the memory that each number of rows needs is made up."""
    real = compiled()

    def needing(_, how, __):
        return dataclasses.replace(real, need=1000.0 + 100 * how.rows)

    monkeypatch.setattr(layouts, "compile_layout", needing)
    found = lines(experiment(), topology(4, memory=2250), layout(), scaling_lines.LARGEST)
    assert max(line.rows for line in found if line.fits) == 12
    (too_large,) = lines(experiment(), topology(4, memory=2250), layout(), "13")
    assert not too_large.fits
    assert too_large.need == 2300
    assert too_large.seconds is None
    assert too_large.note == "out of memory"


@pytest.mark.parametrize(
    "said",
    [
        "in memory space hbm. Used 31.50G of 15.75G hbm. Exceeded hbm capacity by 15.75G.",
        # libtpu 0.0.42
        "on HBM, the total memory required for HLO temporaries (31.50G) exceeds available HBM",
    ],
)
def test_the_compilers_own_refusal_is_a_line(said, monkeypatch):
    message = f"RESOURCE_EXHAUSTED: Ran out of memory {said}"

    class Refused:
        def lower(self, *_):
            raise jax.errors.JaxRuntimeError(message)

    prepare = layouts._prepare
    monkeypatch.setattr(layouts, "_prepare", lambda *a: (Refused(), *prepare(*a)[1:]))
    (line,) = lines(experiment(), topology(1), layout())
    assert not line.fits
    assert line.need == 31.5 * GIB
    message = "INTERNAL: something else"
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        lines(experiment(), topology(1), layout())


def test_a_layout_that_cannot_be_is_a_line_with_the_reason():
    for fields, reason in (
        ({"mesh": config.Mesh(3, 1, 1)}, "does not divide the number of devices, 4"),
        ({"mesh": config.Mesh(1, 1, 4)}, "does not divide the model's 2 attention heads"),
        ({"attention": "splash"}, "it needs a TPU"),
    ):
        (line,) = lines(experiment(), topology(4), layout(**fields))
        assert not line.fits
        assert line.note.startswith("refused: ")
        assert reason in line.note


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("first", [1, 30])
@pytest.mark.parametrize("limit", [3.0, 10.0, 72.0, 1000.0])
def test_the_search_is_right_and_short(limit, first, known):
    """Memory 2 + 0.7 rows, with a step as XLA's own recomputation makes one."""

    def need(rows: int) -> float:
        return 2 + 0.7 * rows - (1.5 if rows > 20 else 0)

    search, asked = layouts.Search(limit, first), []
    best = 0
    while (rows := search.next_rows()) is not None:
        asked.append(rows)
        fits = need(rows) <= limit
        best = max(best, rows) if fits else best
        search.learn(rows, fits, need(rows) if known or fits else None)
    right = max((rows for rows in range(1, 2000) if need(rows) <= limit), default=0)
    assert best == right
    assert len(asked) <= layouts.SEARCH
    assert len(set(asked)) == len(asked)


def test_the_search_takes_no_line_at_its_word():
    """2 + 0.7 rows: 11 rows fit 10, and that 12 do not is asked."""
    search, asked = layouts.Search(10.0), []
    while (rows := search.next_rows()) is not None:
        asked.append(rows)
        search.learn(rows, 2 + 0.7 * rows <= 10, 2 + 0.7 * rows)
    assert asked == [1, 3, 11, 12]


def test_nothing_fits():
    search = layouts.Search(1.0)
    assert search.next_rows() == 1
    search.learn(1, False, None)
    assert search.next_rows() is None


def test_roofline_by_hand():
    chip = dataclasses.replace(CHIPS["h100"], hbm=1e12, link=1e11, network=1e10)
    work = roofline.Work(flops=3e14, recomputed=1e14, traffic=4e11, link=4e10, network=4e9)
    found = roofline.predict(work, chip, peak=1e15, attained=0.5)
    assert (found.compute, found.memory) == (0.8, 0.5)
    assert found.exchange == pytest.approx(0.5 + 0.5)
    assert found.seconds == pytest.approx(1.8)
    assert found.overlapped == pytest.approx(1.0)
    assert found.mfu == pytest.approx(3e14 / 1.8 / 1e15)
    assert found.weak == pytest.approx(0.8 / 1.8)


def test_strong_scaling_by_hand():
    """Alone 0.8 s for 4 rows, exchanges 1 s: 0.2 s a row."""
    found = roofline.Prediction(compute=0.8, memory=0.5, exchange=1.0, mfu=0.0, weak=0.0)
    compiled = {"rows": 4, "microbatches": 1}

    def strong(batch: int, shards: int) -> float | None:
        return roofline.strong_scaling(found, batch=batch, shards=shards, **compiled)

    assert strong(32, 8) == pytest.approx(0.8 / 1.8)
    assert strong(64, 8) == pytest.approx(1.6 / 3.6)  # two pieces, each with its exchanges
    assert strong(12, 8) == pytest.approx(1.5 * 0.2 / (2 * 0.2 + 1))  # some wait for two rows
    assert strong(4, 8) is None


def test_flops_know_documents_and_objective():
    whole = experiment()
    cut = dataclasses.replace(whole, document=LENGTH // 4)
    assert cut.segment_ids(1).max() == 4
    assert cut.flops(1)[0] < whole.flops(1)[0]
    assert whole.flops(6)[0] == 6 * whole.flops(1)[0]
    masked = experiment(name="mlm", objective="mlm", mask_rate=0.3)
    head = 3 * 2 * (LENGTH - 1 - round(0.3 * LENGTH)) * 16 * (16 + 125)
    causal = whole.flops(1)[0] - masked.flops(1)[0]
    assert causal < head  # which sees half of the keys only


def test_steps_are_timed_on_devices_that_are_there():
    what, where = experiment(), topologies.present_topology()
    (line,) = lines(what, where, layout(microbatches=2), ask=TIME)
    assert line.measured
    assert line.devices == len(jax.devices())
    assert line.seconds is not None
    assert line.seconds > 0
    assert line.tokens_per_second == pytest.approx(2 * line.devices * LENGTH / line.seconds)
    assert (line.mfu, line.memory, line.weak) == (None, None, None)  # a CPU's peak is not known


def test_names_of_topologies():
    assert len(topologies.open_topology("cpu:4").devices) == 4
    for name, message in (
        ("h100", "not one of"),
        ("b200:1x1x8", "not one of"),
        ("v5e:4x", "not one of"),
        ("cpu:99", "8 CPU devices"),
        ("h100:2x8", "SLICESxHOSTSxGPUS"),
    ):
        with pytest.raises(ValueError, match=message):
            topologies.open_topology(name)
    with pytest.raises(ValueError, match="add --compile-only"):
        scaling_lines.devices_of("v5e:4x4", compile_only=False)
    with pytest.raises(ValueError, match="there are 8 devices"):
        scaling_lines.devices_of("present:9", compile_only=False)
    assert len(scaling_lines.devices_of("present:2", compile_only=False).devices) == 2


@pytest.mark.parametrize("name", ["h100:1x1x8", "v5e:4x4"])
def test_a_missing_compiler_is_named_with_the_command_that_brings_it(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match="pip install"):
        topologies.open_topology(name)


def test_the_table_is_of_all_calls(tmp_path):
    line = line_of_four()
    worse = dataclasses.replace(line, rows=64, fits=False, note="out of memory", bound=None)
    old = dataclasses.replace(line, need=1.0)
    for entries in ((old,), (worse, line)):
        table = scaling_table.Table(tmp_path)
        for entry in entries:
            table.add(entry)
        told = table.finish(0.5)
    assert scaling_table.read(tmp_path / "scaling.csv") == [old, worse, line]
    page = (tmp_path / "scaling.md").read_text()
    assert page.count("| tiny |") == 2  # the old line was replaced
    assert "out of memory" in page
    assert "over 0.5 of the chip's dense bf16 peak" in told
    for picture in ("memory.png", "efficiency.png"):
        assert (tmp_path / picture).stat().st_size > 1000
    (tmp_path / "scaling.csv").write_text("other,columns\n")
    with pytest.raises(ValueError, match="another version"):
        scaling_table.Table(tmp_path)


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.scaling", *arguments]
    return subprocess.run(
        command, cwd=tiny_run.Path(__file__).parents[1], capture_output=True, text=True
    )


def test_the_command_compiles_for_eight_devices(tmp_path):
    overrides = [f"--config.model.overrides.{name}={value}" for name, value in OVERRIDES.items()]
    done = command_line(
        *("--config=configs/encoder.py", "--compile-only", "--topology=cpu:8", "--rows=1"),
        *(f"--config.data.seq_len={LENGTH}", "--document=64", f"--out={tmp_path}", *overrides),
    )
    assert done.returncode == 0, done.stderr
    made = scaling_table.read(tmp_path / "scaling.csv")
    assert [(line.rows, line.devices, line.square) for line in made] == [(1, 8, "none")]
    assert (made[0].flops or 0) < experiment(name="mlm", objective="mlm", mask_rate=0.3).flops(1)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--mesh=8x1"], "REPLICAxFSDPxTENSOR"), (["--phase=other"], "the config has mlm")],
)
def test_bad_arguments_are_refused(arguments, message):
    done = command_line(
        "--config=configs/encoder.py", "--compile-only", "--topology=cpu:1", *arguments
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_choices_that_cannot_be_read():
    readers = (scaling._mesh, "8x0x1"), (scaling._boolean, "maybe"), (scaling._kernels, "flash9")
    for read, text in readers:
        with pytest.raises(ValueError, match=f"={text}: "):
            read(text)
    for rows in ("many", "0", "-1", "largest:x", "largest:0", "largestest"):
        with pytest.raises(ValueError, match="not a number from 1"):
            lines(experiment(), topology(1), layout(), rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100:1x2x4", "v5e:2x4"])
def test_a_step_is_compiled_for_accelerators_that_are_not_there(name):
    """Two layers at heads of 64; two hosts of four GPUs, or one slice of eight TPUs."""
    try:
        where = topologies.open_topology(name)
    except ValueError as error:
        pytest.skip(str(error))
    raw = tiny_run.raw_config(tiny_run.Path("/nowhere"))
    raw["data"]["seq_len"] = 1024
    raw["model"] |= {"dtype": "bfloat16", "overrides": {**OVERRIDES, **WIDER}}
    what = scaling_lines.experiment(config.parse(raw), None, None)
    (line,) = lines(what, where, layout(mesh=config.Mesh(1, 8, 1)))
    assert (line.devices, line.mesh) == (8, "1x8x1")
    assert line.fits
    assert line.square == "none"
    sizes = [math.prod(shape) for shape in what.spec.param_shapes().values()]
    assert line.state is not None
    assert line.received is not None
    assert line.network is not None
    assert line.state < 12 * sum(sizes) / 8 * 1.1  # norms and biases are whole
    # Every device collects the parameters of the others and its part of their gradients: in bf16
    # or float32, once or again for the backward pass.
    assert 2 * 2 * 7 / 8 * sum(sizes) < line.received < 5 * 4 * sum(sizes)
    assert (line.network > 0) == name.startswith("h100")
