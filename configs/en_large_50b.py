"""English large on 50B + 5B tokens (arXiv 2605.12438, section 4).

python -m cpt_jax.main --config=configs/en_large_50b.py --workdir=runs/en_large_50b
python -m cpt_jax.main --config=configs/en_large_50b.py:mlm --workdir=runs/en_large_50b_mlm
"""

from configs.detour import BILLION, detour
from configs.en_base_50b import MIXTURE


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="en_large_50b",
        init="answerdotai/ModernBERT-large",
        sources=MIXTURE,
        tokens=50 * BILLION,
    )
