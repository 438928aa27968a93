"""Puts parts of one model into another: which parts carry what a model has learned.

    python -m cpt_jax.analysis transplant --donor runs/detour --recipient runs/mlm \\
        --preset 0-7 --out mixed/low
    python -m cpt_jax.analysis transplant --donor A --recipient B --paths '**.mlp.**' --out mixed/m

What is written is a Hugging Face directory like any other: to be fine-tuned (`cpt_jax.finetune`),
or looked at. Models are directories, Hub ids, runs of ours, or their checkpoints.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cpt_jax.analysis.models import check_alike, open_model
from cpt_jax.lock import tell
from cpt_jax.model import hub
from cpt_jax.trees import layer_patterns, select

PARTS = {"attention": "model.layers.*.attn*.**", "mlp": "model.layers.*.mlp*.**", "all": "**"}


def patterns_of(preset: str, layers: int) -> tuple[str, ...]:
    """The paths of a preset: layers "0-7", "attention", "mlp", or of layers alone: "3.attention".

    Raises: ValueError for anything else, or layers that the model does not have.
    """
    if preset in PARTS:
        return (PARTS[preset],)
    numbers, _, part = preset.partition(".")
    if part not in ("", "attention", "mlp"):
        raise ValueError(f"preset {preset!r}: allowed: {', '.join(PARTS)}, 0-7, 3.attention, 3.mlp")
    chosen = layer_patterns(numbers)
    last = max(int(number) for number in re.findall(r"\d+", numbers))
    if last >= layers:
        raise ValueError(f"preset {preset!r}: the model has layers 0 to {layers - 1}")
    if not part:
        return chosen
    name = {"attention": "attn", "mlp": "mlp"}[part]
    return tuple(pattern.replace(".**", f".{name}*.**") for pattern in chosen)


def transplant(
    donor: Mapping[str, Any], recipient: Mapping[str, Any], patterns: Iterable[str]
) -> dict[str, Any]:
    """The recipient's parameters, with the donor's at the paths that the patterns name.

    Raises: ValueError: their paths or shapes differ, or a pattern names none.
    """
    wrong = [
        path
        for path in sorted(donor.keys() | recipient.keys())
        if path not in donor or path not in recipient or donor[path].shape != recipient[path].shape
    ]
    if wrong:
        raise ValueError(f"donor and recipient differ in {', '.join(wrong[:5])}")
    patterns = list(patterns)
    chosen = select(recipient, patterns) if patterns else frozenset()
    return {path: donor[path] if path in chosen else recipient[path] for path in recipient}


def main(arguments: Sequence[str]) -> None:
    """Transplants, and writes the model.

    Raises: ValueError, OSError: what cannot be put together, read or written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.analysis transplant",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--donor", required=True)
    parser.add_argument("--recipient", required=True)
    parser.add_argument(
        "--preset", nargs="+", default=[], help="0-7, attention, mlp, all, 3.attention ..."
    )
    parser.add_argument("--paths", nargs="+", default=[], help="patterns of parameters' paths")
    parser.add_argument("--out", type=Path, required=True, help="directory of the model")
    options = parser.parse_args(arguments)
    donor, recipient = open_model(options.donor), open_model(options.recipient)
    check_alike([donor, recipient])
    layers = recipient.spec.num_hidden_layers
    patterns = [p for preset in options.preset for p in patterns_of(preset, layers)]
    patterns += options.paths
    if not patterns:
        raise ValueError("--preset or --paths: what is to be transplanted?")
    mixed = transplant(donor.params(), recipient.params(), patterns)
    hub.save(options.out, recipient.spec, mixed, tokenizer_dir=recipient.tokenizer)
    moved = len(select(mixed, patterns))
    tell(f"{moved} of {len(mixed)} arrays of {donor.name} in {recipient.name}: {options.out}")
