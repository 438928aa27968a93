"""Independent sources of truth for the model: masks by definition, dense attention, PyTorch.

Nothing here imports the code it is compared with, except the dataclass that holds sizes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from cpt_jax.model.spec import ModelSpec

# Most of a tiny model's test is its compilation, which this more than halves.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

TINY = ModelSpec(
    vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=3,
    num_attention_heads=2, local_attention=8, pad_token_id=0, cls_token_id=1, sep_token_id=2,
    bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def visible(segment_ids, mask_mode: str, window: int | None) -> np.ndarray:
    """[B, L, L], True where query i may see key j, straight from the definition."""
    segments = np.asarray(segment_ids)
    i, j = np.indices(2 * segments.shape[-1:])
    same = segments[:, :, None] == segments[:, None, :]
    seen = same & (segments != 0)[:, :, None]
    if mask_mode == "causal":
        seen &= j <= i
    if window is not None:
        seen &= abs(i - j) <= window
    return seen


def dense_attention(q, k, v, seen) -> jax.Array:
    """Attention over an explicit mask [B, L, L]; 0 where a query sees nothing."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(seen[:, None], scores.astype(jnp.float32), -1e9)
    weights = jax.nn.softmax(scores, axis=-1) * seen.any(-1)[:, None, :, None]
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)


def relative(ours, theirs) -> float:
    """max |ours - theirs| / max |theirs|, over a whole tensor."""
    ours, theirs = (np.asarray(x, np.float64) for x in (ours, theirs))
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def segments(*rows: list[int], length: int) -> np.ndarray:
    """[B, L] from each row's document lengths; what remains is padding."""
    out = np.zeros((len(rows), length), np.int32)
    for row, lengths in zip(out, rows, strict=True):
        ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        row[: len(ids)] = ids
    return out


def noisy_params(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, jax.Array]:
    """Parameters large enough for an error to show: see `hf_model` for why."""
    rng = np.random.default_rng(seed)

    def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = rng.standard_normal(shape)
        if path.endswith("scale"):
            return 1 + 0.3 * noise
        return (0.5 if len(shape) == 1 else 0.1) * noise

    return {p: jnp.asarray(draw(p, s), jnp.float32) for p, s in shapes.items()}
