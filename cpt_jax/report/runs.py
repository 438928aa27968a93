"""Reads run directories: ``config.json``, what was planned; ``metrics.jsonl``, what happened."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cpt_jax import provenance
from cpt_jax.telemetry import METRICS, read_metrics

OBJECTIVES = ("mlm", "clm")
Heldout = dict[str, dict[str, float]]  # source -> objective -> loss in nats


@dataclasses.dataclass(frozen=True)
class PhaseSummary:
    """What one phase of a run came to; tokens are counted from the start of the run."""

    name: str
    objective: str
    first_token: int
    last_token: int
    finished: bool
    seconds: float | None  # of training, without evaluation and saving
    tokens_per_second: float | None  # the median of what was reported
    heldout: Heldout  # at the last evaluation of the phase; empty where there was none


@dataclasses.dataclass(frozen=True)
class Run:
    """One run directory, read.

    Attributes:
      label: what the page calls it: its directory's name, and its path where two share a name.
      config: the run's config, as plain JSON.
      data: the sha256 of each source's manifest.
      versions: of the packages it ran with.
      starts: how it was started, and started again (``provenance``).
      train: the "train" lines of ``metrics.jsonl``; `evals` its "eval" lines.
      phases: those that began, in order.
      start: held-out losses before the first step.
      samples: the list in ``samples.json``; see ``page``.
    """

    label: str
    config: dict[str, Any]
    data: dict[str, str]
    versions: dict[str, str]
    starts: list[dict[str, Any]]
    train: list[dict[str, Any]]
    evals: list[dict[str, Any]]
    phases: list[PhaseSummary]
    start: Heldout
    samples: list[dict[str, Any]]

    @property
    def sources(self) -> list[str]:
        """The sources with held-out losses, in the order in which they were evaluated."""
        return list(dict.fromkeys(line["source"] for line in self.evals))


def read_runs(directories: Sequence[Path]) -> list[Run]:
    """Returns the runs in the order given.

    Raises:
      FileNotFoundError: a directory has no ``config.json`` or ``metrics.jsonl``.
      ValueError: a file is not what it should be; names the file.
    """
    names = [path.resolve().name for path in directories]
    labels = [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, directories, strict=True)
    ]
    return [_read_run(path, label) for path, label in zip(directories, labels, strict=True)]


def _read_run(path: Path, label: str) -> Run:
    about = _read_json(path / "config.json")
    if not (path / METRICS).is_file():
        raise FileNotFoundError(f"{path / METRICS}: no such file; has the run begun?")
    lines = read_metrics(path / METRICS)
    train = [line for line in lines if line["kind"] == "train"]
    evals = [line for line in lines if line["kind"] == "eval"]
    samples = path / "samples.json"
    return Run(
        label=label,
        config=about["config"],
        data=about.get("data", {}),
        versions=about["versions"],
        starts=provenance.read_starts(path),
        train=train,
        evals=evals,
        phases=[
            _summary(phase, [line for line in lines if line["phase"] == phase["name"]])
            for phase in about["config"]["phases"]
            if any(line["kind"] != "eval" and line["phase"] == phase["name"] for line in lines)
        ],
        start=_last_heldout([line for line in evals if line["step"] == 0]),
        samples=_read_json(samples) if samples.is_file() else [],
    )


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a run directory has one")
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def _summary(phase: dict[str, Any], lines: list[dict[str, Any]]) -> PhaseSummary:
    train = [line for line in lines if line["kind"] == "train"]
    seconds = [line["seconds"] for line in train if line["seconds"] is not None]
    rates = [line["tokens_per_second"] for line in train if line["tokens_per_second"] is not None]
    return PhaseSummary(
        name=phase["name"],
        objective=phase["objective"],
        first_token=next((line["tokens"] for line in lines if line.get("event") == "start"), 0),
        last_token=lines[-1]["tokens"],
        finished=any(line.get("event") == "end" for line in lines),
        seconds=sum(seconds) if seconds else None,
        tokens_per_second=statistics.median(rates) if rates else None,
        heldout=_last_heldout([x for x in lines if x["kind"] == "eval" and x["step"] > 0]),
    )


def _last_heldout(evals: list[dict[str, Any]]) -> Heldout:
    return {line["source"]: {o: line[f"{o}_loss"] for o in OBJECTIVES} for line in evals}
