"""The whole road in minutes on a CPU, as `make demo` walks it (see `launch/demo.py`).

    python -m cpt_jax.main --config=configs/demo.py:base --workdir=runs/demo/base
    python -m cpt_jax.main --config=configs/demo.py --workdir=runs/demo/detour
    python -m cpt_jax.main --config=configs/demo.py:mlm --workdir=runs/demo/twin

`base` trains a small encoder from scratch by masked language modelling on general notes; the
other two take it to cardiology, by the detour and by its twin. It shows that everything works and
what a detour looks like, not that it is better: that takes billions of tokens.
"""

from ml_collections import ConfigDict

from configs.detour import detour, source

ROW, BATCH = 256, 8
STEP = ROW * BATCH  # tokens
ROOT = "runs/demo"


def get_config(arguments=None):
    """Returns the run; `base`, or the arguments of ``configs.detour``."""
    base = arguments == "base"
    name = "general" if base else "cardiology"
    config = detour(
        "mlm" if base else arguments,
        name="demo",
        init=f"{ROOT}/base",
        sources=[source(name, 1.0, "demo")],
        tokens=100 * STEP,
        seq_len=ROW,
        batch_size=BATCH,
        warmup_tokens=15 * STEP,
        peak=2e-3,
    )
    config.data.sources[0].path = f"{ROOT}/data/{name}"
    # The decay of a real run is hundreds of steps; at a tenth of a demo it would be none.
    decay = config.phases[1]
    decay.tokens = 50 * STEP
    config.optimizer.clip_norm = 1.0
    config.model.update(dtype="float32", remat=False)
    config.evaluation.update(every_steps=25, rows_per_source=32, batch_size=16)
    config.checkpoint.every_steps = 50
    if base:
        config.name = "demo,base"
        config.init.source = "scratch"
        config.model.size = "base"
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
        config.phases = [config.phases[0]]
        config.phases[0].tokens = 240 * STEP
        config.phases[0].learning_rate.peak = 3e-3
    return config
