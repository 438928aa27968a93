"""English base on 50B + 5B tokens (arXiv 2605.12438, section 4).

python -m cpt_jax.main --config=configs/en_base_50b.py --workdir=runs/en_base_50b
python -m cpt_jax.main --config=configs/en_base_50b.py:mlm --workdir=runs/en_base_50b_mlm
"""

from configs.detour import BILLION, detour, source

MIXTURE = (
    source("pmc_educational", 0.60, "en"),  # paragraphs of educational value 3.0 and above
    # MedS-Ins, ReasonMed, MediFlow, UltraMedical and EHR-Ins-Reasoning, prepared as one corpus
    source("instructions", 0.20, "en"),
    source("mimic_notes", 0.20, "en"),  # MIMIC-III, repeated to reach its share
)


def get_config(arguments=None):
    """Returns the run; see ``configs.detour`` for the arguments."""
    return detour(
        arguments,
        name="en_base_50b",
        init="answerdotai/ModernBERT-base",
        sources=MIXTURE,
        tokens=50 * BILLION,
    )
