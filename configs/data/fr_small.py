"""A small French mixture of public text: the reports of PARHAF, QUAERO's leaflets and titles.

Of QUAERO only the training texts: the others are what models are tested on.
"""

from cpt_jax.curate.recipe import Recipe, Source
from cpt_jax.curate.rules import Repeat, Rules

QUAERO = "fr_tasks/QUAERO/corpus/train"


def get_recipe() -> Recipe:
    """Returns the recipe; docs/data.md has its figures."""
    return Recipe(
        "fr_small",
        tokens=2e6,
        seq_len=1024,
        heldout_fraction=0.02,
        sources=(
            Source(
                "reports",
                "jsonl",
                ("fr_bio/parhaf_713.jsonl",),
                0.8,
                licence="CC BY 4.0",
                language="fr",
                rules=Rules(repeats=(Repeat(1.5),)),
            ),
            Source(
                *("leaflets", "leaflet", (f"{QUAERO}/EMEA/*.txt",), 0.1),
                licence="GFDL",
                language="fr",
                rules=Rules(join=True),
            ),
            Source("titles", "text", (f"{QUAERO}/MEDLINE/*.txt",), 0.1, licence="GFDL"),
        ),
    )
