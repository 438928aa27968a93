"""The attention mask as an interval of keys for every query.

Documents, the local window and causality only move the two ends of the interval, so the two
integer vectors computed here are all that any attention kernel has to know about masks.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

MASK_MODES = ("bidirectional", "causal")
PADDING = 0


def key_ranges(
    segment_ids: Int[Array, "B L"], mask_mode: str, window: int | None
) -> tuple[Int[Array, "B L"], Int[Array, "B L"]]:
    """The keys each query may see.

    Args:
      segment_ids: the document of each token, constant over a document and contiguous;
        0 marks padding.
      mask_mode: "bidirectional" or "causal".
      window: a local layer's reach to either side in tokens, `local_attention // 2`
        (64 for ModernBERT: query i sees keys i - 64 .. i + 64, or i - 64 .. i when causal);
        None for a global layer.

    Returns:
      `(k_start, k_end)`, int32: query i sees keys `k_start[b, i] <= j < k_end[b, i]`.
      A padding query sees none: its interval is [i, i).

    Raises:
      ValueError: for an unknown mask mode or a negative window.
    """
    if mask_mode not in MASK_MODES:
        raise ValueError(f"mask_mode: {mask_mode!r} is not one of {', '.join(MASK_MODES)}")
    if window is not None and window < 0:
        raise ValueError(f"window: {window} is negative; give a number of tokens, or None")
    index = _index(segment_ids)
    k_start = _document_start(segment_ids)
    k_end = _document_end(segment_ids)
    if window is not None:
        k_start = jnp.maximum(k_start, index - window)
        k_end = jnp.minimum(k_end, index + window + 1)
    if mask_mode == "causal":
        k_end = jnp.minimum(k_end, index + 1)
    padding = segment_ids == PADDING
    return jnp.where(padding, index, k_start), jnp.where(padding, index, k_end)


def positions(segment_ids: Int[Array, "B L"]) -> Int[Array, "B L"]:
    """Each token's int32 position in its document, counted from 0 (in tokens)."""
    return _index(segment_ids) - _document_start(segment_ids)


def _index(segment_ids: Int[Array, "B L"]) -> Int[Array, "1 L"]:
    return jnp.arange(segment_ids.shape[1], dtype=jnp.int32)[None]


def _starts(segment_ids: Int[Array, "B L"]) -> Bool[Array, "B L"]:
    changes = segment_ids[:, 1:] != segment_ids[:, :-1]
    return jnp.pad(changes, ((0, 0), (1, 0)), constant_values=True)


def _document_start(segment_ids: Int[Array, "B L"]) -> Int[Array, "B L"]:
    first = jnp.where(_starts(segment_ids), _index(segment_ids), 0)
    return jax.lax.cummax(first, axis=1)


def _document_end(segment_ids: Int[Array, "B L"]) -> Int[Array, "B L"]:
    length = segment_ids.shape[1]
    last = jnp.pad(_starts(segment_ids)[:, 1:], ((0, 0), (0, 1)), constant_values=True)
    end = jnp.where(last, _index(segment_ids) + 1, length)
    return jax.lax.cummin(end, axis=1, reverse=True)
