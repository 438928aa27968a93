"""The end of a run: its Hugging Face directory."""

from collections.abc import Mapping
from pathlib import Path

import jax

from cpt_jax import gathering, remote
from cpt_jax.config import Config
from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training.card import model_card


def is_written(workdir: Path) -> bool:
    """Whether a run's Hugging Face directory is there, whole."""
    return all((workdir / "export" / name).is_file() for name in (hub.CONFIG, hub.WEIGHTS))


def export(
    config: Config, spec: ModelSpec, params: Mapping[str, jax.Array], workdir: Path, step: int
) -> Path:
    """Writes ``WORKDIR/export``, unless an earlier start of this run did, and returns it.

    All processes of a run take part, and the first of them writes.

    Raises:
      OSError: it could not be written.
    """
    directory = workdir / "export"
    if is_written(workdir):
        return directory
    whole = {}
    for path, array in gathering.fetch(params):
        if jax.process_index() == 0:
            whole[path] = array
    if jax.process_index():
        return directory
    try:
        hub.save(
            directory,
            spec,
            whole,
            dtype=config.export.dtype,
            tokenizer_dir=Path(config.data.sources[0].path),
            card=model_card(workdir, step, license=config.export.license),
        )
    except Exception as error:  # safetensors has its own
        run = remote.shown(workdir)
        raise OSError(
            f"{run}: the model could not be written: {error}\nThe last checkpoint is "
            "complete: the same command writes the model once that is mended"
        ) from error
    return directory
