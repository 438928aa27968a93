"""Recipes of mixtures, for `cpt_jax.curate.build`."""
