"""The French mixture for 25B tokens: what configs/fr_large.py reads. See configs/data/fr_base.py.

python -m cpt_jax.curate.build --recipe configs/data/fr_large.py --raw raw/fr ...
"""

from configs.data.fr_base import SOURCES
from cpt_jax.curate.recipe import Recipe


def get_recipe() -> Recipe:
    """Returns the recipe, of 25B tokens and a decay of 2.5B."""
    return Recipe("fr_large", tokens=27.5e9, sources=SOURCES)
