"""The English mixture of 50B tokens (arXiv 2605.12438, section 4): what configs/en_base_50b.py and
configs/en_large_50b.py read, from data/en.

    python -m cpt_jax.curate.build --recipe configs/data/en_50b.py --raw raw/en --out data/en_50b
    mv data/en_50b/pmc_educational data/en_50b/instructions data/en_50b/mimic_notes data/en/
"""

from configs.data.en_10b import ARTICLES, LEAST_WORDS
from cpt_jax.curate.recipe import Recipe, Source
from cpt_jax.curate.rules import Rules

# Each under its name, as JSON or JSON lines.
SETS = ("meds_ins", "reasonmed", "mediflow", "ultramedical", "ehr_ins_reasoning")


def get_recipe() -> Recipe:
    """Returns the recipe, of 50B tokens and a decay of 5B."""
    return Recipe(
        "en_50b",
        tokens=55e9,
        sources=(
            Source(
                "pmc_educational",
                "jats",
                ARTICLES,
                0.60,
                least_words=LEAST_WORDS,
                rules=Rules(least=3.0, join=True),
            ),
            Source("instructions", "chat", tuple(f"{name}/**/*.json*" for name in SETS), 0.20),
            Source("mimic_notes", "noteevents", ("mimic/NOTEEVENTS.csv*",), 0.20),
        ),
    )
