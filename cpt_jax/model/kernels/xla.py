"""Attention in plain XLA, on any device, without an L x L buffer.

`banded` serves the local layers: each block of queries meets the one strip of keys its window can
reach. `flash` serves the global ones: softmax over key blocks one after another (online softmax,
Milakov and Gimelshein 2018; its backward pass as in FlashAttention, Dao et al. 2022), where a
block of queries visits only the key blocks that its own intervals reach.

Both take the intervals of `model.ranges`, return exactly 0 for a query whose interval is empty,
and pass back exactly 0 gradient from it. Products accumulate and softmax runs in fp32 whatever
the inputs' dtype.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# A masked score, and the floor of a running maximum. exp(MASKED - FLOOR) is exactly 0, so a query
# that has seen no key yet sums to 0 and needs no second mask.
MASKED = -1e30
FLOOR = -1e20


def block_bounds(
    k_start: Int[Array, "*B L"], k_end: Int[Array, "*B L"], block_q: int, block_k: int
) -> tuple[Int[Array, "*B Q"], Int[Array, "*B Q"]]:
    """The key blocks `first <= j < last` that each block of queries visits, each row for itself.

    Queries with empty intervals ask for nothing; a block of such queries has first >= last.
    L must be a multiple of `block_q`.
    """
    empty = k_start >= k_end
    blocks = (*k_start.shape[:-1], -1, block_q)
    largest = jnp.iinfo(jnp.int32).max
    start = jnp.where(empty, largest, k_start).reshape(blocks).min(axis=-1)
    end = jnp.where(empty, 0, k_end).reshape(blocks).max(axis=-1)
    return start // block_k, -(-end // block_k)


def flash(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    block_q: int = 256,
    block_k: int = 256,
) -> Float[Array, "B L H K"]:
    """Attention over any intervals; time follows the key blocks visited, memory is O(L).

    Forward and backward loop over rows, then blocks of queries, then the key blocks
    `block_bounds` gives, so the cost of a row does not depend on its neighbours.
    """
    length = q.shape[1]
    padded = -(-length // max(block_q, block_k)) * max(block_q, block_k)
    pad = padded - length
    q, k, v = (_heads_first(x, pad) for x in (q, k, v))
    ranges = tuple(jnp.pad(x, ((0, 0), (0, pad))) for x in (k_start, k_end))
    out = _flash(q, k, v, *ranges, block_q, block_k)
    return out.swapaxes(1, 2)[:, :length]


def _heads_first(x: Float[Array, "B L H K"], pad: int) -> Float[Array, "B H P K"]:
    return jnp.pad(x.swapaxes(1, 2), ((0, 0), (0, 0), (0, pad), (0, 0)))


class _Blocks(NamedTuple):
    """What the loops over one row's blocks need besides the arrays."""

    size_q: int
    size_k: int
    scale: float


def _block(x: Array, index: Array, size: int) -> Array:
    """Block `index` of an [H, L, ...] array along L."""
    return jax.lax.dynamic_slice_in_dim(x, index * size, size, axis=1)


def _scores(
    q_HQK: Array, k_HKK: Array, start_Q: Array, end_Q: Array, first_key: Array, scale: float
) -> Array:
    """fp32 scores [H, q, k] of one block pair, MASKED outside the intervals."""
    scores = jnp.einsum("hqd,hkd->hqk", q_HQK, k_HKK, preferred_element_type=jnp.float32)
    keys = first_key + jnp.arange(k_HKK.shape[1], dtype=jnp.int32)
    visible = (keys >= start_Q[:, None]) & (keys < end_Q[:, None])
    return jnp.where(visible, scores * scale, MASKED)


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _flash(q, k, v, k_start, k_end, block_q, block_k):
    return _flash_forward(q, k, v, k_start, k_end, block_q, block_k)[0]


def _flash_forward(q, k, v, k_start, k_end, block_q, block_k):
    blocks = _Blocks(block_q, block_k, q.shape[-1] ** -0.5)
    row = partial(_forward_row, blocks=blocks)
    out, lse = jax.lax.map(lambda xs: row(*xs), (q, k, v, k_start, k_end))
    return out, (q, k, v, k_start, k_end, out, lse)


def _forward_row(q, k, v, k_start, k_end, blocks: _Blocks):
    """Output [H, L, K] and log of the summed exponentials [H, L] of one row."""
    heads, length, size = q.shape
    first, last = block_bounds(k_start, k_end, blocks.size_q, blocks.size_k)

    def query_block(i):
        q_i = _block(q, i, blocks.size_q)
        start_i, end_i = (_block(x[None], i, blocks.size_q)[0] for x in (k_start, k_end))

        def key_block(j, carry):
            maximum, total, out = carry
            k_j, v_j = _block(k, j, blocks.size_k), _block(v, j, blocks.size_k)
            scores = _scores(q_i, k_j, start_i, end_i, j * blocks.size_k, blocks.scale)
            new_maximum = jnp.maximum(maximum, scores.max(-1))
            rescale = jnp.exp(maximum - new_maximum)
            weights = jnp.exp(scores - new_maximum[..., None])
            product = jnp.einsum(
                "hqk,hkd->hqd", weights.astype(v.dtype), v_j, preferred_element_type=jnp.float32
            )
            return (
                new_maximum,
                total * rescale + weights.sum(-1),
                out * rescale[..., None] + product,
            )

        zeros = jnp.zeros((heads, blocks.size_q), jnp.float32)
        init = (zeros + FLOOR, zeros, jnp.zeros((heads, blocks.size_q, size), jnp.float32))
        maximum, total, out = jax.lax.fori_loop(first[i], last[i], key_block, init)
        seen = total > 0
        total = jnp.where(seen, total, 1.0)
        lse = jnp.where(seen, maximum + jnp.log(total), 0.0)
        return (out / total[..., None]).astype(q.dtype), lse

    out, lse = jax.lax.map(query_block, jnp.arange(length // blocks.size_q))
    return jnp.moveaxis(out, 0, 1).reshape(q.shape), jnp.moveaxis(lse, 0, 1).reshape(heads, length)


def _flash_backward(block_q, block_k, residuals, d_out):
    blocks = _Blocks(block_q, block_k, d_out.shape[-1] ** -0.5)
    row = partial(_backward_row, blocks=blocks)
    d_q, d_k, d_v = jax.lax.map(lambda xs: row(*xs), (*residuals, d_out))
    return d_q, d_k, d_v, None, None


def _backward_row(q, k, v, k_start, k_end, out, lse, d_out, blocks: _Blocks):
    """Gradients of one row; only this row's d_k and d_v exist in fp32."""
    first, last = block_bounds(k_start, k_end, blocks.size_q, blocks.size_k)
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    # The softmax's own gradient needs sum_j p_ij dp_ij, which equals out_i . d_out_i.
    delta = product("hqd,hqd->hq", out, d_out)

    def query_block(carry, i):
        q_i, d_out_i, lse_i, delta_i = (_block(x, i, blocks.size_q) for x in (q, d_out, lse, delta))
        start_i, end_i = (_block(x[None], i, blocks.size_q)[0] for x in (k_start, k_end))

        def key_block(j, carry):
            d_q_i, d_k, d_v = carry
            k_j, v_j = _block(k, j, blocks.size_k), _block(v, j, blocks.size_k)
            scores = _scores(q_i, k_j, start_i, end_i, j * blocks.size_k, blocks.scale)
            weights = jnp.exp(scores - lse_i[..., None])
            d_weights = product("hqd,hkd->hqk", d_out_i, v_j)
            d_scores = (weights * (d_weights - delta_i[..., None]) * blocks.scale).astype(q.dtype)
            d_v_j = product("hqk,hqd->hkd", weights.astype(q.dtype), d_out_i)
            d_k_j = product("hqk,hqd->hkd", d_scores, q_i)
            d_q_i += product("hqk,hkd->hqd", d_scores, k_j)
            return d_q_i, _add_block(d_k, d_k_j, j), _add_block(d_v, d_v_j, j)

        zeros = jnp.zeros(q_i.shape, jnp.float32)
        d_q_i, *carry = jax.lax.fori_loop(first[i], last[i], key_block, (zeros, *carry))
        return tuple(carry), d_q_i.astype(q.dtype)

    zeros = jnp.zeros(k.shape, jnp.float32)
    (d_k, d_v), d_q = jax.lax.scan(
        query_block, (zeros, zeros), jnp.arange(q.shape[1] // blocks.size_q)
    )
    d_q = jnp.moveaxis(d_q, 0, 1).reshape(q.shape)
    return d_q, d_k.astype(k.dtype), d_v.astype(v.dtype)


def _add_block(x: Array, block: Array, index: Array) -> Array:
    size = block.shape[1]
    return jax.lax.dynamic_update_slice_in_dim(x, _block(x, index, size) + block, index * size, 1)


_flash.defvjp(_flash_forward, _flash_backward)


def banded(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    window: int,
    causal: bool,
    block: int = 64,
) -> Float[Array, "B L H K"]:
    """Attention whose intervals stay within `window` tokens of the query (behind it, if `causal`).

    Each block of queries meets one strip of block + 2 window keys (block + window if causal), so
    time and memory are O(L (block + 2 window)). Keys further away than `window` are not seen
    even where an interval names them.
    """
    length = q.shape[1]
    pad = -length % block
    q, k, v = (_heads_first(x, pad) for x in (q, k, v))
    ranges = tuple(jnp.pad(x, ((0, 0), (0, pad))) for x in (k_start, k_end))
    out = _banded(q, k, v, *ranges, (window, 0 if causal else window, block))
    return out.swapaxes(1, 2)[:, :length]


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _banded(q, k, v, k_start, k_end, band):
    return _banded_forward(q, k, v, k_start, k_end, band)[0]


def _banded_forward(q, k, v, k_start, k_end, band):
    blocks = _into_blocks(q, band[2])
    strips_v = _strips(v, band)
    scores = _band_scores(blocks, _strips(k, band), k_start, k_end, band)
    maximum = jnp.maximum(scores.max(-1), FLOOR)
    weights = jnp.exp(scores - maximum[..., None])
    total = weights.sum(-1)
    seen = total > 0
    total = jnp.where(seen, total, 1.0)
    out = jnp.einsum(
        "bhnqk,bhnkd->bhnqd",
        weights.astype(v.dtype),
        strips_v,
        preferred_element_type=jnp.float32,
    )
    out = (out / total[..., None]).astype(q.dtype).reshape(q.shape)
    lse = jnp.where(seen, maximum + jnp.log(total), 0.0)
    return out, (q, k, v, k_start, k_end, out, lse)


def _banded_backward(band, residuals, d_out):
    q, k, v, k_start, k_end, out, lse = residuals
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    delta = _into_blocks(product("bhqd,bhqd->bhq", out, d_out), band[2])
    q_blocks, d_out_blocks = _into_blocks(q, band[2]), _into_blocks(d_out, band[2])
    strips_k, transpose = jax.vjp(partial(_strips, band=band), k)
    scores = _band_scores(q_blocks, strips_k, k_start, k_end, band)
    weights = jnp.exp(scores - lse[..., None])
    d_weights = product("bhnqd,bhnkd->bhnqk", d_out_blocks, _strips(v, band))
    scale = q.shape[-1] ** -0.5
    d_scores = (weights * (d_weights - delta[..., None]) * scale).astype(q.dtype)
    d_q = product("bhnqk,bhnkd->bhnqd", d_scores, strips_k).reshape(q.shape)
    d_k = transpose(product("bhnqk,bhnqd->bhnkd", d_scores, q_blocks).astype(k.dtype))[0]
    weights = weights.astype(q.dtype)
    d_v = transpose(product("bhnqk,bhnqd->bhnkd", weights, d_out_blocks).astype(v.dtype))[0]
    return d_q.astype(q.dtype), d_k, d_v, None, None


def _into_blocks(x: Array, size: int) -> Array:
    """[B, H, L, ...] to [B, H, n, size, ...]."""
    return x.reshape(*x.shape[:2], -1, size, *x.shape[3:])


def _strips(x: Float[Array, "B H L K"], band) -> Float[Array, "B H n S K"]:
    """For each block of queries, the keys from `behind` before it to `ahead` after it."""
    behind, ahead, block = band
    count, strip = x.shape[2] // block, block + behind + ahead
    pieces = -(-strip // block)
    x = jnp.pad(x, ((0, 0), (0, 0), (behind, pieces * block - block - behind), (0, 0)))
    x = _into_blocks(x, block)
    strips = jnp.concatenate([x[:, :, i : i + count] for i in range(pieces)], axis=3)
    return strips[:, :, :, :strip]


def _band_scores(q_blocks, strips_k, k_start, k_end, band):
    """fp32 scores [B, H, n, block, strip], MASKED outside the intervals."""
    behind, _, block = band
    scores = jnp.einsum(
        "bhnqd,bhnkd->bhnqk", q_blocks, strips_k, preferred_element_type=jnp.float32
    )
    count, strip = strips_k.shape[2:4]
    keys = jnp.arange(count)[:, None] * block - behind + jnp.arange(strip)
    start, end = (_into_blocks(x[:, None], block)[..., None] for x in (k_start, k_end))
    visible = (keys[:, None] >= start) & (keys[:, None] < end)
    return jnp.where(visible, scores * q_blocks.shape[-1] ** -0.5, MASKED)


_banded.defvjp(_banded_forward, _banded_backward)
