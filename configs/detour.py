"""The paper's experiment as a function of what its four models differ in.

Arguments follow the config's file name after one colon, separated by commas:

    --config=configs/fr_large.py:mlm,seed=42,decay=0.2

    mlm             the twin: phase 1 is masked language modelling at 30 % instead of causal
    decay=0.2       length of the decay, as a share of phase 1 (the paper: 0.1)
    freeze=0-7@clm  layers whose gradients are zeroed in a phase; several: freeze=0-7@clm+decay
    strict          frozen parameters stay bit-identical, where the paper's still drift
    seed=42         initialisation, dropout and corruption
    shuffle=43      order of the data
    quick           a few steps, to see the whole road before paying for it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ml_collections import ConfigDict

from cpt_jax import trees

MILLION, BILLION = 10**6, 10**9


@dataclass
class Arguments:
    """What follows the colon of ``--config=FILE:ARGUMENTS``."""

    mlm: bool = False
    strict: bool = False
    quick: bool = False
    decay: float = 0.1
    seed: int = 17
    shuffle: int = 42
    freeze: dict[str, tuple[str, ...]] = field(default_factory=dict)  # phase -> patterns

    @classmethod
    def parse(cls, text: str | None) -> "Arguments":
        """Reads ``mlm,seed=42,...``; raises ValueError for what it does not know."""
        parsed = cls()
        kinds: dict[str, Callable] = {"decay": float, "seed": int, "shuffle": int}
        for item in filter(None, (text or "").split(",")):
            name, _, value = item.partition("=")
            if name in ("mlm", "strict", "quick") and not value:
                setattr(parsed, name, True)
            elif name in kinds and value:
                try:
                    setattr(parsed, name, kinds[name](value))
                except ValueError:
                    kind = kinds[name].__name__
                    raise ValueError(f"config argument {item!r}: {value!r} is no {kind}") from None
            elif name == "freeze" and "@" in value:
                layers, _, phases = value.partition("@")
                for phase in phases.split("+"):
                    frozen = parsed.freeze.get(phase, ())
                    parsed.freeze[phase] = frozen + trees.layer_patterns(layers)
            else:
                known = "mlm, decay=0.1, freeze=0-7@clm, strict, seed=17, shuffle=42, quick"
                raise ValueError(f"config argument {item!r} is unknown; known: {known}")
        if not 0 < parsed.decay <= 1:
            raise ValueError(f"config argument decay={parsed.decay}: a share in (0, 1]")
        return parsed


def source(name: str, weight: float, root: str) -> ConfigDict:
    """Returns the source ``data/ROOT/NAME``, made from the text under ``raw/ROOT/NAME``."""
    raw = f"raw/{root}/{name}/*.jsonl.gz"
    return ConfigDict({"name": name, "path": f"data/{root}/{name}", "weight": weight, "raw": raw})


def detour(
    arguments: str | None,
    *,
    name: str,
    init: str,
    sources: Sequence[ConfigDict],
    tokens: int,
    seq_len: int = 8192,
    batch_size: int = 384,
    warmup_tokens: int = 100 * MILLION,
    peak: float = 2e-4,
) -> ConfigDict:
    """Returns the config of a detour, or of its twin, with the paper's hyperparameters.

    Args:
      arguments: the text after the colon (see the module's docstring).
      name: of the run; the arguments are appended.
      init: hub id or directory of the pretrained encoder.
      sources: prepared corpora and their weights.
      tokens: length of phase 1.
      seq_len: tokens per row.
      batch_size: rows per step.
      warmup_tokens: linear warmup at the start of phase 1.
      peak: learning rate of phase 1 and start of the decay.
    """
    options = Arguments.parse(arguments)
    phases = _phases(options, tokens, batch_size, warmup_tokens, peak)
    config = ConfigDict(
        {
            "name": ",".join(filter(None, (name, arguments))),
            "seed": options.seed,
            "data": {
                "sources": list(sources),
                "seq_len": seq_len,
                "shuffle_seed": options.shuffle,
                "tokenizer": init,
            },
            "init": {"source": init, "state": "params"},
            "model": {"size": None, "overrides": {}, "dtype": "bfloat16", "remat": True},
            "optimizer": {
                "b1": 0.9,
                "b2": 0.98,
                "eps": 1e-6,
                "weight_decay": 1e-5,
                "decay_mode": "composer",
            },
            "phases": phases,
            "evaluation": {
                "every_steps": 250,
                "rows_per_source": 64,
                "batch_size": 16,
                "mask_rate": 0.15,
            },
            "checkpoint": {"every_steps": 250, "keep": 2},
            "logging": {"every_steps": 10, "tensorboard": True},
            "export": {"dtype": "float32"},
        }
    )
    if options.quick:
        _shrink(config)
    return config


def _phases(
    options: Arguments, tokens: int, batch_size: int, warmup_tokens: int, peak: float
) -> list[ConfigDict]:
    """Returns phase 1 and the decay, with what the arguments freeze in them."""
    first = {
        "name": "mlm" if options.mlm else "clm",
        "objective": "mlm" if options.mlm else "clm",
        "mask_rate": 0.3 if options.mlm else None,
        "tokens": tokens,
        "learning_rate": {
            "kind": "warmup_constant",
            "peak": peak,
            "warmup_tokens": warmup_tokens,
            "end_fraction": 1.0,
        },
    }
    decay = {
        "name": "decay",
        "objective": "mlm",
        "mask_rate": 0.15,
        "tokens": round(tokens * options.decay),
        "learning_rate": {"kind": "one_minus_sqrt", "peak": peak, "end_fraction": 0.1},
    }
    phases = [first, decay]
    if unknown := options.freeze.keys() - {phase["name"] for phase in phases}:
        known = " and ".join(phase["name"] for phase in phases)
        raise ValueError(f"freeze=...@{unknown.pop()}: the phases here are {known}")
    for phase in phases:
        phase["batch_size"] = batch_size
        phase["freeze"] = options.freeze.get(phase["name"], ())
        phase["freeze_mode"] = "strict" if options.strict else "zero_grad"
    return [ConfigDict(phase) for phase in phases]


def _shrink(config: ConfigDict) -> None:
    """Makes the run a few steps of a few short batches, everything else as it is."""
    for phase, steps in zip(config.phases, (10, 5), strict=True):
        phase.batch_size = 8
        phase.tokens = steps * phase.batch_size * config.data.seq_len
        warmup = phase.learning_rate.get("warmup_tokens", 0)
        phase.learning_rate.warmup_tokens = min(warmup, phase.tokens // 10)
    config.evaluation.update(every_steps=5, rows_per_source=8, batch_size=8)
    config.checkpoint.every_steps = 5
    config.logging.every_steps = 1
