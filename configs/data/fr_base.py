"""The French mixture (arXiv 2605.12438, section 4): what configs/fr_base.py reads, from data/fr.

    python -m cpt_jax.curate.build --recipe configs/data/fr_base.py --raw raw/fr --data tasks/ \\
        --grader graders/fr --tokenizer almanach/moderncamembert-base --out data/fr

The paper's factors are of articles by their share of paragraphs with 7 or more of 10 points; ours
have up to 5, and 4 is taken for good.
"""

from cpt_jax.curate.recipe import Recipe, Source
from cpt_jax.curate.rules import ByShare, Rules, Share

BY_SHARE = ByShare(
    good=4,
    none=0,
    between=(Share(0.25, 4.3), Share(0.5, 8.5), Share(0.75, 12.8), Share(1, 21.3)),
    all=34.1,
)
SOURCES = (
    Source(
        "literature",
        "jsonl",
        ("literature/**/*.jsonl*",),
        0.70,
        language="fr",
        least_words=30,
        least_letters=0.6,
        rules=Rules(by_share=BY_SHARE, join=True),
    ),
    # What `curate.synthesise` made of CIM-10, CCAM and ATC.
    Source("coding_qa", "jsonl", ("coding_qa/**/*.jsonl*",), 0.20),
    Source("ema_leaflets", "leaflet", ("ema_leaflets/**/*.txt",), 0.06, rules=Rules(join=True)),
    Source("e3c_cases", "e3c", ("e3c/**/*.xml", "e3c/**/*.json"), 0.04, language="fr"),
)


def get_recipe() -> Recipe:
    """Returns the recipe, of 10B tokens and a decay of 1B."""
    return Recipe("fr_base", tokens=11e9, sources=SOURCES)
