"""A corpus and runs small enough to train in seconds, for the tests of training."""

import copy
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from cpt_jax import checkpoint, config, sharding
from cpt_jax.data.prepare import prepare
from cpt_jax.training import loop

WORDS = [f"w{i}" for i in range(120)]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
SEQ_LEN, BATCH = 32, 4
STEP = SEQ_LEN * BATCH  # tokens
MODEL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,  # a global layer and a local one
    "local_attention": 8,
    "max_position_embeddings": 64,
}
CLOCK = {"seconds", "tokens_per_second", "mfu"}  # what a metrics line says of time


def tokenizer(directory: Path) -> Path:
    """Writes a tokenizer of one token per word."""
    vocab = {token: i for i, token in enumerate(SPECIAL + WORDS)}
    made = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore
    made.add_special_tokens([AddedToken(t, lstrip=t == "[MASK]", special=True) for t in SPECIAL])
    directory.mkdir(parents=True)
    made.save(str(directory / "tokenizer.json"))
    names = {f"{t[1:-1].lower()}_token": t for t in SPECIAL}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, **names}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def corpus(root: Path, name: str, documents: int, seed: int) -> Path:
    """Prepares documents of 5 to 60 words in which each word hints at the next."""
    if not (root / "tokenizer").exists():
        tokenizer(root / "tokenizer")
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(documents):
        start, stride = rng.integers(len(WORDS)), rng.integers(1, 4)
        words = [WORDS[(start + stride * k) % len(WORDS)] for k in range(rng.integers(5, 60))]
        lines.append(json.dumps({"id": f"{name}{i}", "text": " ".join(words)}))
    (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    out = root / name
    prepare(
        [str(root / f"{name}.jsonl")],
        root / "tokenizer",
        out,
        seq_len=SEQ_LEN,
        heldout_fraction=0.2,
    )
    return out


def raw_config(root: Path, *, clm_steps: int = 6, decay_steps: int = 4) -> dict[str, Any]:
    """A detour from scratch over the corpora ``a`` and ``b`` under ``root``."""
    return {
        "name": "tiny",
        "data": {
            "sources": [
                {"name": "a", "path": str(root / "a"), "weight": 0.7},
                {"name": "b", "path": str(root / "b"), "weight": 0.3},
            ],
            "seq_len": SEQ_LEN,
            "reader_threads": 2,
        },
        "init": {"source": "scratch"},
        "model": {"size": "base", "overrides": MODEL, "dtype": "float32", "remat": False},
        "optimizer": {"weight_decay": 1e-3, "clip_norm": 1.0},
        "phases": [
            {
                "name": "clm",
                "objective": "clm",
                "tokens": clm_steps * STEP,
                "batch_size": BATCH,
                "learning_rate": {
                    "kind": "warmup_constant",
                    "peak": 1e-2,
                    "warmup_tokens": 2 * STEP,
                },
            },
            {
                "name": "decay",
                "objective": "mlm",
                "mask_rate": 0.15,
                "tokens": decay_steps * STEP,
                "batch_size": BATCH,
                "learning_rate": {"kind": "one_minus_sqrt", "peak": 1e-2, "end_fraction": 0.1},
            },
        ],
        "evaluation": {"every_steps": 5, "rows_per_source": 6, "batch_size": 4},
        "checkpoint": {"every_steps": 2, "keep": 2},
        "logging": {"every_steps": 1, "tensorboard": False},
    }


def twin(raw: dict[str, Any]) -> dict[str, Any]:
    """The same run with masked language modelling in phase 1."""
    raw = copy.deepcopy(raw)
    raw["phases"][0] |= {"name": "mlm", "objective": "mlm", "mask_rate": 0.3}
    return raw


def train(raw: dict[str, Any], workdir: Path, devices: int = 1, **options: Any) -> Path:
    """Trains to the end on a mesh of some of the CPU devices; returns ``workdir``."""
    run = config.parse(raw)
    mesh = sharding.make_mesh(jax.devices()[:devices], run.mesh)
    loop.prepare(run, workdir, mesh).train(**options)
    return workdir


def state(run: Path, step: int) -> dict[str, np.ndarray]:
    """Parameters, moments and count of a checkpoint, by name, read without the run's code."""
    import orbax.checkpoint as ocp

    items = {}
    with ocp.PyTreeCheckpointer() as reader:
        for name in ("params", "opt_state"):
            path = (run / "checkpoints" / str(step) / name).absolute()
            there = reader.metadata(path).item_metadata.tree
            # Not to devices: those that it was saved on may not be here.
            whole = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), there)
            items[name] = reader.restore(path, restore_args=whole)
    leaves = jax.tree_util.tree_flatten_with_path(items)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def metrics(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what they say of time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in CLOCK}
        for line in lines
        if kind is None or line["kind"] == kind
    ]


def last_step(run: Path) -> int:
    """The step of the latest checkpoint."""
    step = checkpoint.latest_step(run)
    assert step is not None
    return step
