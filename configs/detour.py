"""The paper's experiment as a function of what its four models differ in.

Arguments follow the config's file name after one colon, separated by commas:

    --config=configs/fr_large.py:mlm,seed=42,decay=0.2

    mlm             the twin: phase 1 is masked language modelling at 30 % instead of causal
    decay=0.2       length of the decay, as a share of phase 1 (the paper: 0.1)
    freeze=0-7@clm  layers whose gradients are zeroed in a phase; several: freeze=0-7@clm+decay
    strict          frozen parameters stay bit-identical, where the paper's still drift
    seed=42         initialisation, dropout and corruption
    shuffle=43      order of the data
    fork=RUN@clm    only the decay, going on from the end of that run's phase 1
    quick           a few steps, to see the whole road before paying for it
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from cpt_jax import config, trees

MILLION, BILLION = 10**6, 10**9


@dataclasses.dataclass
class Arguments:
    """What follows the colon of ``--config=FILE:ARGUMENTS``."""

    mlm: bool = False
    strict: bool = False
    quick: bool = False
    decay: float = 0.1
    seed: int = 17
    shuffle: int = 42
    fork: str | None = None
    freeze: dict[str, tuple[str, ...]] = dataclasses.field(
        default_factory=dict
    )  # phase -> patterns

    @classmethod
    def parse(cls, text: str | None) -> "Arguments":
        """Reads ``mlm,seed=42,...``; raises ValueError for what it does not know."""
        parsed = cls()
        kinds: dict[str, Callable] = {"decay": float, "seed": int, "shuffle": int, "fork": str}
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
                known = "mlm, decay=0.1, freeze=0-7@clm, strict, seed=17, shuffle=42, "
                known += "fork=RUN@clm, quick"
                raise ValueError(f"config argument {item!r} is unknown; known: {known}")
        if not 0 < parsed.decay <= 1:
            raise ValueError(f"config argument decay={parsed.decay}: a share in (0, 1]")
        return parsed


def source(name: str, weight: float, root: str) -> config.Source:
    """Returns the source ``data/ROOT/NAME``, made from the text under ``raw/ROOT/NAME``."""
    path, raw = f"data/{root}/{name}", f"raw/{root}/{name}/*.jsonl.gz"
    return config.Source(name, path, weight, raw)


def detour(
    arguments: str | None,
    *,
    name: str,
    init: str,
    sources: Sequence[config.Source],
    tokens: int,
    seq_len: int = 8192,
    batch_size: int = 384,
    warmup_tokens: int = 100 * MILLION,
    peak: float = 2e-4,
) -> Any:
    """Returns the config of a detour, or of its twin, with the paper's hyperparameters.

    A ``ConfigDict`` (declared as Any because its fields have no types a checker could know).

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
    fork = options.fork and config.Init(options.fork, "params+opt_state")
    whole = config.Config(
        name=",".join(filter(None, (name, arguments))),
        seed=options.seed,
        data=config.Data(
            tuple(sources), seq_len=seq_len, shuffle_seed=options.shuffle, tokenizer=init
        ),
        init=fork or config.Init(init),
        phases=phases[1:] if fork else phases,
    )
    made = config.to_config_dict(whole)
    if not fork:
        _link(made)
    if options.quick:
        _make_quick(made)
    return made


def _link(made: Any) -> None:
    """Makes a flag that changes the length of phase 1 or the model change what goes with it."""
    first, decay = made.phases
    tokens, length = first.tokens, first.get_ref("tokens")
    first.learning_rate.warmup_tokens = length * first.learning_rate.warmup_tokens // tokens
    decay.tokens = length * decay.tokens // tokens
    made.data.tokenizer = made.init.get_ref("source") + ""  # not the very reference: see its setter


def _phases(
    options: Arguments, tokens: int, batch_size: int, warmup_tokens: int, peak: float
) -> tuple[config.Phase, ...]:
    """Returns phase 1 and the decay, with what the arguments freeze in them."""
    first, decay = "mlm" if options.mlm else "clm", "decay"
    if unknown := options.freeze.keys() - {first, decay}:
        raise ValueError(f"freeze=...@{unknown.pop()}: the phases here are {first} and {decay}")
    mode = "strict" if options.strict else "zero_grad"
    return (
        config.Phase(
            name=first,
            objective=first,
            mask_rate=0.3 if options.mlm else None,
            tokens=tokens,
            batch_size=batch_size,
            learning_rate=config.LearningRate("warmup_constant", peak, warmup_tokens=warmup_tokens),
            freeze=options.freeze.get(first, ()),
            freeze_mode=mode,
        ),
        config.Phase(
            name=decay,
            objective="mlm",
            mask_rate=0.15,
            tokens=round(tokens * options.decay),
            batch_size=batch_size,
            learning_rate=config.LearningRate("one_minus_sqrt", peak, end_fraction=0.1),
            freeze=options.freeze.get(decay, ()),
            freeze_mode=mode,
        ),
    )


def _make_quick(made: Any) -> None:
    """Makes the run a few steps of a few rows, everything else as it is.

    Tokens refer to the length of rows and the batch, so that a flag that changes one of those
    changes them too, and never the number of steps.
    """
    for phase in made.phases:
        steps = 5 if phase.name == "decay" else 10
        phase.batch_size = 8
        phase.tokens = made.data.get_ref("seq_len") * phase.get_ref("batch_size") * steps
        if phase.learning_rate.warmup_tokens:
            phase.learning_rate.warmup_tokens = phase.get_ref("tokens") // steps
    made.evaluation.update(every_steps=5, rows_per_source=8, batch_size=8)
    made.checkpoint.every_steps = 5
    made.logging.every_steps = 1
