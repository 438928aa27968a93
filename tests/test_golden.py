"""What a config and a step give must not change with a library's version: golden files say so.

A run that is resumed after an upgrade would otherwise go on with other rows or other masks, in
silence. `make goldens` writes the files anew; read the diff before committing it.
"""

import json
import os
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tiny_run

from cpt_jax import config as config_lib
from cpt_jax.checkpoint import Origin
from cpt_jax.data import synthetic
from cpt_jax.data.sources import open_source
from cpt_jax.training import objectives, plan

GOLDENS = Path(__file__).parent / "goldens"


def check(name: str, value: dict) -> None:
    """Compares with the golden file, or writes it where UPDATE_GOLDENS is set."""
    path = GOLDENS / f"{name}.json"
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDENS.mkdir(exist_ok=True)
        path.write_text(json.dumps(value, indent=1) + "\n")
    assert json.loads(path.read_text()) == value


def crc(data: np.ndarray | jax.Array | bytes) -> str:
    return f"{zlib.crc32(data if isinstance(data, bytes) else np.asarray(data).tobytes()):08x}"


def test_golden_rows_and_masks(tmp_path):
    tiny_run.corpus(tmp_path, "a", 60, seed=1)
    tiny_run.corpus(tmp_path, "b", 20, seed=2)
    raw = tiny_run.raw_config(tmp_path, clm_steps=10, decay_steps=10)
    config = config_lib.parse(raw)
    sources = {s.name: open_source(s.path) for s in config.data.sources}
    steps = []
    key = jax.random.key(0)
    vocabulary = objectives.Vocabulary(size=125, mask_id=4, special_ids=(0, 1, 2, 3, 4))
    for phase in plan.plan_run(config, sources, Origin()):
        for batch in phase.batches(phase.first_step, host=0, hosts=1, threads=1, prefetch=1):
            targets = objectives.masked_token(
                jnp.asarray(batch["input_ids"]),
                jnp.asarray(batch["segment_ids"]),
                jnp.asarray(batch["ordinals"]),
                key,
                rate=0.15,
                vocabulary=vocabulary,
            )
            rows = [f"{'ab'[s]}{r}" for s, r in zip(batch["sources"], batch["rows"], strict=True)]
            steps.append(
                {
                    "rows": " ".join(rows),
                    "ids": crc(batch["input_ids"]),
                    "corrupted": crc(targets.input_ids),
                }
            )
    check("rows_and_masks", {"steps": steps})


def test_golden_notes():
    notes = synthetic.notes(0, 40, language="mixed")
    check("notes", {note["id"]: crc(note["text"].encode()) for note in notes})
