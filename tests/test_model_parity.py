"""The model against transformers' in PyTorch, tensor by tensor.

"Relative" is max |ours - theirs| / max |theirs| over one tensor; the bound in fp32 is 3e-5.
Every comparison is repeated with a window one token too wide, which it has to notice.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from cpt_jax.model.modernbert import merge, structure
from cpt_jax.model.spec import ModelSpec
from tests.model_oracle import TINY, quick_jit, relative, segments, visible

pytestmark = pytest.mark.torch

BOUND = 3e-5
SPECS = {
    # As ModernBERT is, in small: a global layer after every two local ones.
    "small": dataclasses.replace(TINY, num_hidden_layers=5, layer_types=()),
    # Everything that can differ from the released models: thetas, biases, heads, activations.
    "biased": dataclasses.replace(
        TINY, hidden_size=48, num_attention_heads=3, num_hidden_layers=4, global_rope_theta=80000.0,
        layer_types=("sliding_attention", "full_attention") * 2, norm_eps=1e-3, norm_bias=True,
        attention_bias=True, mlp_bias=True, classifier_bias=True, classifier_activation="silu",
        hidden_activation="gelu_pytorch_tanh",
    ),
    # ModernBERT-base itself, with fewer words.
    "base": ModelSpec(vocab_size=512, pad_token_id=0, cls_token_id=1, sep_token_id=2,
                      bos_token_id=1, eos_token_id=2),
}  # fmt: skip
LENGTHS = {"small": 70, "biased": 230, "base": 260}
MODES = {
    "bidirectional": lambda spec: "bidirectional",
    "causal": lambda spec: "causal",
    "mixed": lambda spec: tuple(
        "causal" if kind == "full_attention" else "bidirectional" for kind in spec.layer_types
    ),
}


@functools.cache
def reference(name: str) -> transformers.ModernBertForMaskedLM:
    """transformers' model with weights large enough for an error to show.

    As initialised they are so small that a layer adds next to nothing to its input.
    """
    torch.manual_seed(0)
    config = transformers.ModernBertConfig.from_dict(SPECS[name].to_hf())
    model = transformers.ModernBertForMaskedLM(config).eval()
    with torch.no_grad():
        for path, x in model.named_parameters():
            if x.ndim == 2:
                x.mul_(4)
            elif path.endswith("bias"):
                x.copy_(0.5 * torch.randn_like(x))
            else:
                x.copy_(1 + 0.3 * torch.randn_like(x))
    return model


def our_params(model: transformers.ModernBertForMaskedLM) -> dict[str, jax.Array]:
    """Its parameters in our names and orientation, by a mapping of this test's own."""
    params = {}
    for path, x in model.named_parameters():
        module, _, leaf = path.rpartition(".")
        if leaf == "weight":
            is_table = module.endswith("tok_embeddings")
            leaf = "embedding" if is_table else "kernel" if x.ndim == 2 else "scale"
            x = x if is_table or x.ndim == 1 else x.T
        params[f"{module}.{leaf}"] = jnp.asarray(x.detach().numpy())
    return params


@functools.cache
def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and segments: a row that is one document, and one of three with padding behind."""
    length = LENGTHS[name]
    ids = np.random.default_rng(0).integers(3, SPECS[name].vocab_size, (2, length))
    return ids, segments([length], [length // 2, 3, length // 4], length=length)


@functools.cache
def theirs(name: str, mode: str, dtype: torch.dtype = torch.float32) -> dict[str, np.ndarray]:
    """Hidden states and logits of transformers, masks and positions given explicitly."""
    spec, (ids, packed) = SPECS[name], batch(name)
    is_causal = {"bidirectional": (), "mixed": ("full_attention",)}
    layers = is_causal.get(mode, ("full_attention", "sliding_attention"))
    masks = {
        kind: visible(packed, "causal" if kind in layers else "bidirectional", window)
        for kind, window in (
            ("full_attention", None),
            ("sliding_attention", spec.local_attention // 2),
        )
    }
    # A query that sees nothing is NaN in PyTorch, and spreads: let padding see itself.
    diagonal = np.eye(ids.shape[1], dtype=bool)
    masks = {kind: torch.from_numpy(mask | diagonal)[:, None] for kind, mask in masks.items()}
    starts = np.array([[0] + list(np.flatnonzero(np.diff(row)) + 1) for row in packed], object)
    positions = np.stack(
        [np.concatenate([np.arange(n) for n in np.diff([*s, ids.shape[1]])]) for s in starts]
    )
    with torch.no_grad():
        model = copy.deepcopy(reference(name))
        torch.nn.Module.to(model, dtype)
        out = model(
            torch.from_numpy(ids),
            attention_mask=masks,
            position_ids=torch.from_numpy(positions),
            output_hidden_states=True,
        )
    return named(out.hidden_states, out.logits, lambda x: x.float().numpy())


def ours(
    name: str,
    mode: str,
    spec: ModelSpec | None = None,
    dtype=jnp.float32,
    jit: Callable = quick_jit,
) -> dict[str, np.ndarray]:
    """Hidden states and logits of our model."""
    spec = spec or SPECS[name]
    graphdef, (ids, packed) = structure(spec, dtype=dtype), batch(name)

    @jit
    def run(params):
        model = merge(graphdef, params)
        return model(ids, packed, MODES[mode](spec), output_hidden_states=True)

    out = run(our_params(reference(name)))
    return named(out.hidden_states, out.logits, lambda x: np.asarray(x, np.float32))


def named(hidden_states, logits, convert) -> dict[str, np.ndarray]:
    """Every tensor by name."""
    tensors = {f"hidden_states[{i}]": x for i, x in enumerate(hidden_states)} | {"logits": logits}
    return {name: convert(x) for name, x in tensors.items()}


def errors(name: str, one: dict[str, np.ndarray], other: dict[str, np.ndarray]):
    """The relative error of each tensor over the tokens that are not padding."""
    assert one.keys() == other.keys()
    real = batch(name)[1] > 0
    return {key: relative(one[key][real], other[key][real]) for key in other}


CASES = [("small", "bidirectional"), ("small", "causal"), ("small", "mixed"),
         ("biased", "bidirectional"), ("biased", "causal")]  # fmt: skip
CASES += [
    pytest.param("base", mode, marks=pytest.mark.slow) for mode in ("bidirectional", "causal")
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_hidden_state_and_the_logits_in_fp32(name, mode):
    found = errors(name, ours(name, mode, jit=jax.jit), theirs(name, mode))
    print(name, mode, "largest relative error", max(found.values()))
    assert len(found) == SPECS[name].num_hidden_layers + 2
    assert max(found.values()) < BOUND, found


@pytest.mark.parametrize(("name", "mode"), CASES[:5])
def test_a_window_one_too_wide_is_noticed(name, mode):
    spec = SPECS[name]
    wider = dataclasses.replace(spec, local_attention=spec.local_attention + 2)
    found = errors(name, ours(name, mode, wider), theirs(name, mode))
    assert max(found.values()) > 100 * BOUND


@pytest.mark.parametrize(("name", "mode"), [("small", "causal"), ("biased", "bidirectional")])
def test_bf16_within_twice_the_error_of_transformers_in_bf16(name, mode):
    exact = theirs(name, mode)
    their_error = errors(name, theirs(name, mode, torch.bfloat16), exact)
    our_error = errors(name, ours(name, mode, dtype=jnp.bfloat16), exact)
    print(name, mode, {k: (our_error[k], their_error[k]) for k in exact})
    assert all(our_error[key] < 2 * their_error[key] for key in exact), (our_error, their_error)


def test_explicit_masks_are_what_transformers_does_by_default():
    """So that the comparisons above are with transformers, not with this file's masks."""
    model, (ids, _) = reference("small"), batch("small")
    with torch.no_grad():
        default = model(torch.from_numpy(ids[:1])).logits
    assert relative(theirs("small", "bidirectional")["logits"][:1], default) < 1e-6


def test_a_document_in_a_packed_row_equals_transformers_on_it_alone():
    """Against PyTorch: no mask and no positions given, only the document's tokens."""
    ids, packed = batch("small")
    logits = ours("small", "bidirectional")["logits"]
    for segment in (1, 2, 3):
        tokens = np.flatnonzero(packed[1] == segment)
        with torch.no_grad():
            alone = reference("small")(torch.from_numpy(ids[1:, tokens])).logits
        assert relative(logits[1:, tokens], alone) < BOUND


def as_decoder(
    model: transformers.ModernBertForMaskedLM,
) -> transformers.ModernBertDecoderForCausalLM:
    """The same weights in transformers' decoder, which has three projections where ours has one."""
    fields = model.config.to_dict()
    del fields["model_type"], fields["architectures"]
    decoder = transformers.ModernBertDecoderForCausalLM(
        transformers.ModernBertDecoderConfig(**fields)
    )
    state = {}
    for name, tensor in model.state_dict().items():
        name = name.replace("head.", "lm_head.")
        if "Wqkv" in name:
            for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                state[name.replace("Wqkv", f"{part}_proj")] = rows
        else:
            state[name] = tensor
    decoder.load_state_dict(state)
    return decoder.eval()


@pytest.mark.parametrize(("fewer", "equal"), [(1, True), (0, False)])
def test_causal_window_of_transformers_decoder(fewer, equal):
    """Its sliding layers see one key fewer than the detour's; `causal_window` makes up for it."""
    ids = batch("small")[0][:1]
    with torch.no_grad():
        expected = as_decoder(reference("small"))(torch.from_numpy(ids)).logits
    spec = SPECS["small"]
    narrower = dataclasses.replace(spec, causal_window=spec.window - fewer)
    error = relative(ours("small", "causal", narrower)["logits"][:1], expected)
    assert error < BOUND if equal else error > 100 * BOUND
