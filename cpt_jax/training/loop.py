"""The loop over the phases of a run."""

import contextlib
import dataclasses
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from cpt_jax import (
    checkpoint,
    gathering,
    memory,
    peers,
    provenance,
    remote,
    saving,
    sharding,
    telemetry,
    trees,
)
from cpt_jax.config import Config, Phase
from cpt_jax.data.mixture import rows_at
from cpt_jax.data.sources import Source
from cpt_jax.model import attention, flops, modernbert
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training import optim
from cpt_jax.training.export import export
from cpt_jax.training.plan import PhasePlan, plan_run
from cpt_jax.training.start import Start, check_history, identity, initial_params, prepare_start
from cpt_jax.training.state import State, abstract_state, new_optimizer
from cpt_jax.training.step import (
    compiler_options,
    jit_train_step,
    make_eval_step,
    make_train_step,
    mask_modes,
)

ON_DEVICE = ("input_ids", "segment_ids", "ordinals")


class NonFiniteError(RuntimeError):
    """Too many updates in a row were not finite; what the run has saved is finite."""


class Stopped(Exception):
    """The run was asked to stop, and has saved; preparing it again goes on from there."""


def plan_phases(config: Config, workdir: Path | None, mesh: Mesh) -> tuple[Start, list[PhasePlan]]:
    """Returns where a run starts and where its phases lie; reads, and writes nothing.

    Raises:
      ValueError: whatever is wrong with config, data or init, or with ``workdir`` as their run;
        phases that the model or the devices of ``mesh`` cannot run.
      FileNotFoundError: a corpus or init that is not there.
    """
    start = prepare_start(config, workdir)
    plans = plan_run(config, start.train, start.origin)
    spec = start.spec
    sharding.check_model(mesh, spec.param_shapes(), spec.num_attention_heads)
    for i, phase in enumerate(config.phases):
        rows, where = phase.batch_size // phase.microbatches, f"config.phases[{i}]"
        sharding.check_divisible(mesh, rows, f"{where}.batch_size / microbatches")
        trees.select(spec.param_shapes(), phase.freeze)
        _check_masks(phase, spec)
    sharding.check_divisible(mesh, config.evaluation.batch_size, "config.evaluation.batch_size")
    attention.choose(config, start.spec, mesh.devices.flat[0])
    return start, plans


def prepare(
    config: Config,
    workdir: Path,
    mesh: Mesh | None = None,
    check: Callable[[Start, list[PhasePlan]], None] = lambda start, plans: None,
) -> "Run":
    """Returns a run that is ready to train: everything checked, nothing computed.

    Args:
      config: the run.
      workdir: its directory; a run found there is resumed from its latest checkpoint.
      mesh: the devices; default all, as ``config.mesh`` says.
      check: called with what was planned, before anything is written; may raise.

    Raises:
      ValueError: whatever is wrong with config, data, init or ``workdir``.
      OSError: ``workdir`` cannot be written, or another process trains in it.
    """
    mesh = mesh or sharding.make_mesh(axes=config.mesh)
    first = jax.process_index() == 0  # it writes for all
    with contextlib.ExitStack() as undo:
        if first:
            undo.callback(remote.own(workdir).release)
        start, plans = plan_phases(config, workdir, mesh)
        check(start, plans)
        check_history(config, workdir)
        if config.logging.wandb_project:
            telemetry.Tracker.check()
        latest = checkpoint.latest_step(workdir)
        peers.agree("the run", identity(start, latest))
        params, init = None, {}
        if latest is None:
            placed = sharding.placement(mesh, start.spec.param_shapes())
            # Before anything is written: it may fail.
            params = initial_params(config, start.spec, sharding.named(mesh, placed.params))
            init = provenance.describe_init(config.init.source)
        if first:
            checkpoint.open_run(workdir, start.description)
            provenance.record_start(workdir, init, step=latest or 0)
        peers.agree("the run directory", checkpoint.identity(workdir, wait=not first))
        with jax.set_mesh(mesh):
            run = Run(config, workdir, mesh, start, plans, params)
        run.closing = undo.pop_all()
        return run


def _check_masks(phase: Phase, spec: ModelSpec) -> None:
    """Raises ValueError for what the model would refuse only once it is traced."""
    layers = spec.num_hidden_layers
    if isinstance(phase.mask_mode, tuple) and len(phase.mask_mode) != layers:
        raise ValueError(
            f"phase {phase.name!r}: {len(phase.mask_mode)} modes in mask_mode for {layers} layers; "
            "give one, or one for each"
        )
    if spec.attention_dropout:
        raise ValueError(
            f"attention_dropout: {spec.attention_dropout} drops attention probabilities, which the "
            "block-wise kernels never hold: set config.model.overrides.attention_dropout to 0 "
            "(attention_out_dropout drops the attention's output)"
        )


class Run:
    """A run in progress: its state, and where it writes. ``prepare`` makes one."""

    def __init__(
        self,
        config: Config,
        workdir: Path,
        mesh: Mesh,
        start: Start,
        plans: list[PhasePlan],
        params: Mapping[str, Any] | None,
    ):
        self.closing = contextlib.ExitStack()  # what ends with the run's last write
        self.config, self.workdir, self.mesh = config, workdir, mesh
        self.start, self.plans = start, plans
        self.part, self.parts = sharding.host_part(mesh)  # of each batch, this host's rows
        self.graphdef = modernbert.structure(
            start.spec,
            dtype=jnp.dtype(config.model.dtype),
            remat=config.model.remat,
            attention=attention.choose(config, start.spec, mesh.devices.flat[0]).backend,
        )
        self.checkpoints = saving.Checkpoints(
            workdir,
            every=config.checkpoint.every_steps,
            keep=config.checkpoint.keep,
            keep_steps=tuple(plan.stop_step for plan in plans),
        )
        self.state = self._initial_state(params)
        self.step = int(self.state.step)
        host = jax.process_index()
        project = config.logging.wandb_project
        self.log = telemetry.RunLog(
            workdir,
            process_index=host,
            tensorboard=config.logging.tensorboard,
            tracker=telemetry.Tracker(workdir, project) if project and host == 0 else None,
        )
        peak = flops.peak_flops(jax.local_devices()[0].device_kind)
        self.progress = telemetry.Progress(
            plans[-1].stop_step,
            peak_flops=peak and peak * jax.local_device_count(),
            shown=host == 0,
        )
        evaluate = make_eval_step(self.graphdef, config.evaluation.mask_rate, start.vocabulary)
        self.eval_step = jax.jit(evaluate, compiler_options=compiler_options())
        # Whether the latest updates were finite; fetched when a step is reported, not before.
        self.finite: deque[jax.Array] = deque(maxlen=config.optimizer.max_nonfinite_steps)

    def _initial_state(self, params: Mapping[str, Any] | None) -> State:
        """Returns the state to go on from.

        1. Resume: the latest checkpoint of this run, where it has one (``params`` is None).
        2. Continue: ``params`` of another run's checkpoint, and its optimizer state.
        3. Start: ``params`` of another run, of a Hugging Face model, or drawn at random.

        Every part is made, or read, on the device where it stays.
        """
        tx = self._tx(self.config.phases[0])
        state = abstract_state(self.start.spec.param_shapes(), tx, self.mesh)
        if params is None:
            latest = checkpoint.saved_steps(self.workdir)[-1]
            restored = self.checkpoints.restore(latest, state.params, state.opt_state)
            return State(sharding.number(self.mesh, np.int32(latest)), *restored)
        state = state._replace(params=dict(params))
        if self.config.init.state == "params+opt_state":
            opt_state = checkpoint.load_opt_state(self.config.init.source, state.opt_state)
        else:
            opt_state = new_optimizer(tx, state)
        return State(sharding.number(self.mesh, np.int32(0)), state.params, opt_state)

    def _tx(self, phase: Phase):
        return optim.make_tx(self.config.optimizer, phase.learning_rate.peak)

    def train(self, stop: Callable[[int], bool] = lambda step: False) -> Path:
        """Trains what is left of every phase, and returns the exported Hugging Face directory.

        Args:
          stop: asked after each step, with its number; once it says yes, the run saves and stops.

        Raises:
          Stopped: ``stop`` said yes.
          NonFiniteError: ``optimizer.max_nonfinite_steps`` updates in a row were skipped.
          OSError: metrics, a checkpoint or the export could not be written, or data not be read.
        """
        with self.closing:
            with jax.set_mesh(self.mesh), contextlib.ExitStack() as files:
                for file in (self.checkpoints, self.log, self.progress):
                    files.callback(file.close)
                self._begin()
                for plan in self.plans:
                    if self.step < plan.stop_step:
                        self._phase(plan, stop)
                assert self.step >= self.plans[-1].stop_step, "the data ended before the run"
            return export(self.config, self.start.spec, self.state.params, self.workdir, self.step)

    def _begin(self) -> None:
        """Takes the log back to the state's step, and measures what nothing was trained of yet."""
        self.log.truncate_after(self.step or -1)  # -1: killed before its first checkpoint
        if self.step == 0:
            with self.progress.paused():
                self._evaluate(self.plans[0])
        elif self.step < self.plans[-1].stop_step:
            phase = next(plan.phase.name for plan in self.plans if self.step < plan.stop_step)
            self.progress.say(f"resuming at step {self.step} (phase {phase})")

    def _phase(self, plan: PhasePlan, stop: Callable[[int], bool]) -> None:
        config = self.config
        if self.step == plan.first_step:
            self._write("phase", plan, event="start")
        for batch, metrics in self._steps(plan):
            last = self.step == plan.stop_step
            if last or self.step % config.logging.every_steps == 0:
                self._report(plan, metrics, batch)
            stops = stop(self.step)
            evaluates = last or self.step % config.evaluation.every_steps == 0
            saves = last or stops or self.step % config.checkpoint.every_steps == 0
            if evaluates or saves:
                jax.block_until_ready(metrics)  # or steps in flight would count as paused
            with self.progress.paused():
                if evaluates:
                    self._evaluate(plan)
                if last:
                    self._write("phase", plan, event="end")
                if saves:
                    self._save(plan)
            if stops:
                self.checkpoints.close()
                raise Stopped(
                    f"stopped at step {self.step} of {self.plans[-1].stop_step} and saved: the "
                    "same command goes on from there"
                )

    def _steps(self, plan: PhasePlan) -> Iterable[tuple[Mapping[str, np.ndarray], dict[str, Any]]]:
        """Takes the steps left of a phase, and yields each one's batch and metrics."""
        config, phase = self.config, plan.phase
        train_step = make_train_step(
            self.graphdef,
            phase,
            self._tx(phase),
            first_step=plan.first_step,
            tokens_per_step=plan.tokens_per_step,
            vocabulary=self.start.vocabulary,
            frozen=trees.select(self.state.params, phase.freeze),
            seed=config.seed,
        )
        train_step = jit_train_step(train_step, self.state)
        batches = plan.batches(
            self.step,
            host=self.part,
            hosts=self.parts,
            threads=config.data.reader_threads,
            prefetch=config.data.prefetch_batches,
        )
        compiled = False
        for batch in batches:
            placed = {name: batch[name] for name in ON_DEVICE}
            placed = sharding.place_batch(self.mesh, placed)
            if compiled:
                self.state, metrics = train_step(self.state, placed)
                self._count(plan, batch)
            else:  # the first step is mostly compilation: it tells nothing of the speed
                self.progress.say(f"compiling phase {phase.name}")
                with self.progress.paused():
                    self.state, metrics = jax.block_until_ready(train_step(self.state, placed))
                compiled = True
            self.step += 1
            self.finite.append(metrics["finite"])
            if memory.keeps_freed():  # on the CPU
                jax.block_until_ready(metrics)
                memory.hand_back_if_short()
            yield batch, metrics

    def _write(self, kind: str, plan: PhasePlan, **fields) -> None:
        tokens = plan.tokens_at(self.step)
        self.log.write(kind, step=self.step, phase=plan.phase.name, tokens=tokens, **fields)

    def _save(self, plan: PhasePlan) -> None:
        origin = dataclasses.replace(plan.origin_at(self.step), updates=self._updates())
        self.checkpoints.save(self.step, self.state.params, self.state.opt_state, origin)

    def _updates(self) -> int:
        """Adam's count: the updates that the run and those it continues have made."""
        return int(optax.tree_utils.tree_get(self.state.opt_state, "count"))

    def _count(self, plan: PhasePlan, batch: Mapping[str, np.ndarray]) -> None:
        segments = batch["segment_ids"]
        if plan.phase.objective == "clm":
            targets = int((segments > 0).sum()) - flops.document_lengths(segments).size
        else:
            targets = round((plan.phase.mask_rate or 0) * (segments > 0).sum())
        modes = mask_modes(plan.phase)
        needed = flops.training_flops(self.start.spec, segments, modes, targets)
        self.progress.count(segments.size * self.parts, needed)

    def _report(self, plan: PhasePlan, metrics, batch: Mapping[str, np.ndarray]) -> None:
        metrics = jax.device_get(metrics)
        rate = self.progress.report(
            self.step, phase=plan.phase.name, loss=float(metrics["loss"]), lr=float(metrics["lr"])
        )
        passes = plan.mixture.epochs_after((self.step - plan.first_step) * plan.phase.batch_size)
        epochs = {f"epochs/{name}": count for name, count in passes.items()}
        drawn = [
            gathering.all_rows(batch[name], self.part).tobytes() for name in ("sources", "rows")
        ]
        rows = zlib.crc32(drawn[1], zlib.crc32(drawn[0]))
        skipped = self.step - (self._updates() - self.start.origin.updates)
        self._write("train", plan, **metrics, skipped=skipped, **epochs, rows=f"{rows:08x}", **rate)
        self.checkpoints.check()
        if len(self.finite) == self.finite.maxlen and not np.any(jax.device_get(list(self.finite))):
            # Nothing is saved: every checkpoint is finite, and one of now would let a restart go on
            # as if nothing had happened.
            run = remote.shown(self.workdir)
            raise NonFiniteError(
                f"the last {self.finite.maxlen} updates up to step {self.step} were not finite and "
                f"were skipped. The checkpoints in {run} are finite: fork one of them "
                "(config.init) with a lower learning rate or optimizer.clip_norm, or look at the "
                "data of these steps"
            )

    def _evaluate(self, plan: PhasePlan) -> None:
        """Writes the held-out loss of each source under both objectives."""
        for name, source in self.start.heldout.items():
            totals = None
            for batch in self._heldout_batches(source):
                sums = self.eval_step(self.state.params, sharding.place_batch(self.mesh, batch))
                totals = sums if totals is None else jax.tree.map(jnp.add, totals, sums)
            if totals is None:
                continue
            fields = {}
            for objective, sums in jax.device_get(totals).items():
                fields[f"{objective}_loss"] = sums.loss
                fields[f"{objective}_accuracy"] = sums.accuracy
                fields[f"{objective}_targets"] = sums.count
            self._write("eval", plan, source=name, **fields)

    def _heldout_batches(self, source: Source):
        """Yields this host's part of the first held-out rows, in batches filled up with padding."""
        size = self.config.evaluation.batch_size
        count = min(len(source), self.config.evaluation.rows_per_source)
        part = range(self.part * size // self.parts, (self.part + 1) * size // self.parts)
        shape = (len(part), self.config.data.seq_len)
        batches = [[first + i for i in part] for first in range(0, count, size)]
        rows = rows_at(source, [row for batch in batches for row in batch if row < count])
        for ordinals in batches:
            batch = {
                "input_ids": np.full(shape, self.start.spec.pad_token_id or 0, np.int32),
                "segment_ids": np.zeros(shape, np.int32),
                "ordinals": np.array(ordinals, np.uint32),
            }
            for i in range(sum(row < count for row in ordinals)):
                row = next(rows)
                for name in ("input_ids", "segment_ids"):
                    batch[name][i] = row[name]
            yield batch
