"""The FLOP count against explicit masks."""

import time

import numpy as np
import pytest

from cpt_jax.model.flops import peak_flops, training_flops
from cpt_jax.model.spec import SIZES, ModelSpec

FULL, LOCAL = "full_attention", "sliding_attention"


def spec_of(window: int) -> ModelSpec:
    """Four layers of sizes that share no factor by accident."""
    return ModelSpec(
        vocab_size=97,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=4,
        num_attention_heads=2,
        layer_types=(FULL, LOCAL, LOCAL, FULL),
        local_attention=2 * window + 1,  # its half, rounded down
    )


def brute_force_flops(spec, segment_ids, modes, targets):
    """Every product of the model counted one by one, attention under explicit masks."""
    D, F, V = spec.hidden_size, spec.intermediate_size, spec.vocab_size
    forward = 0
    for layer_type, mode in zip(spec.layer_types, modes, strict=True):
        for row in segment_ids:
            for i, document in enumerate(row):
                if document == 0:
                    continue
                forward += 2 * D * 3 * D  # Wqkv
                forward += 2 * D * D  # Wo
                forward += 2 * D * 2 * F + 2 * F * D  # the GLU
                for j, other in enumerate(row):
                    seen = other == document
                    seen &= layer_type == FULL or abs(i - j) <= spec.window
                    seen &= mode == "bidirectional" or j <= i
                    forward += 2 * D * 2 * int(seen)  # q k and p v
    forward += targets * (2 * D * D + 2 * D * V)
    return 3 * forward


@pytest.mark.parametrize(
    "mode", ["bidirectional", "causal", ("causal", "bidirectional", "causal", "bidirectional")]
)
@pytest.mark.parametrize("window", [0, 1, 3, 64])
def test_flops_equal_the_brute_force_count(mode, window):
    segment_ids = np.array(
        [
            [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
            [1, 2, 2, 2, 2, 2, 2, 3, 3, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 0],
        ],
        np.int32,
    )
    spec = spec_of(window)
    modes = (mode,) * 4 if isinstance(mode, str) else mode
    expected = brute_force_flops(spec, segment_ids, modes, targets=11)
    assert training_flops(spec, segment_ids, mode, targets=11) == expected


def test_padding_and_neighbours_cost_nothing():
    document = np.ones((1, 50), np.int32)
    alone = training_flops(spec_of(3), document, "causal", 0)
    padded = np.pad(document, ((0, 3), (0, 77)))
    assert training_flops(spec_of(3), padded, "causal", 0) == alone
    packed = np.concatenate([document, 2 * document], axis=1)
    assert training_flops(spec_of(3), packed, "causal", 0) == 2 * alone


def test_flops_of_a_base_step_by_hand():
    """ModernBERT-base, one row of 8192: 8 global and 14 local layers, 30 % targets."""
    matrices = 22 * (4 * 768 * 768 + 3 * 768 * 1152)
    pairs = 8 * 8192**2 + 14 * (8192 * 129 - 64 * 65)
    head = 2458 * 768 * (768 + 50368)
    expected = 3 * (2 * 8192 * matrices + 4 * 768 * pairs + 2 * head)
    flops = training_flops(SIZES["base"], np.ones((1, 8192), np.int32), "bidirectional", 2458)
    assert flops == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("TPU v4", 275e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("TPU v5p", 459e12),
        ("TPU v6 lite", 918e12),
        ("cpu", None),
    ],
)
def test_peaks(kind, peak):
    assert peak_flops(kind) == peak


def test_counting_a_batch_is_cheap():
    """One call on the paper's batch takes far less than the second that its step takes."""
    segment_ids = np.repeat(np.arange(1, 33, dtype=np.int32), 256)[None].repeat(384, axis=0)
    start = time.perf_counter()
    training_flops(spec_of(3), segment_ids, "causal", 384 * 8192)
    assert time.perf_counter() - start < 2
