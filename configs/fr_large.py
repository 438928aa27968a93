"""French large: ModernCamemBERT-large on 25B + 2.5B tokens (arXiv 2605.12438, section 4).

python -m cpt_jax.main --config=configs/fr_large.py --workdir=runs/fr_large
python -m cpt_jax.main --config=configs/fr_large.py:mlm --workdir=runs/fr_large_mlm
python -m cpt_jax.main --config=configs/fr_large.py:decay=0.2 --workdir=runs/fr_large_decay20
"""

from configs.detour import BILLION, detour
from configs.fr_base import MIXTURE


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="fr_large",
        init="almanach/moderncamembert-large",
        sources=MIXTURE,
        tokens=25 * BILLION,
    )
