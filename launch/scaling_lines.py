"""The lines of a scaling table: a layout compiled, then predicted or timed."""

import dataclasses
from collections.abc import Iterator

from cpt_jax import config as config_lib
from cpt_jax.model import flops, hub
from cpt_jax.model.spec import SIZES, ModelSpec
from launch import hlo, layouts, roofline
from launch.topologies import Topology, open_topology, present_topology

LARGEST = "largest"
REFUSED = "refused"  # how the note of a layout begins that cannot be
NO_SQUARE = "none"  # buffers of tokens x tokens
VMEM = "S(1)"  # how XLA marks arrays that a TPU keeps beside its cores
# Models whose sizes are known here, so that a table needs no network.
PUBLISHED = {"answerdotai/ModernBERT-base": "base", "answerdotai/ModernBERT-large": "large"}


@dataclasses.dataclass(frozen=True)
class Ask:
    """What is to be known of every layout: a prediction, or the time of some steps."""

    compile_only: bool
    attained: float
    steps: int


@dataclasses.dataclass(frozen=True)
class Line:
    """One layout and what came of it; None where it does not apply or is not known.

    Attributes:
      fits: whether it fits the memory.
      need: bytes a device; of a layout that does not fit, what it would have needed.
      compile_seconds: of lowering and compiling.
      received: bytes that a device receives from others in one step.
      network: bytes of these from other hosts (GPUs) or slices (TPUs).
      flops: that one device's rows need in one step.
      seconds: of one step, predicted or the median measured.
      mfu: needed FLOPs over what the peak would do in these seconds.
      weak: predicted efficiency of weak scaling.
      strong: of strong scaling, of the phase's batch.
      overlapped: weak, with exchanges hidden as far as they can be.
      bound: what takes the time: compute, memory or exchange.
      note: why something is missing.
    """

    run: str
    phase: str
    topology: str
    devices: int
    mesh: str
    rows: int
    microbatches: int
    remat: bool
    attention: str
    measured: bool
    fits: bool
    need: float | None = None
    memory: float | None = None
    state: float | None = None
    compile_seconds: float | None = None
    received: float | None = None
    network: float | None = None
    traffic: float | None = None
    flops: float | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    weak: float | None = None
    strong: float | None = None
    overlapped: float | None = None
    bound: str | None = None
    square: str | None = None
    note: str = ""


def experiment(
    config: config_lib.Config, phase: str | None, document: int | None
) -> layouts.Experiment:
    """Returns what all lines share.

    Raises:
      ValueError: for a phase that the config does not have; documents longer than a row.
      FileNotFoundError: a model whose size cannot be found out.
    """
    names = [p.name for p in config.phases]
    if phase is not None and phase not in names:
        raise ValueError(f"--phase={phase}: the config has {', '.join(names)}")
    length = config.data.seq_len
    if document is not None and document > length:
        raise ValueError(f"--document={document}: a row has {length} tokens")
    chosen = config.phases[names.index(phase) if phase else 0]
    return layouts.Experiment(config, chosen, _spec(config), document or length)


def _spec(config: config_lib.Config) -> ModelSpec:
    """The model's size, without its weights or its data's tokenizer."""
    source = config.model.size if config.init.source == "scratch" else config.init.source
    assert source is not None  # config.parse
    size = PUBLISHED.get(source, source)
    if size in SIZES:
        spec = SIZES[size]
    else:
        spec = hub.read_spec(hub.resolve(source, (hub.CONFIG,)) / hub.CONFIG)
    return spec.override(config.model.overrides, "config.model.overrides")


def devices_of(name: str, compile_only: bool) -> Topology:
    """Returns the topology of a name: of `launch.topologies`, `present` or `present:4`.

    Raises:
      ValueError: for one that is not there, and not only to be compiled for.
    """
    if name.split(":")[0] == "present":
        topology = present_topology()
        count = name.partition(":")[2] or str(len(topology.devices))
        if not count.isdigit() or not 0 < int(count) <= len(topology.devices):
            raise ValueError(f"--topology={name}: there are {len(topology.devices)} devices")
        devices = topology.devices[: int(count)]
        return dataclasses.replace(
            topology, name=f"{name} ({devices[0].device_kind})", devices=devices
        )
    if not compile_only:
        raise ValueError(f"--topology={name}: nothing can be run on it; add --compile-only")
    return open_topology(name)


def lines(
    what: layouts.Experiment, topology: Topology, layout: layouts.Layout, rows: str, ask: Ask
) -> Iterator[Line]:
    """Yields the line of a layout with so many rows; of a search, one for each that was compiled.

    ``rows`` is a number; or "largest", or "largest:32" to ask for 32 first.

    Raises:
      ValueError: for what is no number of rows; a search where the memory is not known.
    """
    kind, _, count = rows.partition(":") if rows.startswith(LARGEST) else ("", "", rows)
    count = count or ("1" if kind == LARGEST else rows)
    if kind not in ("", LARGEST) or not count.isdigit() or int(count) < 1:
        raise ValueError(f"--rows={rows}: not a number from 1, {LARGEST!r} or '{LARGEST}:32'")
    if not kind:
        yield line(what, topology, dataclasses.replace(layout, rows=int(count)), ask)
        return
    memory = _memory(topology)
    if memory is None:
        raise ValueError(f"--rows={LARGEST}: the memory of {topology.name} is not known")
    search = layouts.Search(memory, int(count))
    while (asked := search.next_rows()) is not None:
        made = line(what, topology, dataclasses.replace(layout, rows=asked), ask)
        search.learn(asked, made.fits, made.need)
        yield made


def line(what: layouts.Experiment, topology: Topology, layout: layouts.Layout, ask: Ask) -> Line:
    """Returns the line of one layout; one that cannot be is a line that says why."""
    begun = Line(
        run=what.config.name,
        phase=what.phase.name,
        topology=topology.name,
        devices=len(topology.devices),
        mesh="x".join("*" if n is None else str(n) for n in dataclasses.astuple(layout.mesh)),
        rows=layout.rows,
        microbatches=layout.microbatches,
        remat=layout.remat,
        attention=layout.attention or "",
        measured=not ask.compile_only,
        fits=False,
        memory=_memory(topology),
    )
    try:
        shape, kernels = layouts.choices(what, layout, topology)
    except ValueError as error:
        return dataclasses.replace(begun, note=f"{REFUSED}: {error}")
    begun = dataclasses.replace(begun, mesh="x".join(map(str, shape)), attention=kernels)
    try:
        compiled = layouts.compile_layout(what, layout, topology)
    except layouts.OutOfMemory as error:
        return dataclasses.replace(
            begun, need=error.need, note="out of memory: the compiler's word"
        )
    work = _work(what, layout, topology, compiled)
    memory, square = begun.memory, _square(what, layout, compiled)
    told = dataclasses.replace(
        begun,
        need=compiled.need,
        state=compiled.state,
        fits=memory is None or compiled.need <= memory,
        compile_seconds=compiled.seconds,
        received=work.link + work.network,
        network=work.network,
        traffic=work.traffic,
        flops=work.flops,
        square=None if square is None else "; ".join(square[:3]) or NO_SQUARE,
    )
    if not told.fits:
        return dataclasses.replace(told, note="out of memory")
    if ask.compile_only:
        return _predicted(what, topology, layout, ask, compiled, work, told)
    seconds = layouts.measure(what, layout, topology, compiled, ask.steps)
    peak = flops.peak_flops(topology.devices[0].device_kind)
    return _timed(what, told, compiled, seconds, work.flops / seconds / peak if peak else None)


def _memory(topology: Topology) -> float | None:
    """Bytes of a device that a program may use."""
    chip = topology.chip
    return chip.memory * chip.usable if chip else None


def _work(
    what: layouts.Experiment, layout: layouts.Layout, topology: Topology, compiled: layouts.Compiled
) -> roofline.Work:
    """What one device does in one step of the compiled program."""
    islands = [topology.island(device) for device in compiled.devices]
    link = network = 0.0
    for exchange in hlo.collectives(compiled.program):
        near, far = roofline.received(exchange, islands)
        link += exchange.times * near
        network += exchange.times * far
    rows = layout.rows * layout.microbatches * compiled.shards / len(compiled.devices)
    needed, layers = what.flops(rows)
    is_tpu = topology.devices[0].platform == "tpu"
    return roofline.Work(
        flops=needed,
        recomputed=layers if layout.remat else 0.0,
        traffic=hlo.traffic(compiled.program, VMEM if is_tpu else None),
        link=link,
        network=network,
    )


def _square(
    what: layouts.Experiment, layout: layouts.Layout, compiled: layouts.Compiled
) -> list[str] | None:
    """The program's buffers of tokens x tokens; None where they cannot be told from others."""
    length, rows = what.config.data.seq_len, layout.rows
    if not hlo.can_tell(what.widths, length, rows):
        return None
    return hlo.square_buffers(compiled.program, length, rows)


def _predicted(
    what: layouts.Experiment,
    topology: Topology,
    layout: layouts.Layout,
    ask: Ask,
    compiled: layouts.Compiled,
    work: roofline.Work,
    told: Line,
) -> Line:
    """The line with a roofline, where the chip is known."""
    chip = topology.chip
    peak = chip and flops.peak_flops(chip.kind)
    if chip is None or peak is None:
        return dataclasses.replace(told, note="no prediction: the chip's data are not known")
    found = roofline.predict(work, chip, peak, ask.attained)
    strong = roofline.strong_scaling(
        found,
        batch=what.phase.batch_size,
        shards=compiled.shards,
        rows=layout.rows,
        microbatches=layout.microbatches,
    )
    times = {"compute": found.compute, "memory": found.memory, "exchange": found.exchange}
    told = dataclasses.replace(
        told,
        weak=found.weak,
        strong=strong,
        overlapped=found.alone / found.overlapped,
        bound=max(times, key=lambda name: times[name]),
    )
    return _timed(what, told, compiled, found.seconds, found.mfu)


def _timed(
    what: layouts.Experiment,
    told: Line,
    compiled: layouts.Compiled,
    seconds: float,
    mfu: float | None,
) -> Line:
    tokens = told.rows * told.microbatches * compiled.shards * what.config.data.seq_len
    return dataclasses.replace(told, seconds=seconds, tokens_per_second=tokens / seconds, mfu=mfu)
