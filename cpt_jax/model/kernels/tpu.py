"""Attention on TPUs: JAX's splash attention, with documents read off the intervals.

Splash attention (jax.experimental.pallas.ops.tpu.splash_attention) takes a mask that is known when
it is compiled, whose empty blocks it never visits, and segment ids. Window and causality go into
the mask. The documents stand in the intervals already: a document starts where an interval starts
at its own query, so that no kernel needs more than `k_start` and `k_end`. A padding query is a
document of its own then, sees itself, and is set to 0, which stops its gradient as well.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

LANES = 128  # a TPU's; blocks are multiples of it
# Tokens of a block of queries and of keys. A global layer's are as large as fast memory allows; a
# local layer visits the blocks that its window touches, so that larger ones are mostly masked.
GLOBAL_BLOCK, LOCAL_BLOCK = 512, 256


def refusal(device: Any, *, dtype: DTypeLike, length: int) -> str | None:
    """Why a device (or a topology's) cannot attend so, None where it can.

    Args:
      device: a JAX device, here or not.
      dtype: of q, k and v.
      length: L, tokens of a row.
    """
    if device.platform != "tpu":
        return f"it needs a TPU, and {device.device_kind!r} is none"
    if jnp.dtype(dtype) != jnp.bfloat16:
        return f"it is for bfloat16, not {jnp.dtype(dtype).name}"
    return length_refusal(length)


def length_refusal(length: int) -> str | None:
    """Why rows of `length` tokens cannot be attended over."""
    if length % LANES:
        return f"rows must be multiples of {LANES} tokens, and {length} is not"
    return None


def splash(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int | None,
    causal: bool,
    interpret: bool = False,
) -> Float[Array, "B L H K"]:
    """Attention over the intervals of `ranges.key_ranges` for this window and causality.

    Args:
      window: the reach in tokens that the intervals obey exactly; None for a global layer.
      causal: whether the intervals end at the query.
      interpret: compute on any device, step by step, without compiling for a TPU.

    Returns:
      In q's dtype; softmax in fp32. A query with an empty interval gets exactly 0.

    Raises: ValueError for rows that are no multiple of `LANES` tokens.
    """
    length, heads, size = q.shape[1:]
    if reason := length_refusal(length):
        raise ValueError(f"splash attention: {reason}")
    kernel, segments = _kernel(length, heads, window, causal, interpret), _modules()[0].SegmentIds
    index = jnp.arange(length, dtype=jnp.int32)
    documents = jnp.cumsum(k_start == index, axis=1, dtype=jnp.int32)

    def row(q, k, v, documents):
        return kernel(q, k, v, segments(documents, documents))

    q, k, v = (x.swapaxes(1, 2) for x in (q * size**-0.5, k, v))
    out = jax.vmap(row)(q, k, v, documents).swapaxes(1, 2)
    return jnp.where((k_start >= k_end)[..., None, None], 0, out)


@functools.cache
def _kernel(length: int, heads: int, window: int | None, causal: bool, interpret: bool) -> Any:
    """The kernel of one shape, its tables of blocks as numpy arrays: the same in every trace."""
    kernels, masks = _modules()
    shape = (length, length)
    if window is not None:
        mask = masks.LocalMask(shape, (window, 0 if causal else window), 0)
    else:
        mask = masks.CausalMask(shape) if causal else masks.FullMask(shape)
    largest = GLOBAL_BLOCK if window is None else LOCAL_BLOCK
    block = next(size for size in (512, 256, LANES) if size <= largest and length % size == 0)
    # Not the fused backward pass: it writes a gradient of q for each block of keys, to be added up:
    # tokens x tokens again, divided by block / K.
    sizes = kernels.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_q_dkv", "block_kv_dkv"), block),
        **dict.fromkeys(("block_q_dq", "block_kv_dq"), block),
    )
    make = functools.partial(
        kernels.make_splash_mha,
        masks.MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=sizes,
        interpret=interpret,
    )
    # It makes arrays, of the trace and on the mesh of whoever asks, whose devices may not be here;
    # a thread of its own has neither.
    with ThreadPoolExecutor(1) as thread:
        return jax.tree.map(np.asarray, thread.submit(make).result())


@functools.cache
def _modules() -> tuple[Any, Any]:
    """Splash attention's kernels and masks; importing Pallas takes a second that others save."""
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    return splash_attention_kernel, splash_attention_mask
