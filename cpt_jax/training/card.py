"""The model card of an exported model, made from the run's own records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cpt_jax import checkpoint, provenance
from cpt_jax import config as config_lib
from cpt_jax.config import Config, Phase
from cpt_jax.telemetry import METRICS, read_metrics
from cpt_jax.training.step import mask_modes

USE = """\
```python
from transformers import pipeline

pipeline("fill-mask", model="PATH OR ID OF THIS MODEL")("The patient was given [MASK].")
```

or, in JAX with documents packed into rows, `cpt_jax.from_pretrained("PATH OR ID OF THIS MODEL")`.
"""


def model_card(
    workdir: Path, step: int, *, license: str | None = None, averaged: Sequence[int] = ()
) -> str:
    """Returns the card, Markdown under YAML, of a run's model after ``step`` steps.

    It holds no text of any document and no path: sources go by their names, and so does a base
    model that is not on the Hub. ``averaged`` are the steps that its parameters are the mean of;
    ``license`` is told instead of the one that the run began with.

    Raises:
      ValueError: if ``workdir`` is no run directory, or its metrics cannot be read.
    """
    run = checkpoint.read_run(workdir)
    config = config_lib.parse(run["config"])
    license = license or config.export.license
    starts = provenance.read_starts(workdir)
    base, commit = _base_model(config.init.source, starts)
    fields = {
        "license": license,
        "base_model": base if commit else None,
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["modernbert", "continued-pretraining", "cpt_jax"],
    }
    # JSON is YAML, and quotes what YAML would take for a number or a truth value.
    front = [f"{key}: {json.dumps(value)}" for key, value in fields.items() if value is not None]
    phases = _phases_until(config, step)
    tokens = sum(seen for _, seen in phases)
    before = run.get("origin", {}).get("tokens", 0)
    licence = license or (
        "not stated. Set `export.license` in the run's config, after looking at the licences of "
        "the base model and of the text"
    )
    mean = f"{', '.join(map(str, averaged))} steps"
    parts = [
        "---\n" + "\n".join(front) + "\n---",
        f"# {config.name}",
        f"A ModernBERT encoder, pretrained further with cpt_jax from **{base}**. "
        f"Training took {tokens:,} tokens"
        + (f", after {before:,} of the run that it continues." if before else ".")
        + (f" The weights are the mean of those after {mean}." if len(averaged) > 1 else ""),
        f"Licence: {licence}.",
        "## Use\n\n" + USE,
        "## Training\n\n" + _phase_table(phases),
        "Tokens by source (shares of the mixture):\n\n" + _mixture_table(config, phases),
        _heldout(workdir, step),
        "## Versions\n\n" + _versions(run, starts, commit),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _base_model(source: str, starts: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Returns what a card calls an ``init.source``, and its commit where it came from the Hub.

    A Hub id is given whole, a path by its last name; which of them ``a/b`` was, the start knows.
    """
    if source == "scratch":
        return "random parameters", None
    init = next((start["init"] for start in starts if "init" in start), {})
    commit = init.get("commit")
    return (source.partition("@")[0] if commit else Path(source).name), commit


def _phases_until(config: Config, step: int) -> list[tuple[Phase, int]]:
    """Returns the phases that began, each with the tokens it had seen after ``step`` steps."""
    seen = []
    for phase in config.phases:
        steps = min(step, config_lib.phase_steps(phase, config.data.seq_len))
        if steps > 0:
            seen.append((phase, steps * phase.batch_size * config.data.seq_len))
        step -= steps
    return seen


def _phase_table(phases: Sequence[tuple[Phase, int]]) -> str:
    names = {"clm": "next token (CLM)", "mlm": "masked tokens (MLM)"}
    rows = []
    for phase, tokens in phases:
        rate = phase.learning_rate
        mask = "-" if phase.mask_rate is None else f"{phase.mask_rate:.0%}"
        attention = mask_modes(phase)
        rows.append(
            [
                phase.name,
                names[phase.objective],
                mask,
                attention if isinstance(attention, str) else "by layer",
                f"{tokens:,}",
                f"{rate.peak:g}, {rate.kind}",
                f"{phase.batch_size:,} rows",
            ]
        )
    heads = ["phase", "objective", "masked", "attention", "tokens", "learning rate", "batch"]
    return _table(heads, rows)


def _mixture_table(config: Config, phases: Sequence[tuple[Phase, int]]) -> str:
    rows = []
    for source in config.data.sources:
        cells = [source.name]
        for phase, tokens in phases:
            weights = phase.mixture or {s.name: s.weight for s in config.data.sources}
            share = weights.get(source.name, 0) / sum(weights.values())
            cells.append(f"{share:.1%}, {share * tokens:,.0f}")
        rows.append(cells)
    return _table(["source", *(phase.name for phase, _ in phases)], rows)


def _heldout(workdir: Path, step: int) -> str:
    """Returns the losses before the first step and at the last evaluation up to ``step``."""
    path = workdir / METRICS
    lines = read_metrics(path) if path.is_file() else []
    lines = [line for line in lines if line["kind"] == "eval" and line["step"] <= step]
    if not lines:
        return ""
    rows = []
    for source in dict.fromkeys(line["source"] for line in lines):
        own = [line for line in lines if line["source"] == source]
        for line in (own[0], own[-1]) if len(own) > 1 else own:
            losses = [
                f"{line[f'{name}_loss']:.4f} ({line[f'{name}_targets']:,.0f})"
                for name in ("mlm", "clm")
            ]
            rows.append([source, f"{line['tokens']:,}", *losses])
    heads = ["source", "tokens seen", "MLM loss", "CLM loss"]
    return (
        "## Held-out loss\n\nIn nats per target; in brackets, how many targets it is a mean of.\n\n"
        + _table(heads, rows)
    )


def _versions(
    run: Mapping[str, Any], starts: Sequence[Mapping[str, Any]], commit: str | None
) -> str:
    packages = [f"{name} {version}" for name, version in run.get("versions", {}).items()]
    codes = [start["code"] for start in starts if start.get("code")]
    names = [code["commit"] + (" (changed)" if code["changed"] else "") for code in codes]
    lines = [", ".join(packages)] if packages else []
    if names:
        lines.append(f"commit of cpt_jax: {', '.join(dict.fromkeys(names))}")
    if commit:
        lines.append(f"commit of the base model: {commit}")
    return "\n".join(f"- {line}" for line in lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(heads), "|" + "---|" * len(heads), *map(line, rows)])
