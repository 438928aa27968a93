"""A small encoder from scratch, by masked language modelling, in minutes on a CPU.

    python -m cpt_jax.main --config=configs/encoder.py --workdir=runs/encoder \\
        '--config.data.sources[0].path=data/notes'

For trying things out where no pretrained encoder is at hand. 0.9M parameters and 0.5M tokens
teach it which words go together, no more.
"""

from ml_collections import ConfigDict

from configs.detour import detour
from cpt_jax.config import Source

ROW, BATCH = 256, 8
STEP = ROW * BATCH  # tokens


def get_config(arguments=None):
    """Returns the run; ``seed=``, ``shuffle=`` and ``quick`` as in ``configs.detour``."""
    config = detour(
        ",".join(filter(None, ("mlm", arguments))),
        name="encoder",
        init="scratch",
        sources=[Source("notes", "data/notes", 1.0)],
        tokens=240 * STEP,
        seq_len=ROW,
        batch_size=BATCH,
        warmup_tokens=15 * STEP,
        peak=3e-3,
    )
    config.data.tokenizer = "models/tokenizer"
    config.phases = config.phases[:1]
    config.optimizer.clip_norm = 1.0
    config.model.update(size="base", dtype="float32", remat=False)
    config.model.overrides = ConfigDict(
        {
            "hidden_size": 128,
            "intermediate_size": 192,
            "num_attention_heads": 2,
            "num_hidden_layers": 4,
            # A narrow model drawn as finely as a wide one takes long to leave the start.
            "initializer_range": 0.08,
        }
    )
    config.evaluation.update(every_steps=25, rows_per_source=32, batch_size=16)
    config.checkpoint.every_steps = 50
    return config
