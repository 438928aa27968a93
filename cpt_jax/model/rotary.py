"""Rotary positions (Su et al. 2021, arXiv 2104.09864) in Hugging Face's layout of halves."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def rotation(
    index: Int[Array, "B L"], theta: float, head_size: int
) -> tuple[Float[Array, "B L 1 R"], Float[Array, "B L 1 R"]]:
    """Cosine and sine of each position's angles, fp32, for the K / 2 pairs of channels."""
    # In fp32 and in this order like the reference: one unit in the last place of a frequency is
    # half a milliradian at position 8000.
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    frequencies = np.float32(1) / np.float32(theta) ** exponents
    angles = index[..., None, None].astype(jnp.float32) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(
    x: Float[Array, "B L H K"], cos: Float[Array, "B L 1 R"], sin: Float[Array, "B L 1 R"]
) -> Float[Array, "B L H K"]:
    """Rotate channel c against channel c + K / 2, in fp32 (Su et al. 2021, in halves)."""
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    return rotated.astype(x.dtype)
