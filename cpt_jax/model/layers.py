"""What the modules of `modernbert` are made of: linear layers, norms, dropout, initial values, and
how the arrays between them lie on a mesh (`cpt_jax.sharding`)."""

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from cpt_jax import sharding
from cpt_jax.model.spec import ModelSpec


def truncated_normal(spec: ModelSpec, std: float) -> nnx.Initializer:
    """Normal values, none further from 0 than the spec's cutoff in standard deviations."""
    cutoff = spec.initializer_cutoff_factor
    return nnx.initializers.truncated_normal(std, lower=-cutoff, upper=cutoff)


def residual_std(spec: ModelSpec) -> float:
    """The standard deviation of matrices that write to the residual stream."""
    return spec.initializer_range / (2 * spec.num_hidden_layers) ** 0.5


def linear(
    spec: ModelSpec,
    inputs: int,
    outputs: int,
    bias: bool,
    rngs: nnx.Rngs,
    dtype: DTypeLike,
    residual: bool = False,
) -> nnx.Linear:
    """A linear layer with the initial values of transformers' ModernBERT."""
    std = residual_std(spec) if residual else spec.initializer_range
    init = truncated_normal(spec, std)
    return nnx.Linear(inputs, outputs, use_bias=bias, kernel_init=init, dtype=dtype, rngs=rngs)


def norm(spec: ModelSpec, rngs: nnx.Rngs, dtype: DTypeLike) -> nnx.LayerNorm:
    """A layer norm over the hidden size."""
    return nnx.LayerNorm(
        spec.hidden_size,
        epsilon=spec.norm_eps,
        use_bias=spec.norm_bias,
        dtype=dtype,
        # E[x^2] - E[x]^2 loses the digits that the mean and the deviation differ by.
        use_fast_variance=False,
        rngs=rngs,
    )


def dropout(drop: nnx.Dropout, x: Array, key: PRNGKeyArray | None) -> Array:
    """Drops with a key, and does nothing without one."""
    return drop(x, deterministic=key is None, rngs=key)


def columns(fused: nnx.Linear, x: Float[Array, "B L D"], *shape: int) -> Array:
    """A linear layer's outputs as [B, L, parts, columns, ...], the columns cut over `tensor`.

    Wqkv holds q, k and v side by side and Wi input and gate. Outputs that are cut over devices in
    runs of equal length would be, for two devices, q and half of k on the first: every activation
    would have to move to where its head is. Here the weights move instead, from where they are
    stored: D x 3 D numbers a layer, and not B x L x 3 D.

    Args:
      fused: the layer.
      x: its input.
      shape: (parts, columns of each part, ...), of which the product is the layer's outputs.
    """
    kernel = fused.kernel[...].astype(fused.dtype)
    if sharding.auto_axes().get("tensor", 1) > 1:
        # As it is stored: its gradient cannot go from heads to every axis of the moments at once.
        kernel = sharding.constrain(kernel, ("fsdp", "tensor"))
    kernel = sharding.constrain(kernel.reshape(-1, *shape), sharding.OPEN, None, "tensor")
    out = jax.lax.dot_general(x.astype(fused.dtype), kernel, (((2,), (0,)), ((), ())))
    if fused.bias is not None:
        out += fused.bias[...].astype(fused.dtype).reshape(shape)
    return out


def fence(x: Float[Array, "B L D"]) -> Float[Array, "B L D"]:
    """The residual stream between two blocks: whole rows, on the devices that hold them.

    Where it is not fenced, XLA's CPU compiler adds it up anew, from what every block before (or,
    for gradients, behind) gave, in each fusion that reads it: a time quadratic in the number of
    layers. `training.step.compiler_options` makes it honour the fences.
    """
    return jax.lax.optimization_barrier(sharding.constrain(x, sharding.BATCH_AXES))
