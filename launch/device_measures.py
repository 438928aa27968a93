"""The checks of `launch.device_check`, each on its own or in turn; a line of JSON for each.

    python -m launch.device_measures --small environment attention:local:causal step:base:mlm

A check is `environment`, `attention:LAYER:MODE` (global or local; bidirectional or causal) or
`step:SIZE:OBJECTIVE` (base or large; clm or mlm). What follows another colon changes it:
`attention=BACKEND`, and of a step `rows=N`, `remat` or `unfenced`: without the barriers between
blocks, which CPUs need and nobody has timed elsewhere.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpt_jax import sharding
from cpt_jax.config import Config, Data, Init, LearningRate, Model, Optimizer, Phase
from cpt_jax.model import attention, flops, modernbert
from cpt_jax.model.kernels import gpu
from cpt_jax.model.ranges import key_ranges
from cpt_jax.model.spec import SIZES, ModelSpec
from cpt_jax.training import objectives, optim
from cpt_jax.training.state import State, abstract_state, new_optimizer
from cpt_jax.training.step import jit_train_step, make_train_step, mask_modes

RATE = 0.3  # of the MLM objective
ATTENTION_ROWS = 2
TIMED, TIMED_SECONDS = 12, 4.0  # steps, at most, and seconds after which no further one is begun
# bf16 rounds to 2^-9 of a value. A kernel may be twice as far from fp32 as XLA's form in bf16 is,
# or this far where that one is nearer by luck.
TOLERANCE = 2.0**-7
TINY = ModelSpec(
    vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
    num_attention_heads=2, local_attention=16, pad_token_id=0, cls_token_id=1, sep_token_id=2,
    bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def spec_of(options: argparse.Namespace, size: str) -> ModelSpec:
    """The model of that size, or the small form's."""
    return TINY if options.small else SIZES[size]


def chosen(options: argparse.Namespace, spec: ModelSpec, asked: str | None) -> attention.Choice:
    """The attention kernels; raises ValueError for asked ones that cannot serve."""
    model: Any = Model(attention=asked)  # pyright: ignore
    run = Config("check", Data((), seq_len=options.length), Init("scratch"), (), model=model)
    return attention.choose(run, spec, jax.devices()[0])


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures were taken on."""
    device = jax.devices()[0]
    choice = chosen(options, spec_of(options, "base"), None)
    return {
        "device": device.device_kind,
        "capability": getattr(device, "compute_capability", None),
        "memory": (device.memory_stats() or {}).get("bytes_limit"),
        "python": sys.version.split()[0],
        "jax": jax.__version__,
        "tokamax": gpu.missing() or "supported",
        "attention": choice.backend,
        "reason": choice.reason,
    }


def packed(options: argparse.Namespace, count: int) -> dict[str, np.ndarray]:
    """Rows of packed documents, `options.rows`' or drawn: half of them under 800 tokens."""
    if options.rows:
        with np.load(options.rows) as file:
            rows = {name: file[name].astype(np.int32) for name in ("input_ids", "segment_ids")}
        if (length := rows["input_ids"].shape[1]) != options.length:
            raise ValueError(f"{options.rows}: rows of {length} tokens; allowed: {options.length}")
        rows = {name: np.resize(array, (count, length)) for name, array in rows.items()}
    else:
        rng = np.random.default_rng(0)
        vocab = spec_of(options, "base").vocab_size
        segments = np.zeros((count, options.length), np.int32)
        for row in segments:
            lengths = rng.lognormal(np.log(options.length / 10), 1.0, 200).astype(int) + 2
            ids = np.repeat(np.arange(1, 201), lengths)[: options.length]
            row[: len(ids)] = ids
            row[options.length - options.length // 50 :] = 0  # padding
        ids = rng.integers(vocab // 4, vocab // 2, segments.shape, np.int32)
        rows = {"input_ids": np.where(segments > 0, ids, 0), "segment_ids": segments}
    return {**rows, "ordinals": np.arange(count, dtype=np.uint32)}


def seconds_of(run: Callable[[], Any]) -> float:
    """The median time of a call, once it is compiled and warm."""
    for _ in range(2):
        jax.block_until_ready(run())
    taken: list[float] = []
    while len(taken) < TIMED and sum(taken) < TIMED_SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def check_attention(options: argparse.Namespace, layer: str, mode: str, *how: str):
    """The chosen kernel and XLA's, bf16, against XLA's in fp32; and the time of both."""
    spec, settings = spec_of(options, "base"), dict(item.split("=") for item in how)
    choice = chosen(options, spec, settings.get("attention"))
    window = None if layer == "global" else spec.window
    segments = jnp.asarray(packed(options, ATTENTION_ROWS)["segment_ids"])
    start, end = key_ranges(segments, mode, window)
    kind = {"k_start": start, "k_end": end, "window": window, "causal": mode == "causal"}
    shape = (*segments.shape, spec.num_attention_heads, spec.head_size)
    keys = jax.random.split(jax.random.key(0), 4)
    inputs = [jax.random.normal(key, shape, jnp.bfloat16) for key in keys]

    @functools.partial(jax.jit, static_argnames="backend")
    def both_ways(q, k, v, d_out, *, backend):
        layer = functools.partial(attention.attention, **kind, backend=backend)
        out, transpose = jax.vjp(layer, q, k, v)
        return out, *transpose(d_out)

    with jax.default_matmul_precision("highest"):
        exact = both_ways(*(x.astype(jnp.float32) for x in inputs), backend="xla")
    found: dict[str, Any] = {"backend": choice.backend, "reason": choice.reason, "rows": shape[0]}
    for name, backend in (("chosen", choice.backend), ("xla", "xla")):
        got = both_ways(*inputs, backend=backend)
        found[f"{name}_errors"] = [relative(a, b) for a, b in zip(got, exact, strict=True)]
        found[f"{name}_seconds"] = seconds_of(
            functools.partial(both_ways, *inputs, backend=backend)
        )
        if name == "chosen":
            padding = np.asarray(segments == 0)
            found["padding_is_zero"] = not any(np.asarray(x)[padding].any() for x in got)
    bounds = [max(TOLERANCE, 2 * error) for error in found["xla_errors"]]
    near = [e <= bound for e, bound in zip(found["chosen_errors"], bounds, strict=True)]
    return {**found, "agrees": all(near) and found["padding_is_zero"]}


def relative(ours: jax.Array, exact: jax.Array) -> float:
    """The largest difference, relative to the largest value; not a number where either is not."""
    return float(jnp.abs(ours.astype(jnp.float32) - exact).max() / jnp.abs(exact).max())


def check_step(options: argparse.Namespace, size: str, objective: Any, *how: str):
    """The time of a whole step on one device; with fewer rows where they do not fit."""
    settings = dict(item.split("=") for item in how if "=" in item)
    spec = spec_of(options, size)
    choice = chosen(options, spec, settings.get("attention"))
    graphdef = modernbert.structure(
        spec,
        dtype=jnp.bfloat16,
        remat=options.remat or "remat" in how,
        attention=choice.backend,
    )
    found: dict[str, Any] = {"model": "tiny" if options.small else size, "objective": objective}
    found["backend"] = choice.backend
    barrier = jax.lax.optimization_barrier
    if "unfenced" in how:
        jax.lax.optimization_barrier = lambda operand: operand
    try:
        rows = int(settings.get("rows") or getattr(options, size))
        while True:
            try:
                return found | time_step(options, spec, graphdef, objective, rows)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or rows == 1:
                    raise
                found["too_large"] = rows
                rows //= 2
    finally:
        jax.lax.optimization_barrier = barrier


def time_step(options, spec: ModelSpec, graphdef, objective: Any, rows: int) -> dict[str, Any]:
    """Seconds, tokens per second and MFU of a step on so many rows."""
    rate = RATE if objective == "mlm" else None
    schedule = LearningRate("warmup_constant", 1e-4)
    phase = Phase("check", objective, 10**12, rows, schedule, mask_rate=rate)
    special = tuple(range(4))
    vocabulary = objectives.Vocabulary(size=spec.vocab_size, mask_id=3, special_ids=special)
    batch = packed(options, rows)
    segments = batch["segment_ids"]
    tx = optim.make_tx(Optimizer(), schedule.peak)
    step = make_train_step(
        graphdef,
        phase,
        tx,
        first_step=0,
        tokens_per_step=segments.size,
        vocabulary=vocabulary,
        frozen=frozenset(),
        seed=0,
    )
    mesh = sharding.make_mesh(jax.devices()[:1])
    state = first_state(spec, tx, mesh)
    placed = sharding.place_batch(mesh, batch)
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        compiled = jit_train_step(step, state).lower(state, placed).compile()
    compile_seconds = time.perf_counter() - start

    def run():
        nonlocal state
        state, metrics = compiled(state, placed)
        return metrics["loss"]

    first = float(run())
    seconds = seconds_of(run)
    tokens = int((segments > 0).sum())
    documents = flops.document_lengths(segments).size
    targets = tokens - documents if rate is None else round(rate * tokens)
    needed = flops.training_flops(spec, segments, mask_modes(phase), targets)
    device = jax.devices()[0]
    peak = flops.peak_flops(device.device_kind)
    memory = compiled.memory_analysis()
    return {
        "rows": rows,
        "seconds": seconds,
        "tokens_per_second": segments.size / seconds,
        "mfu": needed / seconds / peak if peak else None,
        "compile_seconds": compile_seconds,
        "temporary_bytes": memory.temp_size_in_bytes if memory else None,
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),  # of the process
        "losses": [first, float(run())],  # on one batch, it falls
    }


def first_state(spec: ModelSpec, tx: Any, mesh: Any) -> State:
    """A state from scratch, as a run makes it."""
    state = abstract_state(spec.param_shapes(), tx, mesh)
    where = {path: leaf.sharding for path, leaf in state.params.items()}
    draw = jax.jit(functools.partial(modernbert.init_params, spec), out_shardings=where)
    state = state._replace(params=draw(jax.random.key(0)))
    step = jax.device_put(jnp.int32(0), state.step.sharding)
    return State(step, state.params, new_optimizer(tx, state))


def measure(options: argparse.Namespace, check: str) -> dict[str, Any]:
    """The result of a check; what goes wrong is one, too."""
    kind, *arguments = check.split(":")
    kinds = {"environment": environment, "attention": check_attention, "step": check_step}
    start = time.perf_counter()
    try:
        found = kinds[kind](options, *arguments)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
    return {"check": check, **found, "check_seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    """Runs the checks that are named."""
    parser = argparse.ArgumentParser(prog="python -m launch.device_measures", description=__doc__)
    parser.add_argument("checks", nargs="+")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--base", type=int, default=8)
    parser.add_argument("--large", type=int, default=4)
    parser.add_argument("--remat", action="store_true", help="recompute layers in every step")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    options.length = 256 if options.small else 8192
    for check in options.checks:
        print(json.dumps(measure(options, check)), flush=True)


if __name__ == "__main__":
    main()
