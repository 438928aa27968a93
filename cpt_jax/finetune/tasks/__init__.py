"""The tasks by name, and what reads them from disk."""

import difflib
from pathlib import Path

from cpt_jax.finetune.examples import Task
from cpt_jax.finetune.tasks import custom, english, french, others

_DECLARED = (*english.TASKS, *french.TASKS, *others.TASKS)
TASKS: dict[str, Task] = {task.name: task for task in _DECLARED}


def find(name: str) -> Task:
    """The task of that name, or the one that a file NAME.yaml declares.

    Raises ValueError with the nearest names, or what `custom.read` finds.
    """
    if name.endswith((".yaml", ".yml")):
        return custom.read(Path(name))
    if name not in TASKS:
        nearest = difflib.get_close_matches(name, TASKS, n=3, cutoff=0)
        raise ValueError(f"{name!r}: no such task; the nearest are {', '.join(nearest)}")
    return TASKS[name]
