"""Attention in plain XLA, on any device, without an L x L buffer.

`banded` serves the local layers: each block of queries meets the one strip of keys its window can
reach. `flash` serves the global ones: softmax over key blocks one after another (online softmax,
Milakov and Gimelshein 2018; its backward pass as in FlashAttention, Dao et al. 2022), where a
block of queries visits only the key blocks that its own intervals reach.

Both take the intervals of `model.ranges`, return exactly 0 for a query whose interval is empty,
and pass back exactly 0 gradient from it. Products accumulate and softmax runs in fp32 whatever
the inputs' dtype. Both are jitted, so that a model called eagerly compiles each of them once and
not once a layer.
"""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cpt_jax.model.kernels.batching import over_rows

# A masked score, and the floor of a running maximum. exp(MASKED - FLOOR) is exactly 0, so a query
# that has seen no key yet sums to 0 and needs no second mask.
MASKED = -1e30
FLOOR = -1e20
# Sizes of block, and scores per second in them relative to the first (docs/performance.md).
BLOCKS = ((128, 1.0), (256, 1.6), (512, 1.75))

_product = partial(jnp.einsum, preferred_element_type=jnp.float32)


def block_bounds(
    k_start: Int[Array, "*B L"], k_end: Int[Array, "*B L"], block: int
) -> tuple[Int[Array, "*B n"], Int[Array, "*B n"]]:
    """The key blocks `first <= j < last` that each block of queries visits, each row for itself.

    Queries with empty intervals ask for nothing; a block of such queries has first >= last.
    L must be a multiple of `block`.
    """
    empty = k_start >= k_end
    blocks = (*k_start.shape[:-1], k_start.shape[-1] // block, block)
    largest = jnp.iinfo(jnp.int32).max
    start = jnp.where(empty, largest, k_start).reshape(blocks).min(axis=-1)
    end = jnp.where(empty, 0, k_end).reshape(blocks).max(axis=-1)
    return start // block, -(-end // block)


@partial(jax.jit, static_argnames="blocks")
def flash(
    q: Float[Array, "B L H K"],
    k: Float[Array, "B L H K"],
    v: Float[Array, "B L H K"],
    k_start: Int[Array, "B L"],
    k_end: Int[Array, "B L"],
    *,
    blocks: tuple[tuple[int, float], ...] = BLOCKS,
) -> Float[Array, "B L H K"]:
    """Attention over any intervals; time follows the key blocks visited, memory is O(L).

    Forward and backward loop over rows, then blocks of queries, then the key blocks
    `block_bounds` gives, so the cost of a row does not depend on its neighbours. Rows no longer
    than the first size are `_banded`'s, all at once: a turn of a loop for each costs more.

    Args:
      blocks: sizes and their speeds; each row takes the size that its intervals make fastest
        (`_choice`). The first is for any length, the others for multiples of them, as long as all
        heads' scores of a block are fewer than L x L.
    """
    length, size = q.shape[1], blocks[0][0]
    if length <= size:
        inputs = _blocked(q, k, v, k_start, k_end, pad=0)
        return _banded(*inputs, (0, 0, length)).swapaxes(1, 2)
    most, heads = length**2, q.shape[2]
    larger = (b for b in blocks[1:] if length % b[0] == 0 and heads * b[0] ** 2 < most)
    blocks = (blocks[0], *larger)
    inputs = _blocked(q, k, v, k_start, k_end, pad=-length % size)
    return _flash(*inputs, blocks).swapaxes(1, 2)[:, :length]


def _blocked(q, k, v, k_start, k_end, pad: int) -> tuple[Array, ...]:
    """q, k, v as [B, H, L + pad, K] and the intervals, empty over the padding."""
    arrays = (jnp.pad(x.swapaxes(1, 2), ((0, 0),) * 2 + ((0, pad), (0, 0))) for x in (q, k, v))
    ranges = (jnp.pad(x, ((0, 0), (0, pad))) for x in (k_start, k_end))
    return *arrays, *ranges


def _block(x: Array, index: Array, size: int, axis: int = 1) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, index * size, size, axis)


def _flash_forward(q, k, v, k_start, k_end, blocks):
    inputs = (q, k, v, k_start, k_end)
    out, lse = _each_row(_forward_row, blocks)(*inputs)
    return out, (*inputs, out, lse)


def _flash_backward(blocks, residuals, d_out):
    d_q, d_k, d_v = _each_row(_backward_row, blocks)(*residuals, d_out)
    return d_q, d_k, d_v, None, None


@cache
def _each_row(
    of_one: Callable[..., tuple], blocks: tuple[tuple[int, float], ...]
) -> Callable[..., tuple]:
    """`of_one` row after row, each in blocks of its own size, under `jax.vmap` too."""
    ways = [partial(of_one, block=size) for size, _ in blocks]

    def row(arrays: tuple[Array, ...]) -> tuple:
        return jax.lax.switch(_choice(arrays[3], arrays[4], blocks), ways, *arrays)

    return over_rows(lambda *rows: jax.lax.map(row, rows))


def _choice(
    k_start: Int[Array, " L"], k_end: Int[Array, " L"], blocks: tuple[tuple[int, float], ...]
) -> Int[Array, ""]:
    """Which of the sizes makes a row fastest: large blocks visit more where documents are short."""
    seconds = []
    for size, speed in blocks:
        first, last = block_bounds(k_start, k_end, size)
        visited = jnp.maximum(last - first, 0).astype(jnp.float32).sum()
        seconds.append(visited * (size**2 / speed))
    return jnp.argmin(jnp.stack(seconds))


def _forward_row(q, k, v, k_start, k_end, *, block: int):
    """Output [H, L, K] of one row and, in fp32, the log of its summed exponentials [H, L]."""
    heads, length, size = q.shape
    scale = size**-0.5
    first, last = block_bounds(k_start, k_end, block)

    def query_block(i):
        q_i = _block(q, i, block)
        start_i, end_i = (_block(x, i, block, axis=0)[:, None] for x in (k_start, k_end))

        def key_block(j, carry):
            maximum, total, out = carry
            k_j, v_j = _block(k, j, block), _block(v, j, block)
            keys = j * block + jnp.arange(block, dtype=jnp.int32)
            scores = _product("hqd,hkd->hqk", q_i, k_j) * scale
            scores = jnp.where((keys >= start_i) & (keys < end_i), scores, MASKED)
            new_maximum = jnp.maximum(maximum, scores.max(-1))
            rescale = jnp.exp(maximum - new_maximum)
            weights = jnp.exp(scores - new_maximum[..., None])
            total = total * rescale + weights.sum(-1)
            out_j = _product("hqk,hkd->hqd", weights.astype(v.dtype), v_j)
            return new_maximum, total, out * rescale[..., None] + out_j

        zeros = jnp.zeros((heads, block), jnp.float32)
        init = (zeros + FLOOR, zeros, jnp.zeros((heads, block, size), jnp.float32))
        maximum, total, out = jax.lax.fori_loop(first[i], last[i], key_block, init)
        return _normalise(maximum, total, out, q.dtype)

    out, lse = jax.lax.map(query_block, jnp.arange(length // block))
    return jnp.moveaxis(out, 0, 1).reshape(q.shape), jnp.moveaxis(lse, 0, 1).reshape(heads, length)


def _normalise(maximum: Array, total: Array, out: Array, dtype) -> tuple[Array, Array]:
    """Softmax's output and the log of its denominator; 0 and 0 where no key was seen."""
    seen = total > 0
    total = jnp.where(seen, total, 1.0)
    lse = jnp.where(seen, maximum + jnp.log(total), 0.0)
    return (out / total[..., None]).astype(dtype), lse


def _backward_row(q, k, v, k_start, k_end, out, lse, d_out, *, block: int):
    """Gradients of one row; only this row's d_k and d_v exist in fp32.

    Scores are held transposed, [k, q], so that of the three products with them two contract over
    their last dimension: on the CPU a transposed operand costs half as much again.
    """
    scale = q.shape[-1] ** -0.5
    first, last = block_bounds(k_start, k_end, block)
    # The softmax's own gradient needs sum_j p_ij dp_ij, which equals out_i . d_out_i.
    delta = _product("hqd,hqd->hq", out, d_out)

    def query_block(carry, i):
        q_i, d_out_i = _block(q, i, block), _block(d_out, i, block)
        lse_i, delta_i = (_block(x, i, block)[:, None] for x in (lse, delta))
        start_i, end_i = (_block(x, i, block, axis=0) for x in (k_start, k_end))

        def key_block(j, carry):
            d_q_i, d_k, d_v = carry
            k_j, v_j = _block(k, j, block), _block(v, j, block)
            keys = j * block + jnp.arange(block, dtype=jnp.int32)[:, None]
            scores = _product("hkd,hqd->hkq", k_j, q_i) * scale
            scores = jnp.where((keys >= start_i) & (keys < end_i), scores, MASKED)
            weights = jnp.exp(scores - lse_i)
            d_weights = _product("hkd,hqd->hkq", v_j, d_out_i)
            d_scores = (weights * (d_weights - delta_i) * scale).astype(q.dtype)
            d_v_j = _product("hkq,hqd->hkd", weights.astype(q.dtype), d_out_i)
            d_k_j = _product("hkq,hqd->hkd", d_scores, q_i)
            d_q_i += _product("hkq,hkd->hqd", d_scores, k_j)
            return d_q_i, _add_block(d_k, d_k_j, j), _add_block(d_v, d_v_j, j)

        zeros = jnp.zeros(q_i.shape, jnp.float32)
        d_q_i, *carry = jax.lax.fori_loop(first[i], last[i], key_block, (zeros, *carry))
        return tuple(carry), d_q_i.astype(q.dtype)

    zeros = jnp.zeros(k.shape, jnp.float32)
    count = q.shape[1] // block
    (d_k, d_v), d_q = jax.lax.scan(query_block, (zeros, zeros), jnp.arange(count))
    return jnp.moveaxis(d_q, 0, 1).reshape(q.shape), d_k.astype(k.dtype), d_v.astype(v.dtype)


def _add_block(x: Array, block: Array, index: Array) -> Array:
    size = block.shape[1]
    return jax.lax.dynamic_update_slice_in_dim(x, _block(x, index, size) + block, index * size, 1)


_flash = jax.custom_vjp(lambda *inputs: _flash_forward(*inputs)[0], nondiff_argnums=(5,))
_flash.defvjp(_flash_forward, _flash_backward)


@partial(jax.jit, static_argnames=("window", "causal", "block"))
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
    time and memory are O(L (block + 2 window)). A key further away than that is not seen even
    where an interval names it.
    """
    length, ahead = q.shape[1], 0 if causal else window
    block = min(block, length)
    if window + block + ahead >= length:  # a strip would be no shorter than the row
        index = jnp.arange(length, dtype=jnp.int32)
        k_start, k_end = jnp.maximum(k_start, index - window), jnp.minimum(k_end, index + ahead + 1)
        return flash(q, k, v, k_start, k_end)
    inputs = _blocked(q, k, v, k_start, k_end, pad=-length % block)
    band = (window, ahead, block)
    return _banded(*inputs, band).swapaxes(1, 2)[:, :length]


# Keys seen behind a block of queries, keys seen ahead of it, and the block's size.
_Band = tuple[int, int, int]


def _banded_forward(q, k, v, k_start, k_end, band: _Band):
    visible = _band_visible(k_start, k_end, band)
    scores = _band_scores(_into_blocks(q, band), _strips(k, band), visible)
    maximum = jnp.maximum(scores.max(-1), FLOOR)
    weights = jnp.exp(scores - maximum[..., None])
    out = _product("bhnqk,bhnkd->bhnqd", weights.astype(v.dtype), _strips(v, band))
    out, lse = _normalise(maximum, weights.sum(-1), out, q.dtype)
    out = out.reshape(q.shape)
    return out, (q, k, v, k_start, k_end, out, lse)


def _banded_backward(band: _Band, residuals, d_out):
    """Recomputes the weights, as they are larger than everything that is kept."""
    q, k, v, k_start, k_end, out, lse = residuals
    q_blocks, d_out_blocks = _into_blocks(q, band), _into_blocks(d_out, band)
    delta = _into_blocks(_product("bhqd,bhqd->bhq", out, d_out), band)
    strips_k, transpose = jax.vjp(partial(_strips, band=band), k)
    scores = _band_scores(q_blocks, strips_k, _band_visible(k_start, k_end, band))
    weights = jnp.exp(scores - lse[..., None])
    d_weights = _product("bhnqd,bhnkd->bhnqk", d_out_blocks, _strips(v, band))
    d_scores = weights * (d_weights - delta[..., None]) * q.shape[-1] ** -0.5
    d_scores, weights = d_scores.astype(q.dtype), weights.astype(q.dtype)
    d_q = _product("bhnqk,bhnkd->bhnqd", d_scores, strips_k).reshape(q.shape)
    d_k = _product("bhnqk,bhnqd->bhnkd", d_scores, q_blocks).astype(k.dtype)
    d_v = _product("bhnqk,bhnqd->bhnkd", weights, d_out_blocks).astype(v.dtype)
    return d_q.astype(q.dtype), *transpose(d_k), *transpose(d_v), None, None


def _into_blocks(x: Array, band: _Band) -> Array:
    """[B, H, L, ...] to [B, H, n, block, ...]."""
    block = band[2]
    return x.reshape(*x.shape[:2], x.shape[2] // block, block, *x.shape[3:])


def _strips(x: Float[Array, "B H L K"], band: _Band) -> Float[Array, "B H n S K"]:
    """For each block of queries, the keys from `behind` before it to `ahead` after it."""
    behind, ahead, block = band
    count, strip = x.shape[2] // block, behind + block + ahead
    pieces = -(-strip // block)
    pad = (behind, pieces * block - block - behind)
    shifted = _into_blocks(jnp.pad(x, ((0, 0), (0, 0), pad, (0, 0))), band)
    strips = [shifted[:, :, i : i + count] for i in range(pieces)]
    return jnp.concatenate(strips, axis=3)[:, :, :, :strip]


def _band_visible(
    k_start: Int[Array, "B L"], k_end: Int[Array, "B L"], band: _Band
) -> Bool[Array, "B 1 n Q S"]:
    """Whether each query of a block may see each key of the block's strip."""
    behind, ahead, block = band
    start, end = (_into_blocks(x[:, None], band)[..., None] for x in (k_start, k_end))
    strip = jnp.arange(behind + block + ahead, dtype=jnp.int32) - behind
    keys = jnp.arange(start.shape[2], dtype=jnp.int32)[:, None] * block + strip
    return (keys[:, None] >= start) & (keys[:, None] < end)


def _band_scores(q_blocks: Array, strips_k: Array, visible: Array) -> Float[Array, "B H n Q S"]:
    scores = _product("bhnqd,bhnkd->bhnqk", q_blocks, strips_k) * q_blocks.shape[-1] ** -0.5
    return jnp.where(visible, scores, MASKED)


_banded = jax.custom_vjp(lambda *inputs: _banded_forward(*inputs)[0], nondiff_argnums=(5,))
_banded.defvjp(_banded_forward, _banded_backward)
