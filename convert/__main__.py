"""Bring a model in, take one out, compare two.

    python -m convert from-hf answerdotai/ModernBERT-base ckpt/      # an id or a directory
    python -m convert to-hf runs/fr_large@clm out/ --dtype bfloat16  # a run or one of its steps
    python -m convert to-hf runs/fr_large out/ --average 4           # mean of the decay's last 4
    python -m convert verify ckpt/ out/                              # layer by layer
    python -m convert verify ckpt/ --reference torch                 # against transformers

A model on disk is a Hugging Face directory with safetensors, whatever it came from: that is what
`init` in a config and `cpt_jax.from_pretrained` read. Exit status: 0, 1 where two models differ,
2 for an error.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import jax
import numpy as np

from convert import loss, pickles, verify
from cpt_jax import checkpoint
from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec
from cpt_jax.training.card import model_card


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m convert", description="Models in and out, and compared."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("from-hf", help="any ModernBERT checkpoint to a clean directory")
    command.set_defaults(command=from_hf)
    command.add_argument("source", help="directory or Hub id (owner/name or owner/name@revision)")
    command.add_argument("out", type=Path, help="directory to write; must be absent or empty")
    command.add_argument("--dtype", choices=hub.DTYPES, default="float32", help="of the weights")
    command.add_argument(
        "--new-head", type=int, metavar="SEED", help="draw the head an encoder-only file lacks"
    )

    command = commands.add_parser("to-hf", help="a checkpoint of a run to a Hugging Face directory")
    command.set_defaults(command=to_hf)
    command.add_argument("source", help="RUN (its last checkpoint), RUN@STEP or RUN@PHASE")
    command.add_argument("out", type=Path, help="directory to write; must be absent or empty")
    command.add_argument("--dtype", choices=hub.DTYPES, default="float32", help="of the weights")
    command.add_argument(
        "--tokenizer",
        type=Path,
        help="directory of its tokenizer (default: that of the run's data)",
    )
    command.add_argument(
        "--average",
        type=_count,
        default=1,
        metavar="K",
        help="the mean of the phase's last K checkpoints up to that one",
    )

    command = commands.add_parser("verify", help="compare two models layer by layer")
    command.set_defaults(command=compare)
    command.add_argument("a", metavar="A", help="directory, Hub id or run")
    command.add_argument("b", metavar="B", nargs="?", help="the same; default: A")
    command.add_argument(
        "--reference", choices=("torch",), help="run A in transformers instead of our model"
    )
    text = command.add_mutually_exclusive_group()
    text.add_argument("--text", type=Path, help="text to read (default: English and French)")
    text.add_argument("--tokens", type=_count, help="this many random tokens instead of text")
    command.add_argument(
        "--max-tokens", type=_count, default=512, help="truncate text to this length"
    )
    command.add_argument(
        "--tolerance", type=float, default=1e-4, help="relative to a layer's largest value"
    )

    command = commands.add_parser("loss", help="transformers' loss on rows that a check corrupted")
    command.set_defaults(command=loss_of)
    command.add_argument("model", type=Path, help="a Hugging Face directory")
    command.add_argument("rows", type=Path, help="what `cpt_jax.preflight` wrote: an .npz")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def from_hf(options: argparse.Namespace) -> int:
    """`from-hf`: read what is there, in any accepted form, and write it in ours."""
    directory = pickles.resolve(options.source)
    spec = hub.load_spec(directory)
    key = None if options.new_head is None else jax.random.key(options.new_head)
    if pickles.only_pickles(directory):
        params = pickles.load_params(directory, spec, head_key=key)
    else:
        params = hub.load_params(directory, spec, head_key=key)
    _save(options, spec, params, directory)
    return 0


def to_hf(options: argparse.Namespace) -> int:
    """`to-hf`: a checkpoint of a run, with the tokenizer of its data."""
    reference = options.source
    if not checkpoint.names_checkpoint(reference):
        last = checkpoint.latest_step(Path(reference))
        if last is None:
            raise ValueError(f"{reference}: no complete checkpoint in {reference}/checkpoints")
        reference = f"{reference}@{last}"
    run, step = checkpoint.find_checkpoint(reference)
    description = checkpoint.read_run(run)
    spec = ModelSpec.from_hf(description["model"], f"{run}/config.json")
    if options.tokenizer and not (options.tokenizer / "tokenizer.json").is_file():
        raise FileNotFoundError(f"--tokenizer {options.tokenizer}: no tokenizer.json there")
    tokenizer = options.tokenizer or Path(description["config"]["data"]["sources"][0]["path"])
    if options.average == 1:
        params, steps = checkpoint.load_params(reference), [step]
        print(f"{run}: checkpoint of step {step}")
    else:
        params, steps = checkpoint.average_params(reference, options.average)
        print(f"{run}: mean of the checkpoints of steps {', '.join(map(str, steps))}")
    _save(options, spec, params, tokenizer, model_card(run, step, averaged=steps))
    return 0


def _save(
    options: argparse.Namespace, spec: ModelSpec, params, tokenizer: Path, card: str | None = None
):
    found = (tokenizer / "tokenizer.json").is_file()
    hub.save(options.out, spec, params, options.dtype, tokenizer if found else None, card)
    print(f"{options.out}: {spec.num_params:,} parameters in {options.dtype}")
    if not found:
        print(f"no tokenizer written: {tokenizer} has no tokenizer.json")


def compare(options: argparse.Namespace) -> int:
    """`verify`: where, if anywhere, two models part."""
    names = (options.a, options.b or options.a)
    if options.b is None and options.reference is None:
        raise ValueError("verify takes two models, or one with --reference torch")
    a, b = (hub.resolve(name) for name in names)
    specs = [hub.load_spec(path) for path in (a, b)]
    for field in dataclasses.fields(ModelSpec):
        ours, theirs = (getattr(spec, field.name) for spec in specs)
        if ours != theirs:
            print(f"{field.name}: {ours} in A, {theirs} in B")
    words = verify.tokenizer_difference(a, b)
    ids = _tokens(options, (a, b), min(spec.vocab_size for spec in specs))
    states = verify.torch_states if options.reference else verify.jax_states
    differences = verify.differences(states(a, ids), verify.jax_states(b, ids))
    reader = " in transformers" if options.reference else ""
    print(f"{len(ids)} tokens; A: {names[0]}{reader}, B: {names[1]}")
    print(verify.table(differences))
    if words:
        print(f"their tokenizers differ: {words}")
    parted = next((d for d in differences if not d.relative <= options.tolerance), None)
    if parted is None:
        print(f"equal within {options.tolerance:g} of each layer's largest value")
        return 1 if words else 0
    print(f"they first part at {parted.name}: {parted.relative:.1e} > {options.tolerance:g}")
    return 1


def _tokens(options: argparse.Namespace, directories: tuple[Path, Path], words: int) -> np.ndarray:
    """The ids that `verify` reads: at random below `words`, or of a text."""
    if options.tokens:
        return np.random.default_rng(0).integers(0, words, options.tokens)
    text = options.text.read_text("utf-8") if options.text else verify.SENTENCES
    ids = verify.encode(text, directories, options.max_tokens)
    if not len(ids):
        raise ValueError(f"{options.text}: no tokens in it; give a text, or --tokens N")
    if max(ids) >= words:
        raise ValueError(
            f"the tokenizer gives id {max(ids)} and the models have {words} words: "
            "it is not theirs; use --tokens N"
        )
    return ids


def loss_of(options: argparse.Namespace) -> int:
    """`loss`: one JSON object on the last line."""
    print(json.dumps({"loss": loss.torch_loss(options.model, options.rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
