"""Continued pretraining of ModernBERT encoders through a causal language modelling detour.

Dimension key, used in shapes throughout: B batch, L tokens of a row, D hidden, F intermediate,
H heads, K head size, V vocabulary, N layers, C target positions of a row, S seeds.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpt_jax.model.hub import from_pretrained as from_pretrained

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy, so that reading a config or preparing data does not import JAX.
    if name == "from_pretrained":
        from cpt_jax.model.hub import from_pretrained

        return from_pretrained
    raise AttributeError(f"module 'cpt_jax' has no attribute {name!r}")
