"""The detour on a corpus and an encoder of one's own. Copy this file, or override its fields.

    python -m cpt_jax.data.prepare --input 'notes/*.jsonl.gz' \\
        --tokenizer MODEL_DIR --out data/notes --seq-len 8192
    python -m cpt_jax.main --config=configs/cpt.py --workdir=runs/notes \\
        --config.init.source=MODEL_DIR '--config.data.sources[0].path=data/notes'
    python -m cpt_jax.main --config=configs/cpt.py:mlm --workdir=runs/notes_mlm ...

How long: `'--config.phases[0].tokens=5e7' '--config.phases[0].batch_size=16'`; warmup and decay
follow. The paper saw gains from 10B tokens; on a small corpus, count epochs (they are logged) and
keep the decay at some hundreds of optimizer steps, or the model does not come back.
"""

from configs.detour import BILLION, detour
from cpt_jax.config import Source


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="cpt",
        init="answerdotai/ModernBERT-base",
        sources=[Source("notes", "data/notes", 1.0)],
        tokens=1 * BILLION,
        batch_size=96,
        warmup_tokens=25_000_000,
    )
