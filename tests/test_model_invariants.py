"""What must hold of the model whatever its weights: no leaks, same answers however it is run."""

import dataclasses
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from flax import nnx

from cpt_jax.model.modernbert import ModernBert, init_params, merge, split, structure
from cpt_jax.model.spec import SIZES
from tests.model_oracle import TINY, noisy_params, quick_jit, relative, segments

PARAMS = noisy_params(TINY.param_shapes())
GRAPHDEF = structure(TINY)
IDS = np.random.default_rng(0).integers(3, TINY.vocab_size, (3, 40))


def encode(params, *args):
    return merge(GRAPHDEF, params).encode(*args)


def run(spec=TINY, params=PARAMS, static=(), **options):
    """`model(ids, ...)`, jitted, with hidden states."""
    graphdef = structure(spec, **options)

    @quick_jit
    def apply(params, input_ids, segment_ids, dropout_key):
        model = merge(graphdef, params)
        return model(input_ids, segment_ids, *static, dropout_key=dropout_key, **STATES)

    def call(input_ids, segment_ids=None, dropout_key=None):
        return apply(params, input_ids, segment_ids, dropout_key)

    return call


STATES = {"output_hidden_states": True}


@pytest.fixture(scope="module")
def bidirectional():
    return run()


@pytest.fixture(scope="module")
def causal():
    return run(static=("causal",))


def changed(one, other) -> set[int]:
    """The tokens of row 0 whose values differ at all."""
    return set(np.flatnonzero((np.asarray(one) != np.asarray(other))[0].any(-1)).tolist())


@pytest.mark.parametrize(("mask_mode", "reach"), [("bidirectional", (-4, 4)), ("causal", (0, 4))])
def test_one_local_layer_reaches_exactly_its_window(mask_mode, reach):
    """Case 1, on the model: `local_attention` 8 is four tokens to either side."""
    spec = dataclasses.replace(TINY, num_hidden_layers=1, layer_types=("sliding_attention",))
    local = run(spec, {p: PARAMS[p] for p in spec.param_shapes()}, (mask_mode,))
    moved = IDS.copy()
    moved[0, 20] = (IDS[0, 20] - 3 + 1) % (TINY.vocab_size - 3) + 3
    low, high = reach
    expected = set(range(20 + low, 20 + high + 1))
    assert changed(local(IDS).logits, local(moved).logits) == expected


def test_no_logit_sees_the_future(causal, bidirectional):
    """With global and local layers."""
    moved = IDS.copy()
    moved[:, -1] = 3
    assert changed(causal(IDS).logits, causal(moved).logits) == {39}
    assert len(changed(bidirectional(IDS).logits, bidirectional(moved).logits)) == 40


@pytest.mark.parametrize("mode", ["bidirectional", "causal"])
def test_packed_documents_equal_documents_alone(mode, request):
    """Values. The row ends in padding; documents shorter and longer than the window."""
    model = request.getfixturevalue(mode)
    lengths = [3, 20, 1, 10]
    packed = model(IDS[:1], segments(lengths, length=40)).logits
    start = 0
    for n in lengths:
        alone = np.zeros((1, 40), np.int32)
        alone[0, :n] = IDS[0, start : start + n]
        expected = model(alone, segments([n], length=40)).logits[0, :n]
        assert relative(packed[0, start : start + n], expected) < 1e-5
        start += n


def test_no_gradient_crosses_a_document_border():
    """B's loss moves no embedding that only A uses, through global or local layers."""
    ids = np.where(np.arange(40) < 20, 5, 6)[None]
    packed = segments([20, 20], length=40)

    def loss(params):
        return encode(params, ids, packed)[0, 20:].var()

    gradient = quick_jit(jax.grad(loss))(PARAMS)["model.embeddings.tok_embeddings.embedding"]
    assert not gradient[5].any()
    assert np.abs(gradient[6]).max() > 0


def test_padding_is_silent(bidirectional):
    """An all-padding row is finite, moves no other row and gives no gradient."""
    packed = segments([], [40], [25], length=40)
    out = bidirectional(IDS, packed)
    assert np.isfinite(out.logits).all()
    other = np.where(packed == 0, 4, IDS)
    moved = bidirectional(other, packed).logits
    np.testing.assert_array_equal(np.asarray(out.logits)[packed > 0], moved[packed > 0])

    ids = np.where(packed == 0, 63, IDS % 60)

    def loss(params):
        return (encode(params, ids, packed) ** 2 * (packed > 0)[..., None]).sum()

    embedding = quick_jit(jax.grad(loss))(PARAMS)["model.embeddings.tok_embeddings.embedding"]
    assert np.isfinite(embedding).all()
    assert not embedding[63].any()


def test_document_at_offset_3000_equals_offset_0():
    """Positions restart, so where a document lies in its row does not matter.

    Rotary attention sees only differences of positions; what going on counting would cost is
    rounding of large angles, 2.7e-5 with these weights, whose attention is sharp (here 1e-6).
    """
    sharp = {path: 3 * x if "Wqkv" in path else x for path, x in PARAMS.items()}
    document = np.random.default_rng(1).integers(3, TINY.vocab_size, (1, 100))
    filler = np.full((1, 3000), 7)
    alone = quick_jit(encode)
    far = alone(sharp, np.hstack([filler, document]), segments([3000, 100], length=3100))
    near = alone(sharp, document, segments([100], length=100))
    assert relative(far[:, 3000:], near) < 1e-5


def test_mask_mode_per_layer(bidirectional, causal):
    layers = TINY.num_hidden_layers
    # The first layer causal: its output is the causal model's, the rest is neither's.
    mixed = run(static=(("causal", *("bidirectional",) * (layers - 1)),))(IDS)
    first = causal(IDS).hidden_states[1]
    np.testing.assert_allclose(mixed.hidden_states[1], first, atol=1e-6)
    for other in (causal, bidirectional):
        assert relative(mixed.logits, other(IDS).logits) > 1e-2
    with pytest.raises(ValueError, match="mask_mode: 2 modes for 3 layers"):
        ModernBert(TINY, rngs=nnx.Rngs(0)).encode(IDS, mask_mode=("causal", "causal"))


def gradients(**options):
    """The program of a loss's gradient, and what it gives; one global and one local layer."""
    kinds = ("full_attention", "sliding_attention")
    spec = dataclasses.replace(TINY, num_hidden_layers=2, layer_types=kinds)
    graphdef = structure(spec, **options)

    def loss(params):
        return merge(graphdef, params)(IDS).logits.var()

    params = {path: PARAMS[path] for path in spec.param_shapes()}
    traced = quick_jit(jax.grad(loss)).trace(params)
    return str(traced.jaxpr), traced.lower().compile()(params)


def test_remat_changes_memory_not_numbers():
    plain_program, plain = gradients()
    program, recomputed = gradients(remat=True)
    assert program.count("remat") > plain_program.count("remat")
    for path, gradient in plain.items():
        assert relative(recomputed[path], gradient) < 1e-5, path


def test_params_go_through_split_and_merge():
    graphdef, params = split(ModernBert(TINY, rngs=nnx.Rngs(0)))
    assert {path: array.shape for path, array in params.items()} == TINY.param_shapes()
    assert graphdef == GRAPHDEF
    again = split(merge(graphdef, params))[1]
    assert all(again[path] is params[path] for path in params)
    untied = dataclasses.replace(TINY, tie_word_embeddings=False, decoder_bias=False)
    assert set(split(ModernBert(untied, rngs=nnx.Rngs(0)))[1]) == set(untied.param_shapes())


def test_structure_allocates_nothing():
    gc.collect()
    before = len(jax.live_arrays())
    structure(SIZES["large"])
    assert len(jax.live_arrays()) == before


def test_called_without_jit_and_with_numpy_ids():
    model = merge(GRAPHDEF, PARAMS)
    out = model(IDS[:1, :10], segments([6, 3], length=10))
    assert out.hidden_states is None
    head = model.predict(out.last_hidden_state)
    table = PARAMS["model.embeddings.tok_embeddings.embedding"]
    by_hand = head @ table.T + PARAMS["decoder.bias"]
    assert relative(out.logits, by_hand) < 1e-6


def test_bf16_keeps_parameters_and_logits_fp32():
    out = run(dtype=jnp.bfloat16)(IDS)
    assert out.logits.dtype == jnp.float32
    assert {x.dtype for x in out.hidden_states} == {jnp.dtype(jnp.bfloat16)}


# Dropout. One block is silenced and what the other adds to the residual stream is read.


def silenced(spec, path):
    """Parameters with the named kernel of every layer zero."""
    params = noisy_params(spec.param_shapes())
    return {p: jnp.zeros_like(x) if p.endswith(path) else x for p, x in params.items()}


def added(out, layer):
    """What a layer added to the residual stream, [B, L, D]."""
    return np.asarray(out.hidden_states[layer + 1] - out.hidden_states[layer])


def assert_independent(masks):
    """Each drops a quarter, and each two of them together a sixteenth."""
    for i, mask in enumerate(masks):
        assert abs(mask.mean() - 0.25) < 0.03
        for other in masks[:i]:
            assert abs((mask & other).mean() - 0.25**2) < 0.03


def test_dropout_of_embeddings_and_of_the_attention_block():
    spec = dataclasses.replace(TINY, embedding_dropout=0.25, attention_out_dropout=0.25)
    model = run(spec, silenced(spec, "mlp.Wo.kernel"))
    out, again, other = (model(IDS, dropout_key=jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(out.logits, again.logits)
    masks = [x == 0 for o in (out, other) for x in (o.hidden_states[0], added(o, 0), added(o, 1))]
    assert_independent([np.asarray(mask) for mask in masks])
    clean = np.asarray(model(IDS).hidden_states[0])
    kept = np.where(masks[0], 0, clean / 0.75)
    np.testing.assert_allclose(out.hidden_states[0], kept, rtol=1e-6)


def test_mlp_dropout_acts_between_the_two_products():
    size = TINY.hidden_size
    spec = dataclasses.replace(TINY, intermediate_size=size, mlp_dropout=0.25)
    params = silenced(spec, "attn.Wo.kernel")
    params |= {p: jnp.eye(size) for p in params if p.endswith("mlp.Wo.kernel")}
    out = run(spec, params)(IDS, dropout_key=jax.random.key(0))
    assert_independent([added(out, layer) == 0 for layer in range(2)])


def test_dropout_of_attention_probabilities_is_refused():
    spec = dataclasses.replace(TINY, attention_dropout=0.1)
    model, params = run(spec), PARAMS
    shapes = jax.eval_shape(lambda: merge(structure(spec), params)(IDS))
    assert shapes.logits.shape == (3, 40, TINY.vocab_size)
    with pytest.raises(ValueError, match=r"attention_dropout: 0\.1"):
        model(IDS, dropout_key=jax.random.key(0))


@pytest.mark.torch
def test_fresh_parameters_are_drawn_as_transformers_draws_them():
    spec = dataclasses.replace(TINY, hidden_size=128, intermediate_size=96, num_hidden_layers=4,
                               layer_types=(), vocab_size=500, norm_bias=True,
                               initializer_cutoff_factor=1.5)  # fmt: skip
    reference = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**spec.to_hf()))
    ours, again, other = (init_params(spec, jax.random.key(seed)) for seed in (0, 0, 1))
    leaves = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}
    theirs = {name: x.detach().numpy() for name, x in reference.named_parameters()}
    assert len(ours) == len(theirs)
    for path, array in ours.items():
        module, leaf = path.rsplit(".", 1)
        expected = theirs[f"{module}.{leaves[leaf]}"]
        assert array.dtype == jnp.float32
        if array.ndim == 1:
            np.testing.assert_array_equal(array, expected, err_msg=path)
        else:
            assert abs(np.std(array) / expected.std() - 1) < 0.05, path
            assert abs(np.abs(array).max() / np.abs(expected).max() - 1) < 0.02, path
    path = "model.layers.3.mlp.Wi.kernel"
    np.testing.assert_array_equal(ours[path], again[path])
    for unlike in (other[path], ours[path.replace("3", "2")]):
        assert abs(np.corrcoef(np.ravel(ours[path]), np.ravel(unlike))[0, 1]) < 0.05
