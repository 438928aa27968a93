"""The paper's French tasks (SPEC section 6)."""

from cpt_jax.finetune.examples import Task

TASKS: tuple[Task, ...] = ()
