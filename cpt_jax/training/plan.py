"""Where each phase of a run starts: its first step, its first row, and a cursor in every source.

All of it is computed from the config and the sizes of the corpora, so a run that stops
anywhere goes on with the very batch it would have had, and a phase that changes the mixture or the
batch size repeats and skips no row.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from cpt_jax.checkpoint import Origin
from cpt_jax.config import Config, Phase, phase_steps
from cpt_jax.data import mixture as mixture_lib
from cpt_jax.data.sources import Source


@dataclasses.dataclass(frozen=True)
class PhasePlan:
    """A phase, placed in its run.

    Attributes:
      phase: its config.
      first_step: optimizer steps of the run before it.
      stop_step: optimizer steps of the run at its end.
      first_ordinal: rows of the run before it; a row's ordinal keys its corruption.
      first_token: tokens of the run before it.
      seq_len: tokens per row.
      mixture: the rows of the phase, from this phase's cursors on.
    """

    phase: Phase
    first_step: int
    stop_step: int
    first_ordinal: int
    first_token: int
    seq_len: int
    mixture: mixture_lib.Mixture

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a batch."""
        return self.phase.batch_size * self.seq_len

    def origin_at(self, step: int) -> Origin:
        """Returns what a run that continues this one after ``step`` steps starts from."""
        rows = (step - self.first_step) * self.phase.batch_size
        cursors = self.mixture.cursors_after(rows)
        return Origin(self.first_ordinal + rows, self.tokens_at(step), cursors)

    def tokens_at(self, step: int) -> int:
        """Tokens the run has seen after ``step`` steps."""
        return self.first_token + (step - self.first_step) * self.tokens_per_step

    def batches(
        self, from_step: int, *, host: int, hosts: int, threads: int, prefetch: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields this host's part of the batches of steps ``from_step`` .. ``stop_step`` - 1."""
        return mixture_lib.batches(
            self.mixture,
            batch_size=self.phase.batch_size,
            first_ordinal=self.first_ordinal,
            start_step=from_step - self.first_step,
            stop_step=self.stop_step - self.first_step,
            process_index=host,
            process_count=hosts,
            num_threads=threads,
            prefetch=prefetch,
        )


def plan_run(config: Config, sources: Mapping[str, Source], origin: Origin) -> list[PhasePlan]:
    """Returns the phases of a run in order, each placed after the ones before it.

    Args:
      config: the run.
      sources: the training rows of each source, by name.
      origin: where the run's rows and tokens are counted from.
    """
    plans = []
    step, ordinal, token = 0, origin.rows, origin.tokens
    cursors = {name: origin.cursors.get(name, 0) for name in sources}
    for phase in config.phases:
        weights = {s.name: s.weight for s in config.data.sources}
        if phase.mixture is not None:
            weights = dict(phase.mixture)
        mixture = mixture_lib.Mixture(
            sources, weights, seed=config.data.shuffle_seed, cursors=cursors
        )
        steps = phase_steps(phase, config.data.seq_len)
        plans.append(
            PhasePlan(phase, step, step + steps, ordinal, token, config.data.seq_len, mixture)
        )
        rows = steps * phase.batch_size
        cursors = mixture.cursors_after(rows)
        step += steps
        ordinal += rows
        token += rows * config.data.seq_len
    return plans
