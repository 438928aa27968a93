"""The FLOPs that the mathematics of a training step needs, and what a device could do.

Attention counts the keys that a query may see (documents, window, causality), prediction the target
positions only, padding nothing. Counting dense attention over whole rows instead is how an MFU of
120 % comes about.
"""

import numpy as np
from jaxtyping import Int

from cpt_jax.model.spec import ModelSpec


def training_flops(
    spec: ModelSpec,
    segment_ids: Int[np.ndarray, "B L"],
    mask_mode: str | tuple[str, ...],
    targets: int,
) -> float:
    """Returns the FLOPs of forward and backward over some rows, as the mathematics needs them.

    A product of [m, k] and [k, n] counts 2 m n k; the backward pass counts twice the forward.
    Left out, as in PaLM's definition of MFU (arXiv 2204.02311, appendix B): lookups, norms,
    activations, the softmax, the optimizer, and whatever a backward pass computes again.

    Args:
      spec: the model.
      segment_ids: the document of each token; 0 is padding, which costs nothing.
      mask_mode: "bidirectional" or "causal", for all layers or one for each.
      targets: positions in these rows whose tokens are predicted.
    """
    hidden, inner = spec.hidden_size, spec.intermediate_size
    lengths = document_lengths(segment_ids)
    modes = (mask_mode,) * len(spec.layer_types) if isinstance(mask_mode, str) else mask_mode
    flops = 2.0 * targets * hidden * (hidden + spec.vocab_size)
    for layer_type, mode in zip(spec.layer_types, modes, strict=True):
        # Wqkv and Wo, then Wi (gate and value) and Wo of the GLU
        flops += 2.0 * lengths.sum() * hidden * (3 * hidden + hidden + 2 * inner + inner)
        # scores and weighted sum of values: a dot product over all heads for each, per key seen
        flops += 4.0 * _visible_keys(lengths, mode, spec.reach(layer_type, mode)) * hidden
    return float(3 * flops)


def document_lengths(segment_ids: Int[np.ndarray, "B L"]) -> Int[np.ndarray, " documents"]:
    """Returns the length in tokens of each document in some rows; padding is no document."""
    starts = np.ones(segment_ids.shape, bool)
    starts[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    first = np.flatnonzero(starts)
    lengths = np.diff(first, append=segment_ids.size)
    return lengths[segment_ids.ravel()[first] != 0].astype(np.int64)


def _visible_keys(lengths: np.ndarray, mode: str, reach: int | None) -> int:
    """Returns how many keys all queries of these documents see together."""
    back = lengths - 1 if reach is None else np.minimum(reach, lengths - 1)
    one_side = lengths * back - back * (back + 1) // 2
    both = {"causal": 1, "bidirectional": 2}[mode] * one_side
    return int((both + lengths).sum())


# Dense bf16 peak of one device in FLOP/s, by the beginning of JAX's `device_kind`; the first
# match counts. NVIDIA's data sheets give the doubled, sparse numbers. Sources: NVIDIA H100, H200
# and A100 Tensor Core GPU data sheets; Google Cloud documentation, "TPU v4", "TPU v5e", "TPU v5p",
# "TPU v6e". JAX calls v5e "TPU v5 lite" and v5p "TPU v5".
PEAK_FLOPS = {
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200 NVL": 835e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100": 312e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def peak_flops(device_kind: str) -> float | None:
    """Returns a device's dense bf16 peak in FLOP/s; None for one that is not known (a CPU)."""
    for beginning, flops in PEAK_FLOPS.items():
        if device_kind.startswith(beginning):
            return flops
    return None
