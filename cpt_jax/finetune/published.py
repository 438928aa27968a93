"""The paper's tables, as printed (``published.json``)."""

import functools
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Published(NamedTuple):
    """One table of figures in percent.

    Attributes:
      source: where it is printed.
      language: of its tasks.
      metric: of all its tasks.
      seeds: behind each figure.
      tasks: its columns.
      rows: a figure for each column, by model.
    """

    source: str
    language: str
    metric: str
    seeds: int
    tasks: Sequence[str]
    rows: Mapping[str, Sequence[float]]


@functools.cache
def read() -> tuple[Published, ...]:
    """Returns all the tables."""
    file = importlib.resources.files("cpt_jax.finetune") / "published.json"
    tree = json.loads(file.read_text(encoding="utf-8"))
    return tuple(
        Published(source=tree["source"], metric=tree["metric"], **table) for table in tree["tables"]
    )
