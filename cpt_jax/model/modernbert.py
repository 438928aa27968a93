"""ModernBERT (Warner et al. 2024, arXiv 2412.13663) as Flax NNX modules.

Names and arithmetic are those of transformers 5.24 `modeling_modernbert.py`, with two additions:
a causal mask (`mask_mode`) and rows that pack several documents (`segment_ids`). Training code
works on the `(graphdef, params)` of `split`, where `params` is one flat dict of paths.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cpt_jax import sharding
from cpt_jax.config import AttentionBackend
from cpt_jax.model.activations import ACTIVATIONS
from cpt_jax.model.attention import attention
from cpt_jax.model.layers import (
    columns,
    dropout,
    fence,
    linear,
    norm,
    residual_std,
    truncated_normal,
)
from cpt_jax.model.ranges import key_ranges, positions
from cpt_jax.model.rotary import rotate, rotation
from cpt_jax.model.spec import FULL, ModelSpec

Params = dict[str, jax.Array]
Hidden = Float[Array, "B L D"]
Key = PRNGKeyArray | None  # of dropout; None switches it off
Mask = tuple[str, int | None]  # a layer's mask mode, and its reach under it in tokens
Model = TypeVar("Model", bound=nnx.Module)
Attend = Callable[..., Float[Array, "B L H K"]]  # `attention` under a layer's mask


class Output(NamedTuple):
    """What the model returns, in Hugging Face's names.

    Attributes:
      logits: [B, L, V], fp32.
      last_hidden_state: [B, L, D] after the final norm, in the compute dtype.
      hidden_states: N + 1 arrays [B, L, D], or None unless asked for: the embeddings, then each
        layer's output, the last of them after the final norm, as in transformers.
    """

    logits: Float[Array, "B L V"]
    last_hidden_state: Hidden
    hidden_states: tuple[Hidden, ...] | None


class Context(NamedTuple):
    """What a layer's attention needs besides its input."""

    k_start: Int[Array, "B L"]
    k_end: Int[Array, "B L"]
    cos: Float[Array, "B L 1 R"]
    sin: Float[Array, "B L 1 R"]


class Embeddings(nnx.Module):
    """Token embeddings, normalised."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs, dtype: DTypeLike):
        self.tok_embeddings = nnx.Embed(
            spec.vocab_size,
            spec.hidden_size,
            # Looked up in fp32: casting the whole table first would cost more than the layer.
            dtype=jnp.float32,
            embedding_init=truncated_normal(spec, spec.initializer_range),
            rngs=rngs,
        )
        self.norm = norm(spec, rngs, dtype)
        self.drop = nnx.Dropout(spec.embedding_dropout)

    def __call__(self, input_ids: Int[Array, "B L"], dropout_key: Key) -> Hidden:
        """Embeddings in the compute dtype; the key switches dropout on."""
        vocab = self.tok_embeddings.num_embeddings
        ids = jnp.where(input_ids < 0, vocab, input_ids)  # -1 would be the last word, not a NaN
        # All words' channels are collected, of which a device cuts off its own: to look up some
        # channels of all rows would move every token's instead.
        table = sharding.constrain(self.tok_embeddings.embedding[...], sharding.HEAD_AXIS)
        return dropout(self.drop, self.norm(jnp.take(table, ids, axis=0)), dropout_key)


class Attention(nnx.Module):
    """Multi-head attention with rotary positions."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs, dtype: DTypeLike):
        size, bias = spec.hidden_size, spec.attention_bias
        self.head_size = spec.head_size
        self.Wqkv = linear(spec, size, 3 * size, bias, rngs, dtype)
        self.Wo = linear(spec, size, size, bias, rngs, dtype, residual=True)
        self.out_drop = nnx.Dropout(spec.attention_out_dropout)

    def __call__(self, x: Hidden, context: Context, attend: Attend, dropout_key: Key) -> Hidden:
        """What the block adds to the residual stream."""
        heads = x.shape[-1] // self.head_size
        qkv = columns(self.Wqkv, x, 3, heads, self.head_size)
        # The gradient of a split is one concatenation, that of three slices three padded sums.
        q, k, v = (jnp.squeeze(y, 2) for y in jnp.split(qkv, 3, axis=2))
        q, k = (rotate(y, context.cos, context.sin) for y in (q, k))
        out = attend(q, k, v, context.k_start, context.k_end)
        return dropout(self.out_drop, self.Wo(out.reshape(x.shape)), dropout_key)


class Mlp(nnx.Module):
    """The gated unit `Wo(act(input) * gate)`, with `Wi` giving input and gate side by side."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs, dtype: DTypeLike):
        size, inner, bias = spec.hidden_size, spec.intermediate_size, spec.mlp_bias
        self.activation = spec.hidden_activation
        self.Wi = linear(spec, size, 2 * inner, bias, rngs, dtype)
        self.Wo = linear(spec, inner, size, bias, rngs, dtype, residual=True)
        self.drop = nnx.Dropout(spec.mlp_dropout)

    def __call__(self, x: Hidden, dropout_key: Key) -> Hidden:
        """What the block adds to the residual stream."""
        # Recomputed from Wi's output in the backward pass, where it would keep several arrays of
        # [B, L, F] in fp32; on the CPU that costs no time either.
        inner = self.Wo.in_features
        gated = jax.checkpoint(self._gate)(columns(self.Wi, x, 2, inner))
        return self.Wo(dropout(self.drop, gated, dropout_key))

    def _gate(self, both: Float[Array, "B L 2 F"]) -> Float[Array, "B L F"]:
        value, gate = (jnp.squeeze(half, 2) for half in jnp.split(both, 2, axis=2))
        return ACTIVATIONS[self.activation](value) * gate


class Layer(nnx.Module):
    """One pre-norm block. The first has no `attn_norm`: the embeddings are already normalised."""

    def __init__(self, spec: ModelSpec, index: int, *, rngs: nnx.Rngs, dtype: DTypeLike):
        is_global = spec.layer_types[index] == FULL
        self.attn_norm = norm(spec, rngs, dtype) if index > 0 else None
        self.attn = Attention(spec, rngs=rngs, dtype=dtype)
        self.mlp_norm = norm(spec, rngs, dtype)
        self.mlp = Mlp(spec, rngs=rngs, dtype=dtype)
        self.rope_theta = spec.global_rope_theta if is_global else spec.local_rope_theta

    def __call__(self, x: Hidden, context: Context, attend: Attend, dropout_key: Key) -> Hidden:
        """The residual stream after both blocks."""
        attn_key, mlp_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        x = fence(x)
        normed = x if self.attn_norm is None else self.attn_norm(x)
        x = fence(x + self.attn(normed, context, attend, attn_key))
        return x + self.mlp(self.mlp_norm(x), mlp_key)


class Encoder(nnx.Module):
    """Embeddings, layers and final norm: transformers' `ModernBertModel`."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs, dtype: DTypeLike):
        self.embeddings = Embeddings(spec, rngs=rngs, dtype=dtype)
        layers = range(spec.num_hidden_layers)
        self.layers = nnx.List([Layer(spec, i, rngs=rngs, dtype=dtype) for i in layers])
        self.final_norm = norm(spec, rngs, dtype)


class PredictionHead(nnx.Module):
    """Dense, activation, norm: what stands between the encoder and the decoder."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs, dtype: DTypeLike):
        size = spec.hidden_size
        self.activation = spec.classifier_activation
        self.dense = linear(spec, size, size, spec.classifier_bias, rngs, dtype, residual=True)
        self.norm = norm(spec, rngs, dtype)

    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Features for the decoder."""
        return self.norm(ACTIVATIONS[self.activation](self.dense(hidden)))


class Decoder(nnx.Module):
    """The decoder's own parameters; a kernel is among them only where the spec unties it."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs):
        size, vocab = spec.hidden_size, spec.vocab_size
        init = truncated_normal(spec, residual_std(spec))
        tied = spec.tie_word_embeddings
        self.kernel = None if tied else nnx.Param(init(rngs.params(), (size, vocab)))
        self.bias = nnx.Param(jnp.zeros(vocab)) if spec.decoder_bias else None


class ModernBert(nnx.Module):
    """ModernBERT with its prediction head: transformers' `ModernBertForMaskedLM`.

    Args:
      spec: sizes and switches.
      rngs: where initial parameters come from (`nnx.Rngs(key)`).
      dtype: the dtype of activations and products, float32 or bfloat16. Parameters are fp32
        always; norms' statistics, rotary positions, softmax and logits are computed in fp32.
      remat: recompute each layer in the backward pass instead of keeping what it computed.
      attention: whose kernels attend; `attention.choose` says which can.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
        remat: bool = False,
        attention: AttentionBackend = "xla",
    ):
        self.spec = spec
        self.dtype = jnp.dtype(dtype)
        self.remat = remat
        self.attention: AttentionBackend = attention
        self.model = Encoder(spec, rngs=rngs, dtype=dtype)
        self.head = PredictionHead(spec, rngs=rngs, dtype=dtype)
        self.decoder = Decoder(spec, rngs=rngs)

    def __call__(
        self,
        input_ids: Int[Array | np.ndarray, "B L"],
        segment_ids: Int[Array | np.ndarray, "B L"] | None = None,
        mask_mode: str | tuple[str, ...] = "bidirectional",
        output_hidden_states: bool = False,
        dropout_key: Key = None,
    ) -> Output:
        """Logits and hidden states of every token; see `encode` for the arguments."""
        states = self._hidden_states(input_ids, segment_ids, mask_mode, dropout_key)
        features, (kernel, bias) = self.predict(states[-1]), self.decoder_weights()
        kernel = kernel.T.astype(features.dtype)
        logits = jnp.matmul(features, kernel, preferred_element_type=jnp.float32)
        logits = logits if bias is None else logits + bias
        return Output(logits, states[-1], states if output_hidden_states else None)

    def encode(
        self,
        input_ids: Int[Array | np.ndarray, "B L"],
        segment_ids: Int[Array | np.ndarray, "B L"] | None = None,
        mask_mode: str | tuple[str, ...] = "bidirectional",
        dropout_key: Key = None,
    ) -> Hidden:
        """The hidden states after the final norm, in the compute dtype.

        Args:
          input_ids: token ids below V; an id outside gives NaN.
          segment_ids: the document of each token, 0 for padding; documents are contiguous, see
            only themselves and count positions from 0. None is one document a row.
          mask_mode: "bidirectional" or "causal", for all layers or one for each.
          dropout_key: the key of every dropout in this call; None switches dropout off.

        Raises:
          ValueError: for rows of no tokens, an unknown mask mode, a tuple that is not one mode a
            layer, or a dropout key where the spec asks for dropout of attention probabilities.
        """
        return self._hidden_states(input_ids, segment_ids, mask_mode, dropout_key)[-1]

    def predict(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """The prediction head's output for hidden states of `encode`: what the decoder reads."""
        return self.head(hidden)

    def decoder_weights(self) -> tuple[Float[Array, "V D"], Float[Array, " V"] | None]:
        """What turns `predict`'s output into logits, fp32: a row for each word, and the bias."""
        own, bias = self.decoder.kernel, self.decoder.bias
        tied = self.model.embeddings.tok_embeddings.embedding[...]
        return tied if own is None else own[...].T, None if bias is None else bias[...]

    def _hidden_states(self, input_ids, segment_ids, mask_mode, dropout_key) -> tuple[Hidden, ...]:
        input_ids = jnp.asarray(input_ids)
        if input_ids.shape[1] == 0:
            raise ValueError(f"input_ids: {list(input_ids.shape)} holds no token")
        if segment_ids is None:
            segment_ids = jnp.ones(input_ids.shape, jnp.int32)
        masks = self._masks(mask_mode)
        contexts = self._contexts(jnp.asarray(segment_ids), masks)
        keys = self._dropout_keys(dropout_key)
        states = [self.model.embeddings(input_ids, keys[-1])]
        for layer, (mode, reach), context, key in zip(
            self.model.layers, masks, contexts, keys[:-1], strict=True
        ):
            how = {"window": reach, "causal": mode == "causal", "backend": self.attention}
            run = partial(_recomputed, layer) if self.remat else layer
            states.append(run(states[-1], context, partial(attention, **how), key))
        states[-1] = self.model.final_norm(states[-1])
        return tuple(states)

    def _masks(self, mask_mode: str | tuple[str, ...]) -> list[Mask]:
        """One mask a layer."""
        layers = self.spec.num_hidden_layers
        modes = (mask_mode,) * layers if isinstance(mask_mode, str) else tuple(mask_mode)
        if len(modes) != layers:
            raise ValueError(
                f"mask_mode: {len(modes)} modes for {layers} layers; give one, or one for each"
            )
        kinds = zip(modes, self.spec.layer_types, strict=True)
        return [(mode, self.spec.reach(kind, mode)) for mode, kind in kinds]

    def _contexts(self, segment_ids: Int[Array, "B L"], masks: list[Mask]) -> list[Context]:
        """One context a layer; layers alike in mode and reach, or in theta, share arrays.

        In an order that is the same in every process, as their programs have to be.
        """
        index = positions(segment_ids)
        layers = list(self.model.layers)
        ranges = {mask: key_ranges(segment_ids, *mask) for mask in dict.fromkeys(masks)}
        thetas = dict.fromkeys(layer.rope_theta for layer in layers)
        rotations = {t: rotation(index, t, self.spec.head_size) for t in thetas}
        return [
            Context(*ranges[mask], *rotations[layer.rope_theta])
            for mask, layer in zip(masks, layers, strict=True)
        ]

    def _dropout_keys(self, key: Key) -> list[Key]:
        """A key for each layer, and last that of the embeddings."""
        spec = self.spec
        if key is None:
            return [None] * (spec.num_hidden_layers + 1)
        if spec.attention_dropout > 0:
            raise ValueError(
                f"attention_dropout: {spec.attention_dropout} drops attention probabilities, "
                "which the block-wise kernels never hold; allowed: 0 (attention_out_dropout "
                "drops the attention's output)"
            )
        return [jax.random.fold_in(key, i) for i in range(spec.num_hidden_layers + 1)]


def _recomputed(
    layer: Layer, x: Hidden, context: Context, attend: Attend, dropout_key: Key
) -> Hidden:
    """The layer's output, with only its inputs kept for the backward pass."""
    graphdef, params = nnx.split(layer)

    @jax.checkpoint
    def apply(params, x, context, key):
        return nnx.merge(graphdef, params)(x, context, attend, key)

    return apply(params, x, context, dropout_key)


def split(model: Model) -> tuple[nnx.GraphDef[Model], Params]:
    """The model's static structure and its parameters by path, `model.layers.3.attn.Wo.kernel`."""
    graphdef, state = nnx.split(model)
    flat = nnx.to_flat_state(state)
    return graphdef, {".".join(map(str, path)): leaf.get_value() for path, leaf in flat}


def merge(graphdef: nnx.GraphDef[Model], params: Params) -> Model:
    """The model that `split` took apart; works under `jit` and `grad`."""
    leaves = [
        (tuple(int(p) if p.isdigit() else p for p in path.split(".")), nnx.Param(value))
        for path, value in params.items()
    ]
    return nnx.merge(graphdef, nnx.from_flat_state(leaves))


def structure(
    spec: ModelSpec,
    *,
    dtype: DTypeLike = jnp.float32,
    remat: bool = False,
    attention: AttentionBackend = "xla",
) -> nnx.GraphDef:
    """The graphdef that `merge` puts `ModernBert`'s parameters into, without allocating any."""

    def build():
        return ModernBert(spec, rngs=nnx.Rngs(0), dtype=dtype, remat=remat, attention=attention)

    return nnx.split(nnx.eval_shape(build))[0]


def init_params(spec: ModelSpec, key: PRNGKeyArray) -> Params:
    """Fresh fp32 parameters as transformers' `ModernBertPreTrainedModel._init_weights` draws them.

    Matrices are normal, truncated at `initializer_cutoff_factor` standard deviations of
    `initializer_range`, those that write to the residual stream (and the head's and decoder's) of
    `initializer_range / sqrt(2 N)`; biases 0, norms 1. Traceable: jit it with `out_shardings` to
    draw each shard where it lives.
    """
    return split(ModernBert(spec, rngs=nnx.Rngs(key)))[1]
