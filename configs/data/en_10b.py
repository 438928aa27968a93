"""The English mixture of 10B tokens (arXiv 2605.12438, section 4): what configs/en_base_10b.py
reads, from data/en.

    python -m cpt_jax.curate.build --recipe configs/data/en_10b.py --raw raw/en --data tasks/ \\
        --grader graders/en --tokenizer answerdotai/ModernBERT-base --out data/en

PMC's articles as they are distributed: files of JATS, alone or in archives.
"""

from cpt_jax.curate.recipe import Recipe, Source
from cpt_jax.curate.rules import Repeat, Rules

ARTICLES = ("pmc/**/*.xml", "pmc/**/*.nxml", "pmc/**/*.tar.gz")
CLINICAL = (Repeat(100, content=("clinical_case",)), Repeat(10, domain=("clinical",)))
LEAST_WORDS = 45  # 64 tokens, as the paper has it


def get_recipe() -> Recipe:
    """Returns the recipe, of 10B tokens and a decay of 1B."""
    return Recipe(
        "en_10b",
        tokens=11e9,
        sources=(
            Source(
                "biomed_enriched",
                "jats",
                ARTICLES,
                0.80,
                least_words=LEAST_WORDS,
                rules=Rules(repeats=CLINICAL),
            ),
            Source("mediflow", "chat", ("mediflow/**/*.json*",), 0.20),
        ),
    )
