"""Tasks whose data anyone may fetch, beyond the paper's."""

from cpt_jax.finetune.examples import Task

TASKS: tuple[Task, ...] = ()
