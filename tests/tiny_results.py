"""Results of fine-tuning that nobody ran."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cpt_jax.finetune.results import Result, write


def result(*, task="ncbi", seed=0, score=0.8, model="models/a", settings=None, **fields) -> Result:
    """A result of the metric `f1`."""
    about = {"kind": "tagging", "metric": "f1", "best_step": 10, "steps": 20, "seconds": 1.5}
    scores = {"test": {"f1": score}, "dev": {"f1": score}}
    settings = {"learning_rate": 5e-5} if settings is None else settings
    given = {"task": task, "seed": seed, "model": model, "settings": settings}
    return Result(**{**about, **scores, **given, **fields})


def write_results(out: Path, scores: Mapping[str, Sequence[float]], **fields) -> Path:
    """A model's directory: the scores of seeds 0, 1, ... of each task."""
    for task, values in scores.items():
        for seed, score in enumerate(values):
            fields.setdefault("model", f"models/{out.name}")
            write(out, result(task=task, seed=seed, score=score, **fields))
    return out
