"""The schema of a run: frozen dataclasses, parsed strictly from an ``ml_collections`` config.

A field that the schema does not know is an error that names its path and the nearest field that
exists; so is a value of the wrong type or outside its range. Nothing here imports JAX: a config
can be built, checked and printed on a laptop.
"""

import dataclasses
import json
import math
import re
import typing
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict, config_dict

from cpt_jax.addresses import without_keys
from cpt_jax.parsing import parse_as

Objective = Literal["clm", "mlm"]
MaskMode = Literal["bidirectional", "causal"]
AttentionBackend = Literal["xla", "mosaic", "mosaic_banded", "splash"]
ScheduleKind = Literal["warmup_constant", "one_minus_sqrt", "linear", "cosine"]


@dataclasses.dataclass(frozen=True)
class Source:
    """A prepared corpus (the output of ``cpt_jax.data.prepare``)."""

    name: str
    path: str
    weight: float  # share of the run's tokens, in proportion to the other sources' weights
    raw: str | None = None  # glob of the text it is made from, quoted when the corpus is missing


@dataclasses.dataclass(frozen=True)
class Data:
    """What is read, and in which order."""

    sources: tuple[Source, ...]
    seq_len: int = 8192  # tokens per row
    shuffle_seed: int = 42  # order of rows; shared by the two twins of an experiment
    tokenizer: str | None = None  # quoted in the `prepare` command when a corpus is missing
    reader_threads: int = 4
    prefetch_batches: int = 4  # kept ready in memory


@dataclasses.dataclass(frozen=True)
class Model:
    """The encoder's shape and how it computes."""

    size: str | None = None  # from scratch only: "base", "large" or a config.json
    # fields of `model.spec.ModelSpec` that replace those of the model `init` or `size` names
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: Literal["bfloat16", "float32"] = "bfloat16"  # of the compute; parameters are float32
    remat: bool = True  # recompute each layer's activations in the backward pass
    # kernels of attention (`model.attention`); None: the fastest that the devices can run
    attention: AttentionBackend | None = None


@dataclasses.dataclass(frozen=True)
class Mesh:
    """How many devices each axis of the mesh has; their product is all devices.

    None, for ``replica`` or ``fsdp``: what the others leave. Rows are spread over ``replica`` and
    ``fsdp``.
    """

    replica: int | None = None  # whole copies of the parameters
    fsdp: int | None = 1  # devices over which one copy of parameters and moments is spread
    tensor: int = 1  # devices that share the heads and the MLP's columns of one row


@dataclasses.dataclass(frozen=True)
class Init:
    """Where the parameters come from.

    ``source`` is ``scratch``, a Hugging Face directory or hub id, or ``RUN@STEP`` or
    ``RUN@PHASE`` for a checkpoint of another run of ours. With ``params`` the new run starts from
    those weights, with ``params+opt_state`` it continues that run: Adam's moments and count, and
    the rows of every source from where the checkpoint left them.
    """

    source: str
    state: Literal["params", "params+opt_state"] = "params"


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """AdamW, one for all phases: its state crosses their boundaries untouched."""

    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-6
    weight_decay: float = 1e-5
    # "composer": p <- p - lr * adam - (lr / peak) * weight_decay * p; "adamw": lr * weight_decay
    decay_mode: Literal["composer", "adamw"] = "composer"
    clip_norm: float | None = None
    max_nonfinite_steps: int = 10  # consecutive updates skipped before the run stops


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """A schedule over the tokens of one phase."""

    kind: ScheduleKind
    peak: float
    end_fraction: float = 0.0  # learning rate at the end of the phase, as a share of `peak`
    warmup_tokens: int = 0


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training under one objective. It never changes the structure of the state."""

    name: str
    objective: Objective
    tokens: int
    batch_size: int  # rows per optimizer step, over all devices and hosts
    learning_rate: LearningRate
    mask_rate: float | None = None  # share of tokens selected for prediction; mlm only
    # one mode, or one per layer; None: causal for clm, bidirectional for mlm
    mask_mode: MaskMode | tuple[MaskMode, ...] | None = None
    microbatches: int = 1  # gradient accumulation: the batch is taken in this many pieces
    freeze: tuple[str, ...] = ()  # patterns on parameter paths
    freeze_mode: Literal["zero_grad", "strict"] = "zero_grad"
    mixture: Mapping[str, float] | None = None  # weights that replace the sources' own


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Held-out loss under both objectives."""

    every_steps: int = 250  # and before the first step, and at the end of each phase
    rows_per_source: int = 64
    batch_size: int = 16  # rows
    mask_rate: float = 0.15


@dataclasses.dataclass(frozen=True)
class Checkpointing:
    """When the state is saved; the end of a phase always is, and is never deleted."""

    every_steps: int = 250
    keep: int = 2  # latest checkpoints that stay, besides the ends of phases


@dataclasses.dataclass(frozen=True)
class Logging:
    """Where the training loss goes besides the progress line."""

    every_steps: int = 10
    tensorboard: bool = True
    wandb_project: str | None = None  # Weights & Biases: numbers only, key from WANDB_API_KEY


@dataclasses.dataclass(frozen=True)
class Export:
    """The Hugging Face directory written at the end of the run."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    license: str | None = None  # for the model card, by the Hub's names: "apache-2.0", "other"


@dataclasses.dataclass(frozen=True)
class Config:
    """One run."""

    name: str
    data: Data
    init: Init
    phases: tuple[Phase, ...]
    model: Model = Model()
    mesh: Mesh = Mesh()
    optimizer: Optimizer = Optimizer()
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpointing = Checkpointing()
    logging: Logging = Logging()
    export: Export = Export()
    seed: int = 17  # initialisation, dropout and corruption


# What may change when a run is resumed (`trees.matches` on paths of the run's description): none of
# it touches the numbers, beyond the rounding of sums taken in another order. Data may move, as its
# fingerprint is compared as well.
RESUMABLE = (
    "config.checkpoint.**",
    "config.logging.**",
    "config.export.**",
    "config.mesh.**",
    "config.model.attention",
    "config.data.reader_threads",
    "config.data.prefetch_batches",
    "config.data.tokenizer",
    "config.data.sources.*.path",
    "config.data.sources.*.raw",
)


def phase_steps(phase: Phase, seq_len: int) -> int:
    """Optimizer steps of a phase: the fewest that see all of ``phase.tokens``."""
    return math.ceil(phase.tokens / (phase.batch_size * seq_len))


def parse(raw: Mapping[str, Any] | ConfigDict) -> Config:
    """Returns the ``Config`` that a mapping or ``ConfigDict`` describes.

    Raises:
      ValueError: all unknown or missing fields, wrong types and impossible values, by path.
    """
    faults: list[str] = []
    config = parse_as(Config, raw, "config", faults)
    if not faults:
        faults = _impossible(config)
    if faults:
        raise ValueError("the config has faults:\n  " + "\n  ".join(faults))
    return config


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the config as plain JSON types (tuples as lists)."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def to_config_dict(config: Config) -> ConfigDict:
    """Returns the config as a ``ConfigDict`` every field of which a flag can override.

    A field that is None becomes a placeholder of its type; an empty mapping stays one.
    """

    def convert(kind: Any, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            hints = typing.get_type_hints(type(value))
            names = [field.name for field in dataclasses.fields(value)]
            return ConfigDict({name: convert(hints[name], getattr(value, name)) for name in names})
        if isinstance(value, tuple):
            groups = [convert(None, item) for item in value]
            whole = not any(isinstance(group, ConfigDict) for group in groups)
            # A list of words is overridden whole, as a Python literal.
            return config_dict.FieldReference(groups, field_type=object) if whole else groups
        if value is None:
            scalars = [k for k in typing.get_args(kind) if k in (int, float, str)]
            return config_dict.placeholder(scalars[0] if scalars else object)
        return dict(value) if isinstance(value, Mapping) else value

    return convert(None, config)


def _impossible(config: Config) -> list[str]:
    """Returns the faults of a well-typed config whose values cannot be meant."""
    faults = []

    def check(holds: bool, path: str, value: Any, allowed: str) -> None:
        if not holds:
            faults.append(f"config.{path}: {value!r} is not {allowed}")

    names = [source.name for source in config.data.sources]
    check(bool(names), "data.sources", [], "a list of at least one source")
    check(len(set(names)) == len(names), "data.sources", names, "a list of distinct names")
    addresses = {"data.tokenizer": config.data.tokenizer, "init.source": config.init.source}
    for i, source in enumerate(config.data.sources):
        allowed = "at least 0 and below 1e100"
        check(0 <= source.weight < 1e100, f"data.sources[{i}].weight", source.weight, allowed)
        addresses |= {f"data.sources[{i}].path": source.path, f"data.sources[{i}].raw": source.raw}
    for path, address in addresses.items():
        shown = without_keys(address or "")
        allowed = "to carry a key or password (left out here): those come from the environment"
        check(shown == (address or ""), path, shown, allowed)
    _impossible_texts(config, check)
    check(config.data.seq_len >= 2, "data.seq_len", config.data.seq_len, "at least 2 tokens")
    _impossible_counts(config, check)
    axes = dataclasses.asdict(config.mesh)
    for axis, count in axes.items():
        check(count is None or count >= 1, f"mesh.{axis}", count, "at least 1, or None")
    check(list(axes.values()).count(None) <= 1, "mesh", axes, "allowed: one axis at most is None")
    rate = config.evaluation.mask_rate
    check(0 < rate < 1, "evaluation.mask_rate", rate, "between 0 and 1")
    adam = config.optimizer
    for field, value in (("b1", adam.b1), ("b2", adam.b2)):
        check(0 <= value < 1, f"optimizer.{field}", value, "in [0, 1)")
    check(0 < adam.eps < math.inf, "optimizer.eps", adam.eps, "above 0 and finite")
    clip, decay = adam.clip_norm, adam.weight_decay
    check(clip is None or clip > 0, "optimizer.clip_norm", clip, "above 0, or None")
    check(0 <= decay < math.inf, "optimizer.weight_decay", decay, "at least 0 and finite")
    phase_names = [phase.name for phase in config.phases]
    check(bool(phase_names), "phases", [], "a list of at least one phase")
    check(len(set(phase_names)) == len(phase_names), "phases", phase_names, "distinct names")
    check(
        config.init.source != "scratch" or config.init.state == "params",
        "init.state",
        config.init.state,
        "'params', the only state there is to start from scratch",
    )
    size, scratch = config.model.size, config.init.source == "scratch"
    allowed = "given, as init is from scratch" if scratch else "None, as init brings its own"
    check((size is not None) == scratch, "model.size", size, allowed)
    for i, phase in enumerate(config.phases):
        _impossible_phase(phase, f"phases[{i}]", names, check)
    return faults


def _impossible_counts(config: Config, check: Any) -> None:
    """Checks the fields that count something, outside of phases."""
    for group, field in (
        ("data", "reader_threads"),
        ("data", "prefetch_batches"),
        ("evaluation", "every_steps"),
        ("evaluation", "rows_per_source"),
        ("evaluation", "batch_size"),
        ("checkpoint", "every_steps"),
        ("checkpoint", "keep"),
        ("logging", "every_steps"),
        ("optimizer", "max_nonfinite_steps"),
    ):
        value = getattr(getattr(config, group), field)
        allowed = "at least 1" if value < 1 else "below 2^31"
        check(1 <= value < 2**31, f"{group}.{field}", value, allowed)
    threads = config.data.reader_threads
    check(threads <= 1024, "data.reader_threads", threads, "at most 1024")


def _impossible_texts(config: Config, check: Any) -> None:
    """Checks the texts that go into the model card, which is only written at the end of a run."""
    texts = {"name": config.name, "export.license": config.export.license or ""}
    texts |= {f"data.sources[{i}].name": x.name for i, x in enumerate(config.data.sources)}
    for path, text in texts.items():
        plain = not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text)
        check(plain, path, text, "one line of Unicode text")


def _impossible_phase(phase: Phase, path: str, sources: list[str], check: Any) -> None:
    plain = re.fullmatch(r"[\w.-]*[^\d\W][\w.-]*", phase.name)
    allowed = "a name of letters, digits, '_', '-' and '.', and not a number (it means a step)"
    check(plain is not None, f"{path}.name", phase.name, allowed)
    check(0 < phase.tokens < 1e16, f"{path}.tokens", phase.tokens, "above 0 and below 1e16")
    check(phase.batch_size > 0, f"{path}.batch_size", phase.batch_size, "above 0")
    check(
        phase.microbatches > 0 and phase.batch_size % max(phase.microbatches, 1) == 0,
        f"{path}.microbatches",
        phase.microbatches,
        f"a divisor of the batch size {phase.batch_size}",
    )
    if phase.objective == "mlm":
        rate = phase.mask_rate
        check(rate is not None and 0 < rate < 1, f"{path}.mask_rate", rate, "between 0 and 1")
    else:
        allowed = "None: only objective 'mlm' has one"
        check(phase.mask_rate is None, f"{path}.mask_rate", phase.mask_rate, allowed)
        modes = [phase.mask_mode] if isinstance(phase.mask_mode, str) else phase.mask_mode or ()
        for mode in modes:
            allowed = "causal: next-token targets are visible under any other mask"
            check(mode == "causal", f"{path}.mask_mode", mode, allowed)
    rate = phase.learning_rate
    finite = 0 < rate.peak < math.inf
    check(finite, f"{path}.learning_rate.peak", rate.peak, "above 0 and finite")
    end = rate.end_fraction
    check(0 <= end <= 1, f"{path}.learning_rate.end_fraction", end, "in [0, 1]")
    warmup = rate.warmup_tokens
    allowed = f"between 0 and the phase's {phase.tokens} tokens"
    check(0 <= warmup <= phase.tokens, f"{path}.learning_rate.warmup_tokens", warmup, allowed)
    for name, weight in (phase.mixture or {}).items():
        allowed = f"one of the sources ({', '.join(sources)})"
        check(name in sources, f"{path}.mixture", name, allowed)
        allowed = "at least 0 and below 1e100"
        check(0 <= weight < 1e100, f"{path}.mixture.{name}", weight, allowed)
