"""English base on 10B + 1B tokens of Biomed-Enriched and MediFlow (arXiv 2605.12438, section 4).

python -m cpt_jax.main --config=configs/en_base_10b.py --workdir=runs/en_base_10b
python -m cpt_jax.main --config=configs/en_base_10b.py:mlm --workdir=runs/en_base_10b_mlm
"""

from configs.detour import BILLION, detour, source

MIXTURE = (
    # Clinical-case paragraphs repeated 100 times and other clinical ones 10 times: the factors
    # are the documents' own, given to `prepare` in their field `repeat`.
    source("biomed_enriched", 0.80, "en"),
    source("mediflow", 0.20, "en"),
)


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="en_base_10b",
        init="answerdotai/ModernBERT-base",
        sources=MIXTURE,
        tokens=10 * BILLION,
    )
