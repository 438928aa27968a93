"""The whole road in minutes on a CPU, as `make demo` walks it (see `launch/demo.py`).

    python -m cpt_jax.main --config=configs/demo.py:base --workdir=runs/demo/base
    python -m cpt_jax.main --config=configs/demo.py --workdir=runs/demo/detour
    python -m cpt_jax.main --config=configs/demo.py:mlm --workdir=runs/demo/twin

`base` trains a small encoder from scratch by masked language modelling on general notes; the
other two take it to cardiology, by the detour and by its twin. It shows that everything works and
what a detour looks like, not that it is better: that takes billions of tokens.
"""

from configs import encoder
from configs.detour import detour, source
from configs.encoder import BATCH, ROW, STEP

ROOT = "runs/demo"


def get_config(arguments=None):
    """Returns the run; `base`, or the arguments of ``configs.detour``."""
    if arguments == "base":
        config = encoder.get_config()
        config.name = "demo,base"
        config.data.sources[0].update(name="general", path=f"{ROOT}/data/general")
        return config
    config = detour(
        arguments,
        name="demo",
        init=f"{ROOT}/base",
        sources=[source("cardiology", 1.0, "demo")],
        tokens=100 * STEP,
        seq_len=ROW,
        batch_size=BATCH,
        warmup_tokens=15 * STEP,
        peak=2e-3,
    )
    config.data.sources[0].path = f"{ROOT}/data/cardiology"
    # The decay of a real run is hundreds of steps; at a tenth of a demo it would be none.
    config.phases[1].tokens = 50 * STEP
    config.optimizer.clip_norm = 1.0
    config.model.update(dtype="float32", remat=False)
    config.evaluation.update(every_steps=25, rows_per_source=32, batch_size=16)
    config.checkpoint.every_steps = 50
    return config
