"""The half of a preflight that compiles nothing: data, template, sizes, disk, memory, hours."""

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from cpt_jax import checkpoint, parsing, remote, sharding, trees
from cpt_jax.config import Config
from cpt_jax.data.sources import Source
from cpt_jax.data.tokenizer import open_tokenizer, template_ids
from cpt_jax.model import attention, flops, hub
from cpt_jax.model.spec import ModelSpec
from cpt_jax.preflight.lines import Level, Line
from cpt_jax.training.plan import PhasePlan
from cpt_jax.training.start import Start
from cpt_jax.training.step import LOSS_CHUNK, mask_modes

# Muennighoff et al. 2023 (arXiv 2305.16264): up to 4 epochs are nearly worth new data, beyond 40
# they are worth nothing.
EPOCHS_WARN, EPOCHS_STOP = 4, 40
FEW_DECAY_STEPS = 100  # a decay of fewer does not bring the encoder back (docs/log.md)
USUAL_MFU = 0.35  # share of a device's peak that training reaches, for an estimate of hours
SAMPLED_ROWS = 16  # of which the mean cost of a row is taken
GIB = 2**30


def check_plan(
    run: Config, start: Start, plans: Sequence[PhasePlan], workdir: Path | None
) -> list[Line]:
    """Returns the lines on a run that has been planned; reads a few rows and computes nothing."""
    lines = [_resume(plans, workdir), *_steps(start, plans), *_epochs(plans, start.train)]
    lines += [*_template(run, start), *_overrides(run, start)]
    if workdir is not None and remote.url_of(workdir) is None:
        lines.append(_disk(run, start, plans, workdir))
    return [*lines, _attention(run, start), _memory(run, start, plans), _hours(start, plans)]


def _resume(plans: Sequence[PhasePlan], workdir: Path | None) -> Line:
    """What the training command would do with the run directory."""
    if workdir is None or not (workdir / "config.json").exists():
        return Line("ok", "resume", "a new run: no run directory yet")
    step, last = checkpoint.latest_step(workdir), plans[-1].stop_step
    if step is None:
        return Line("ok", "resume", f"{workdir} has no checkpoint: it would start from the first")
    if step >= last:
        return Line("ok", "resume", f"{workdir} is at its end, step {last}: it would only export")
    phase = next(plan.phase.name for plan in plans if step < plan.stop_step)
    return Line("ok", "resume", f"{workdir} goes on after step {step} of {last}, in phase {phase}")


def _steps(start: Start, plans: Sequence[PhasePlan]) -> list[Line]:
    lines = []
    params = start.spec.param_shapes()
    for before, plan in zip([None, *plans], plans, strict=False):
        steps = plan.stop_step - plan.first_step
        text = f"{plan.phase.name}: {steps} steps of {plan.tokens_per_step:,} tokens"
        after_clm = before is not None and before.phase.objective == "clm"
        level: Level = "ok"
        if after_clm and plan.phase.objective == "mlm" and steps < FEW_DECAY_STEPS:
            level = "warn"
            text += f"; a decay of fewer than {FEW_DECAY_STEPS} hardly brings the encoder back"
        if len(trees.select(params, plan.phase.freeze)) == len(params):
            level = "warn"
            text += "; all parameters are frozen: it trains nothing"
        lines.append(Line(level, "steps", text))
    return lines


def _epochs(plans: Sequence[PhasePlan], sources: Mapping[str, Source]) -> list[Line]:
    """How often the run reads each source, and its documents: passes over rows times copies."""
    last = plans[-1]
    passes = last.mixture.epochs_after((last.stop_step - last.first_step) * last.phase.batch_size)
    lines = []
    for name, source in sources.items():
        split = source.manifest["splits"]["train"]
        epochs = passes[name] * split["row_tokens"] / split["tokens"]
        documents = np.load(source.path / "documents.npy", mmap_mode="r")
        times = np.where(documents["heldout"], 0, documents["factor"]) * passes[name]
        text = f"{name}: {epochs:.3g} epochs"
        if times.max(initial=0) > 1:
            most = np.argpartition(times, -min(3, len(times)))[-3:].tolist()
            listed = (f"{i} ({times[i]:.3g} times)" for i in sorted(most, key=lambda i: -times[i]))
            text += f"; most repeated documents: {', '.join(listed)}"
        level: Level = "ok"
        if epochs > EPOCHS_STOP:
            level = "stop"
            text += f"; beyond {EPOCHS_STOP} another epoch adds nothing: a lower weight, fewer "
            text += "tokens, more text"
        elif epochs > EPOCHS_WARN or times.max(initial=0) > EPOCHS_STOP:
            level = "warn"
            text += f"; epochs up to {EPOCHS_WARN} are nearly as good as new text, later ones less"
        lines.append(Line(level, "epochs", text))
    return lines


def _template(run: Config, start: Start) -> list[Line]:
    """Whether documents stand in the data as the model's tokenizer would put them."""
    templates = {name: source.manifest["template"] for name, source in start.train.items()}
    if len(set(templates.values())) > 1:
        listed = ", ".join(f"{name}: {template!r}" for name, template in templates.items())
        text = f"the sources have different templates ({listed}): prepare them with one"
        return [Line("stop", "template", text)]
    template = next(iter(templates.values()))
    file = _tokenizer_file(run, start)
    tokenizer = open_tokenizer(file)
    alone, framed = (tokenizer.encode("a", add_special_tokens=x).ids for x in (False, True))
    special = next(iter(start.train.values())).tokenizer["special_ids"]
    before, after = template_ids(template, tokenizer, special)
    if framed == alone:  # a tokenizer that adds nothing: what the model's config says
        ids = start.spec.cls_token_id, start.spec.sep_token_id
        framed = [ids[0], *alone, ids[1]] if None not in ids else framed
    if [*before, *alone, *after] == framed:
        return [Line("ok", "template", f"{template!r}, as the tokenizer puts it")]
    words = " ".join(str(tokenizer.id_to_token(i)) for i in framed)
    text = (
        f"documents were prepared as {template!r}, and {file} puts the text 'a' as {words!r}: the "
        "model would be trained on another form than it is used in. Prepare them again "
        "with the default --template"
    )
    return [Line("stop", "template", text)]


def _starts_from_model(run: Config, start: Start) -> bool:
    """Whether a model has yet to be read: a run that has begun does not need it any more."""
    source = run.init.source
    return source != "scratch" and not start.begun and not checkpoint.names_checkpoint(source)


def _tokenizer_file(run: Config, start: Start) -> Path:
    """Returns the tokenizer.json of the model that the run starts from, or else of its data."""
    source = run.init.source
    if _starts_from_model(run, start):
        file = hub.resolve(source) / "tokenizer.json"
        if file.is_file():
            return file
    return Path(run.data.sources[0].path) / "tokenizer.json"


def _overrides(run: Config, start: Start) -> list[Line]:
    """Fields in which a pretrained model will compute otherwise than its own config.json says."""
    source = run.init.source
    if not _starts_from_model(run, start) or not run.model.overrides:
        return []
    theirs, ours = (spec.to_hf() for spec in (hub.load_spec(source), start.spec))
    changed = parsing.differences(theirs, ours)
    if not changed:
        return []
    text = f"the weights were trained otherwise: {'; '.join(changed)} (config.model.overrides)"
    return [Line("warn", "overrides", text)]


def _disk(run: Config, start: Start, plans: Sequence[PhasePlan], workdir: Path) -> Line:
    """Checkpoints that will stay and one being written, the model, and what is free."""
    size = start.spec.num_params * 4  # bytes, fp32
    regular = min(run.checkpoint.keep, plans[-1].stop_step // run.checkpoint.every_steps)
    kept = regular + len(plans) + 1
    there = len(checkpoint.saved_steps(workdir))
    more = max(0, kept - there) if checkpoint.latest_step(workdir) != plans[-1].stop_step else 0
    need = more * 3 * size + size
    place = next(path for path in (workdir, *workdir.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = (
        f"{need / GIB:.2f} GiB for {more} checkpoints of {3 * size / GIB:.2f} and the model; "
        f"{free / GIB:.2f} GiB are free at {place}"
    )
    if free < need:
        return Line("stop", "disk", f"{text}: another --workdir, or a lower config.checkpoint.keep")
    return Line("ok" if free > 1.2 * need else "warn", "disk", text)


def _attention(run: Config, start: Start) -> Line:
    """The kernels of attention; a warning where the devices have faster ones that cannot serve."""
    device = jax.devices()[0]
    choice = attention.choose(run, start.spec, device)
    slower = run.model.attention is None and choice.backend != attention.fastest(device)
    return Line("warn" if slower else "ok", "attention", f"{choice.backend}: {choice.reason}")


def _memory(run: Config, start: Start, plans: Sequence[PhasePlan]) -> Line:
    """Parameters, gradients, moments and the updates between, activations, logits; a device's."""
    device = jax.local_devices()[0]
    mesh = sharding.make_mesh(axes=run.mesh)
    spec, shapes = start.spec, start.spec.param_shapes()
    width = 2 if run.model.dtype == "bfloat16" else 4
    params, moments = (_held(mesh, shapes, specs) for specs in sharding.placement(mesh, shapes))
    certain = params + 3 * moments  # and two moments and the gradients, which lie like them
    # A layer's matrices at a time, and the embedding with its two gradients (as input, as decoder).
    tensor, table = mesh.shape["tensor"], spec.vocab_size * spec.hidden_size
    collected = (spec.num_params - table) // spec.num_hidden_layers * width + 3 * table * 4
    rows = max(
        math.ceil(plan.phase.batch_size / plan.phase.microbatches / sharding.batch_shards(mesh))
        for plan in plans
    )
    activations = rows * run.data.seq_len * _kept(run, spec, tensor) * width
    logits = 3 * min(LOSS_CHUNK, rows * run.data.seq_len) * spec.vocab_size * 4
    need = certain + moments + activations + (collected + logits) // tensor
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:  # a CPU: what the host has
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
    text = (
        f"about {need / GIB:.2f} GiB a device of {limit / GIB:.1f}, {certain / GIB:.2f} of it "
        f"parameters, gradients and moments, {activations / GIB:.2f} activations of {rows} rows"
    )
    if certain > limit:
        return Line("stop", "memory", f"{text}; parameters and moments alone do not fit")
    if need > 0.8 * limit:
        more = "" if run.model.remat else ", or config.model.remat=true"
        more = (
            f"; if it does not fit: more config.phases[...].microbatches{more}, or config.mesh.fsdp"
        )
        return Line("warn", "memory", text + more)
    return Line("ok", "memory", text)


def _held(mesh: Mesh, shapes: sharding.Shapes, specs: sharding.Specs) -> int:
    """Bytes on each device of float32 arrays that lie so."""
    cut = {
        path: where.shard_shape(shapes[path]) for path, where in sharding.named(mesh, specs).items()
    }
    return sum(4 * math.prod(shape) for shape in cut.values())


def _kept(run: Config, spec: ModelSpec, tensor: int) -> int:
    """Numbers a token that a device keeps for the backward pass.

    A layer keeps its input where it is recomputed, else what its products read: the norms' outputs,
    q, k, v, the attention's output, and three of the GLU's width, those of its heads and columns.
    """
    one, layers = spec.hidden_size, spec.num_hidden_layers
    layer = 4 * one + (4 * one + 3 * spec.intermediate_size) // tensor
    return layers * one + layer if run.model.remat else layers * layer


def _hours(start: Start, plans: Sequence[PhasePlan]) -> Line:
    """FLOPs of the run by the true lengths of some of its rows, over what the devices reach."""
    total = sum(_flops(start, plan) for plan in plans)
    kind, count = jax.devices()[0].device_kind, jax.device_count()
    peak = flops.peak_flops(kind)
    text = f"{total:.2e} FLOPs"
    if peak is None:
        return Line("ok", "hours", f"{text}; no hours, as the peak of a {kind} is not known")
    hours = total / (USUAL_MFU * peak * count) / 3600
    text += f": {hours:.3g} hours on {count} {kind} at {USUAL_MFU:.0%} of their peak"
    return Line("ok", "hours", text)


def _flops(start: Start, plan: PhasePlan) -> float:
    """Returns the FLOPs of a phase, those of its first rows taken for all."""
    rows = np.stack([plan.mixture[i]["segment_ids"] for i in range(SAMPLED_ROWS)])
    targets = int((rows > 0).sum() * (plan.phase.mask_rate or 1.0))
    cost = flops.training_flops(start.spec, rows, mask_modes(plan.phase), targets)
    return cost / SAMPLED_ROWS * (plan.stop_step - plan.first_step) * plan.phase.batch_size
