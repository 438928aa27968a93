"""French base: ModernCamemBERT-base on 10B + 1B tokens (arXiv 2605.12438, section 4).

python -m cpt_jax.main --config=configs/fr_base.py --workdir=runs/fr_base
python -m cpt_jax.main --config=configs/fr_base.py:mlm --workdir=runs/fr_base_mlm
python -m cpt_jax.main --config=configs/fr_base.py:freeze=0-7@clm --workdir=runs/fr_base_low
"""

from configs.detour import BILLION, detour, source

MIXTURE = (
    source("literature", 0.70, "fr"),  # biomedical literature, upsampled by quality
    source("coding_qa", 0.20, "fr"),  # synthetic questions from CIM-10, CCAM and ATC
    source("ema_leaflets", 0.06, "fr"),
    source("e3c_cases", 0.04, "fr"),
)


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="fr_base",
        init="almanach/moderncamembert-base",
        sources=MIXTURE,
        tokens=10 * BILLION,
    )
