"""What a run starts from, and what can be wrong with it before any compute is spent."""

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding

from cpt_jax import checkpoint, provenance, remote, sharding, telemetry
from cpt_jax.addresses import without_keys
from cpt_jax.config import Config, phase_steps, to_dict
from cpt_jax.data.sources import Source, open_source, prepare_command, shared_tokenizer
from cpt_jax.data.tokenizer import other_words
from cpt_jax.model import hub, modernbert
from cpt_jax.model.spec import SIZES, ModelSpec
from cpt_jax.seeds import hash_seed
from cpt_jax.training.objectives import Vocabulary


@dataclasses.dataclass(frozen=True)
class Start:
    """A run that can begin: its data opened, its model known, everything checked.

    Attributes:
      spec: the model.
      train: training rows of each source, by name.
      heldout: held-out rows of each source, by name.
      vocabulary: of the tokenizer that all sources share.
      origin: where rows and tokens are counted from.
      description: what identifies the run, as JSON types (``checkpoint.open_run``).
      begun: whether its directory holds this run already.
    """

    spec: ModelSpec
    train: Mapping[str, Source]
    heldout: Mapping[str, Source]
    vocabulary: Vocabulary
    origin: checkpoint.Origin
    description: dict[str, Any]
    begun: bool


def prepare_start(config: Config, workdir: Path | None) -> Start:
    """Opens the data, finds the model and checks that they belong together.

    What a run that began already knows of itself is read from its directory, so that resuming it
    does not depend on the model or run it was started from.

    Raises:
      ValueError: another run in ``workdir``, a missing corpus (with the command that makes it),
        corpora of different tokenizers or row lengths, a model that is not the tokenizer's.
      FileNotFoundError: an init that is not there.
    """
    begun = None
    if workdir is not None and (workdir / "config.json").exists():
        checkpoint.refuse_other_run(workdir, {"config": to_dict(config)})
        begun = checkpoint.read_run(workdir)
    train, heldout = {}, {}
    for source in config.data.sources:
        if not (Path(source.path) / "manifest.json").is_file():
            command = prepare_command(
                source.path,
                raw=source.raw,
                tokenizer=config.data.tokenizer,
                seq_len=config.data.seq_len,
            )
            raise FileNotFoundError(
                f"source {source.name!r}: {source.path} is not a prepared corpus. Make it with\n"
                f"  {command}"
            )
        train[source.name] = open_source(source.path, "train")
        heldout[source.name] = open_source(source.path, "heldout")
    tokenizer = shared_tokenizer(train, config.data.seq_len)
    data = {name: source.fingerprint for name, source in train.items()}
    if begun:
        spec, origin = ModelSpec.from_hf(begun["model"]), checkpoint.Origin(**begun["origin"])
    else:
        origin, spec = _origin(config, data), _model_spec(config, tokenizer)
    _check_vocabulary(spec, tokenizer)
    if config.data.seq_len > spec.max_position_embeddings:
        raise ValueError(
            f"config.data.seq_len: {config.data.seq_len} is more than the model's "
            f"max_position_embeddings, {spec.max_position_embeddings}, to which the exported "
            "tokenizer would cut; config.model.overrides.max_position_embeddings raises it"
        )
    if not begun and not checkpoint.names_checkpoint(config.init.source):
        _check_tokenizer(config.init.source, Path(config.data.sources[0].path))
    description = {
        "config": to_dict(config),
        "data": data,
        "corpora": {name: _corpus(source) for name, source in train.items()},
        "model": json.loads(json.dumps(spec.to_hf())),
        "origin": dataclasses.asdict(origin),
    }
    vocabulary = Vocabulary(
        mask_id=tokenizer["mask_id"],
        special_ids=tuple(tokenizer["special_ids"]),
        size=tokenizer["vocab_size"],
    )
    return Start(spec, train, heldout, vocabulary, origin, description, begun is not None)


def _corpus(source: Source) -> dict[str, Any]:
    """Returns what a person would ask of a corpus whose fingerprint has changed."""
    manifest = source.manifest
    return {
        "tokenizer": manifest["tokenizer"]["sha256"][:12],
        **{key: manifest[key] for key in ("template", "seed", "heldout_fraction", "documents")},
        "tokens": source.tokens,
    }


def identity(start: Start, latest: int | None) -> dict[str, Any]:
    """Returns what all processes of a run must have in common before any of them computes.

    Args:
      start: what the run starts from.
      latest: step of its latest checkpoint.
    """
    hashed = {
        name: hashlib.sha256(json.dumps(start.description[name]).encode()).hexdigest()[:12]
        for name in ("config", "data", "model", "origin")
    }
    command = [without_keys(word) for word in sys.argv[1:]]
    return {"command": command, **hashed, "latest checkpoint": latest, "jax": jax.__version__}


def check_history(config: Config, workdir: Path) -> None:
    """Makes sure that what a run in ``workdir`` has written goes with what is asked of it now.

    Raises:
      ValueError: a metrics.jsonl or starts.jsonl that is not a run's; checkpoints that were there
        and are gone, as starting anew would drop the metrics; a model exported already in another
        dtype, or under another licence.
    """
    metrics, export = workdir / telemetry.METRICS, workdir / "export"
    provenance.read_starts(workdir)  # the model card tells of them, after the hours of compute
    lines = telemetry.read_metrics(metrics) if metrics.exists() else []
    if lines and checkpoint.latest_step(workdir) is None:
        reached = max(line["step"] for line in lines)
        began = checkpoint.read_run(workdir)["config"]["checkpoint"]["every_steps"]
        every = max(began, config.checkpoint.every_steps)  # it may be another than at the start
        first = min(every, phase_steps(config.phases[0], config.data.seq_len))
        # A save begins when the one before it is whole: past two of them there was a checkpoint.
        run = remote.shown(workdir)
        begun = remote.url_of(workdir) or (workdir / "checkpoints").is_dir()
        if reached > first + every or not begun:
            raise ValueError(
                f"{run}: {metrics.name} tells of {reached} steps and there is no complete "
                "checkpoint: they were deleted. Put checkpoints/ back; or, to train from the "
                "beginning, delete the run directory or name another --workdir"
            )
        if jax.process_index() == 0:
            print(
                f"{run}: stopped at step {reached} before its first checkpoint: starting anew",
                file=sys.stderr,
            )
    if (export / "config.json").is_file():
        there = hub.read_json(export / "config.json").get("dtype")
        if there != config.export.dtype:
            raise ValueError(
                f"config.export.dtype: {config.export.dtype!r}, and {export} is written already, "
                f"in {there}. Write another with\n  python -m convert to-hf {workdir} DIRECTORY "
                f"--dtype {config.export.dtype}"
            )
    card, license = export / "README.md", config.export.license
    lines = card.read_text().splitlines() if card.is_file() else []
    written = [
        line.partition(":")[2].strip(" \"'") for line in lines if line.startswith("license:")
    ]
    # As the card quotes it, or as someone typed it.
    if license and lines and not {license, json.dumps(license).strip('"')} & {*written}:
        raise ValueError(
            f"config.export.license: {license!r}, and {card} is written already, without it: a "
            f"line 'license: {license}' belongs between the two lines of dashes at its beginning"
        )


def initial_params(
    config: Config, spec: ModelSpec, shardings: Mapping[str, NamedSharding] | None = None
) -> dict[str, Any]:
    """Returns the parameters that ``config.init`` names, fp32, by path.

    Args:
      config: the run.
      spec: the model.
      shardings: where they go, by path, each part straight to its device; None: wherever they are
        easiest to have, on a host or its first device.

    Raises:
      ValueError: if they are not those of ``spec``; every unknown, missing or misshapen tensor.
    """
    source = config.init.source
    if source == "scratch":
        key = jax.random.key(hash_seed(config.seed, "parameters"))
        draw = functools.partial(modernbert.init_params, spec)
        # Random numbers do not depend on how they are cut: each device draws its own.
        return (draw if shardings is None else jax.jit(draw, out_shardings=shardings))(key)
    if checkpoint.names_checkpoint(source):
        params = checkpoint.load_params(source, shardings)
        hub.check_params(source, spec, params)
        return params
    params = hub.load_params(source, spec)
    return params if shardings is None else sharding.place(params, shardings)


def _model_spec(config: Config, tokenizer: Mapping[str, Any]) -> ModelSpec:
    source = config.init.source
    if checkpoint.names_checkpoint(source):
        run, _ = checkpoint.find_checkpoint(source)
        spec = ModelSpec.from_hf(checkpoint.read_run(run)["model"])
    elif source != "scratch":
        spec = hub.load_spec(source)
    else:
        size = config.model.size
        assert size is not None  # config.parse
        if size not in SIZES and not Path(size).is_file():
            known = ", ".join(SIZES)
            raise ValueError(f"config.model.size: {size!r} is neither {known} nor a config.json")
        spec = SIZES.get(size) or hub.read_spec(Path(size))
        ids = {f"{name}_token_id": tokenizer[f"{name}_id"] for name in ("pad", "cls", "sep")}
        ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
        rounded = -(-tokenizer["vocab_size"] // 64) * 64  # full tiles in the decoder's product
        spec = dataclasses.replace(spec, **ids, vocab_size=rounded)
    return spec.override(config.model.overrides, "config.model.overrides")


def _check_vocabulary(spec: ModelSpec, tokenizer: Mapping[str, Any]) -> None:
    if spec.vocab_size < tokenizer["vocab_size"]:
        raise ValueError(
            f"the tokenizer of the data has {tokenizer['vocab_size']} entries and the model only "
            f"{spec.vocab_size}: the data was prepared for another model"
        )
    for name in ("pad", "cls", "sep"):
        ours, theirs = getattr(spec, f"{name}_token_id"), tokenizer[f"{name}_id"]
        if ours is not None and ours != theirs:
            raise ValueError(
                f"the model's {name} token is {ours} and that of the data's tokenizer {theirs}: "
                "the data was prepared for another model"
            )


def _check_tokenizer(init: str, corpus: Path) -> None:
    """Raises ValueError if a pretrained model comes with another vocabulary than the data's."""
    if init == "scratch":
        return
    file = hub.resolve(init) / "tokenizer.json"
    if not file.is_file():
        return  # some models come without one; sizes and special tokens were compared
    if other := other_words(file, corpus / "tokenizer.json"):
        raise ValueError(
            f"{corpus} was prepared with another tokenizer than that of {init}: {len(other)} "
            f"entries differ, such as {', '.join(map(repr, other[:3]))}. Prepare it again with "
            f"--tokenizer {init}"
        )


def _origin(config: Config, data: Mapping[str, str]) -> checkpoint.Origin:
    """Returns where the rows of a run start: at none, or where the run it continues left them.

    Raises:
      ValueError: a source of the continued run that is now another corpus or in another order, so
        that its rows would be repeated and skipped.
    """
    if config.init.state == "params":
        return checkpoint.Origin()
    run, _ = checkpoint.find_checkpoint(config.init.source)
    parent = checkpoint.read_run(run)
    changed = [name for name in data if parent["data"].get(name, data[name]) != data[name]]
    order, parents_order = config.data.shuffle_seed, parent["config"]["data"]["shuffle_seed"]
    if order != parents_order and parent["data"].keys() & data.keys():
        raise ValueError(
            f"config.data.shuffle_seed: {order}, and {parents_order} in {run}: a run that continues"
            " another reads its sources in the same order"
        )
    if changed:
        raise ValueError(
            f"sources {changed} are other corpora than those {run} read under these names: give "
            "them other names, or start from its parameters alone (init.state = 'params')"
        )
    return checkpoint.load_origin(config.init.source)
