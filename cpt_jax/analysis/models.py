"""Models to be looked at: Hugging Face directories and ids, runs of ours, and their checkpoints."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cpt_jax import checkpoint, provenance
from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec


class Opened(NamedTuple):
    """A model on disk.

    Attributes:
      name: as it was given.
      spec: its size and shape.
      tokenizer: the directory of its tokenizer.
      about: what identifies its weights.
    """

    name: str
    spec: ModelSpec
    tokenizer: Path
    about: Mapping[str, Any]

    def params(self) -> Mapping[str, Any]:
        """Its parameters by path, fp32."""
        if checkpoint.names_checkpoint(self.name):
            return checkpoint.load_params(self.name)
        return hub.load_params(self.name, self.spec)


def open_model(name: str) -> Opened:
    """Opens a directory, a Hub id, a run (its export), or a checkpoint, RUN@STEP or RUN@PHASE.

    Raises: ValueError, FileNotFoundError: there is none, or it is damaged; names it.
    """
    if not checkpoint.names_checkpoint(name):
        directory = hub.resolve(name)
        return Opened(name, hub.load_spec(name), directory, provenance.describe_init(name))
    run, step = checkpoint.find_checkpoint(name)
    described = checkpoint.read_run(run)
    spec = ModelSpec.from_hf(described["model"], f"{run}/config.json")
    sources = described["config"]["data"]["sources"]
    named = f"{run}@{step}"
    return Opened(named, spec, Path(sources[0]["path"]), provenance.describe_init(named))


def check_alike(models: list[Opened]) -> None:
    """Raises ValueError, naming both, where two models are not of one shape."""
    first = models[0]
    for other in models[1:]:
        wrong = [
            f"{name} {a} and {b}"
            for name in ("num_hidden_layers", "hidden_size", "vocab_size")
            if (a := getattr(first.spec, name)) != (b := getattr(other.spec, name))
        ]
        if wrong:
            raise ValueError(f"{first.name} and {other.name}: not of one shape: {'; '.join(wrong)}")


def regions_of(text: str | None, layers: int) -> dict[str, range]:
    """Groups of layers, "0-7,8-14,15-21" as ranges by their names; None: thirds.

    Raises: ValueError for anything else, or layers that the model does not have.
    """
    if text is None:
        edges = np.linspace(0, layers, 4).round().astype(int)
        parts = [(int(a), int(b) - 1) for a, b in itertools.pairwise(edges) if b > a]
    else:
        try:
            parts = [tuple(map(int, part.split("-"))) for part in text.split(",")]
            parts = [(part[0], part[-1]) for part in parts]
        except ValueError:
            raise ValueError(f"regions: {text!r} is not like 0-7,8-14,15-21") from None
    for first, last in parts:
        if not 0 <= first <= last < layers:
            raise ValueError(f"regions: {first}-{last}; the model has layers 0 to {layers - 1}")
    return {f"{first}-{last}": range(first, last + 1) for first, last in parts}
