"""Checkpoints in torch's pickle format, read with `weights_only` and never fetched unasked."""

import os
import pickle
from pathlib import Path

import jax
import numpy as np

from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
PATTERNS = (*hub.PATTERNS, WEIGHTS, INDEX, "pytorch_model-?????-of-?????.bin")


def only_pickles(directory: Path) -> bool:
    """Whether a directory has weights as pickles and none as safetensors."""
    found = {
        name for name in (hub.WEIGHTS, hub.INDEX, WEIGHTS, INDEX) if (directory / name).exists()
    }
    return bool(found) and not found & {hub.WEIGHTS, hub.INDEX}


def resolve(source: str) -> Path:
    """`hub.resolve`, fetching pickles of a Hub repository only where it has no safetensors."""
    directory = hub.resolve(source)
    if (
        Path(source).is_dir()
        or (directory / hub.WEIGHTS).exists()
        or (directory / hub.INDEX).exists()
    ):
        return directory
    return hub.resolve(source, PATTERNS)


def load_params(
    directory: Path, spec: ModelSpec, *, head_key: jax.Array | None = None
) -> dict[str, np.ndarray]:
    """Parameters from pytorch_model.bin or its shards; see `hub.from_tensors`.

    torch reads nothing but tensors and plain containers from them: a file that would run code when
    unpickled is refused. Raises: FileNotFoundError; ValueError.
    """
    import torch  # here, so that the other commands work without it

    tensors: dict[str, np.ndarray] = {}
    for file in hub.weight_files(directory, WEIGHTS, INDEX):
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(f"{file}: not a file of tensors alone: {error}") from error
        values = state.values() if isinstance(state, dict) else [None]
        if not all(isinstance(tensor, torch.Tensor) for tensor in values):
            raise ValueError(f"{file}: not a flat dictionary of tensors")
        tensors |= {key: tensor.float().numpy() for key, tensor in state.items()}
    return hub.from_tensors(tensors, spec, os.fspath(directory), head_key=head_key)
