"""The activation functions a spec can name, by Hugging Face's names."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x times the normal distribution function, exact; through erf, in fp32, as PyTorch has it.

    `jax.nn.gelu` goes through erfc, which takes the CPU three times as long.
    """
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1 + jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
