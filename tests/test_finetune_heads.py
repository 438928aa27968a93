"""Text, relation and token heads against transformers' models, whole, and torch's own losses.

Losses and the gradients of every parameter, encoder included. "Relative" is max |ours - theirs| /
max |theirs| over a tensor.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from cpt_jax.finetune.examples import Kind, Settings
from cpt_jax.finetune.heads import TokenHead, make_head, positive_weights
from cpt_jax.model.modernbert import merge, split, structure
from tests.head_oracle import config_of, enlarge, in_our_names
from tests.model_oracle import TINY, quick_jit, relative

pytestmark = pytest.mark.torch

# fp32 through three layers and back, summed in another order: at most 1.5e-6 measured.
BOUND = 1e-5
LABELS = 5
LENGTHS = (12, 7, 9, 4)  # the last row only fills the batch
WEIGHT = np.array([1, 1, 1, 0], np.float32)
LENGTH = 12
POSITIVE = (0.5, 3.0, 1.0, 20.0, 7.5)


@functools.cache
def batch() -> dict[str, np.ndarray]:
    """Every kind's targets at once; in the row of weight 0 they are nonsense."""
    rng = np.random.default_rng(0)
    real = np.arange(LENGTH) < np.array(LENGTHS)[:, None]
    ids = np.where(real, rng.integers(3, TINY.vocab_size, real.shape), 0)
    tags = np.where(real & (rng.random(real.shape) < 0.6), rng.integers(0, LABELS, real.shape), -1)
    return {
        "input_ids": ids,
        "segment_ids": real.astype(np.int32),
        "weight": WEIGHT,
        "label": np.array([4, 0, 2, -1]),
        "labels": rng.integers(0, 2, (4, LABELS)).astype(np.float32),
        "tags": tags,
        "markers": np.array([[1, 6], [5, 2], [3, 8], [-1, 99]]),
    }


def batch_of(kind: str) -> dict[str, jax.Array]:
    arrays = dict(batch())
    if kind == "tagging":
        arrays["labels"] = arrays["tags"]
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def head_of(kind: Kind, spec=TINY, labels=LABELS, rngs=None, dtype=jnp.float32, **settings):
    positive = POSITIVE if settings.get("positive_weights") else None
    rngs = nnx.Rngs(0) if rngs is None else rngs
    made = Settings(**settings)
    return make_head(kind, spec, labels, made, rngs=rngs, dtype=dtype, positive=positive)


def ours(kind: Kind, params: dict[str, np.ndarray], **settings):
    """The mean loss, the gradients of all parameters and the predictions."""
    encoder, head = structure(TINY), head_of(kind, **settings)
    head_graphdef, head_paths = nnx.split(head)[0], set(split(head)[1])
    assert head_paths <= params.keys()
    unused = {"decoder.bias": jnp.zeros(TINY.vocab_size)}

    def scores(params, batch):
        of_encoder = {p: a for p, a in params.items() if not p.startswith("classifier")}
        model = merge(encoder, of_encoder | unused)
        head = merge(head_graphdef, {path: params[path] for path in head_paths})
        hidden = model.encode(batch["input_ids"], batch["segment_ids"])
        return head, head(hidden, batch, None)

    def loss(params, batch):
        head, found = scores(params, batch)
        total, weight = head.loss(found, batch)
        return total / weight, head.predict(found, batch)

    arrays = {path: jnp.asarray(array) for path, array in params.items()}
    run = quick_jit(jax.value_and_grad(loss, has_aux=True))
    (value, predicted), gradients = run(arrays, batch_of(kind))
    return float(value), gradients, predicted


def gradients_of(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, np.ndarray]:
    loss.backward()
    found = {p: x.grad for p, x in model.named_parameters() if x.grad is not None}
    return in_our_names(found)


def compare(kind: Kind, model, loss, probabilities, extra=None, **settings):
    """Our loss, gradients and predictions of `kind` with a model of torch's."""
    params = in_our_names(dict(model.named_parameters()))
    value, gradients, predicted = ours(kind, params, **settings)
    assert value == pytest.approx(loss.item(), rel=1e-5)
    counted = WEIGHT > 0
    theirs = probabilities.detach().numpy()[counted]
    found = np.asarray(predicted["probabilities"])[counted]
    real = batch()["segment_ids"][counted] > 0 if kind == "tagging" else slice(None)
    assert relative(found[real], theirs[real]) < BOUND
    expected = gradients_of(model, loss)
    assert expected.keys() == gradients.keys()
    errors = {path: relative(gradients[path], expected[path]) for path in expected}
    assert max(errors.values()) < BOUND, errors


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(batch()["input_ids"]), torch.tensor(batch()["segment_ids"])


@functools.cache
def torch_model(cls: type, **more) -> Any:
    config = transformers.ModernBertConfig.from_dict(config_of(TINY, LABELS, **more))
    torch.manual_seed(1)
    model = cls(config).eval()
    enlarge(model)
    return model


def fresh(cls: type, **more) -> Any:
    model = torch_model(cls, **more)
    model.zero_grad()
    return model


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_one_label_is_transformers_sequence_classification(pooling):
    """With the loss that the library computes itself, of the rows that count."""
    cls = transformers.ModernBertForSequenceClassification
    model = fresh(cls, classifier_pooling=pooling, problem_type="single_label_classification")
    ids, real = inputs()
    out = model(ids[:3], real[:3], labels=torch.tensor(batch()["label"][:3]))
    everything = model(ids, real).logits.softmax(-1)
    compare("classification", model, out.loss, everything, pooling=pooling)


@pytest.mark.parametrize("weighted", [False, True])
def test_any_labels_are_torchs_bce_with_positive_weights(weighted):
    model = fresh(transformers.ModernBertForSequenceClassification, classifier_pooling="cls")
    logits = model(*inputs()).logits
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(POSITIVE) if weighted else None)
    labels = torch.tensor(batch()["labels"])
    value = loss(logits[:3], labels[:3])
    compare("multilabel", model, value, logits.sigmoid(), positive_weights=weighted)


def test_tags_are_transformers_token_classification():
    model = fresh(transformers.ModernBertForTokenClassification)
    ids, real = inputs()
    tags = torch.tensor(batch()["tags"])
    labels = torch.where(tags < 0, -100, tags)[:3]
    loss = model(ids[:3], real[:3], labels=labels).loss
    compare("tagging", model, loss, model(ids, real).logits.softmax(-1))


def test_relations_are_the_two_markers_states_side_by_side():
    """No model of transformers does this: its encoder and prediction head, torch's the rest."""
    sequence = fresh(transformers.ModernBertForSequenceClassification)
    torch.manual_seed(2)
    classifier = torch.nn.Linear(2 * TINY.hidden_size, LABELS)
    parts = {"model": sequence.model, "head": sequence.head, "classifier": classifier}
    ids, real = inputs()
    hidden = sequence.model(ids, real).last_hidden_state
    markers = batch()["markers"].clip(0, LENGTH - 1)
    pairs = [
        torch.cat([sequence.head(row[first]), sequence.head(row[second])])
        for row, (first, second) in zip(hidden, markers, strict=True)
    ]
    logits = classifier(torch.stack(pairs))
    loss = torch.nn.functional.cross_entropy(logits[:3], torch.tensor(batch()["label"][:3]))
    compare("relation", torch.nn.ModuleDict(parts), loss, logits.softmax(-1))


def test_classifiers_begin_as_transformers_draws_them():
    """Both draws have the standard deviation and the cutoff; biases are 0."""
    spec = dataclasses.replace(TINY, hidden_size=64)
    config = transformers.ModernBertConfig.from_dict(config_of(spec, 400))
    torch.manual_seed(0)
    theirs = transformers.ModernBertForTokenClassification(config).classifier
    ours = split(head_of("tagging", spec, 400))[1]
    assert not ours["classifier.bias"].any()
    assert not theirs.bias.any()
    drawn, kernel = theirs.weight.detach().numpy(), np.asarray(ours["classifier.kernel"])
    # Of 25,600 draws: the standard deviation of a standard deviation is 0.4 % of it.
    assert kernel.std() == pytest.approx(drawn.std(), rel=0.02)
    assert abs(kernel.mean()) < 4 * kernel.std() / 160
    bound = 64**-0.5 * spec.initializer_cutoff_factor
    assert 0.99 * bound < abs(kernel).max() <= bound
    assert 0.99 * bound < abs(drawn).max() <= bound


KINDS: dict[Kind, dict] = {
    "classification": {"pooling": "mean"},
    "multilabel": {"pooling": "mean", "positive_weights": True},
    "tagging": {},
    "relation": {},
}


def applied(kind: Kind, **settings):
    """`(params, hidden, batch, key) -> mean loss` of a head alone, and its parameters."""
    graphdef, params = split(head_of(kind, **KINDS[kind], **settings))

    def loss(params, hidden, batch, key=None):
        head = merge(graphdef, params)
        total, weight = head.loss(head(hidden, batch, key), batch)
        return total / weight

    return loss, params


def hidden_states(rows: int, length: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), (rows, length, TINY.hidden_size))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_rows_of_no_weight_change_nothing(kind):
    """Loss and gradients, with other states in padding, and without the row that fills."""
    loss, params = applied(kind)
    hidden, arrays = hidden_states(4, LENGTH), batch_of(kind)
    gradient = quick_jit(jax.value_and_grad(loss, argnums=(0, 1)))
    value, (of_params, of_hidden) = gradient(params, hidden, arrays)
    nothing = (arrays["segment_ids"] == 0) | (arrays["weight"] == 0)[:, None]
    assert not np.asarray(of_hidden)[np.asarray(nothing)].any()
    other = jnp.where(nothing[..., None], 100.0, hidden)
    value_2, (of_params_2, _) = gradient(params, other, arrays)
    kept = {name: array[:3] for name, array in arrays.items()}
    value_3, (of_params_3, _) = gradient(params, hidden[:3], kept)
    for others in ((value_2, of_params_2), (value_3, of_params_3)):
        jax.tree.map(
            # Sums over other numbers of rows may round otherwise.
            functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
            (value, of_params),
            others,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_weight_gives_no_gradient(kind):
    _, params = applied(kind)
    graphdef = nnx.split(head_of(kind, **KINDS[kind]))[0]
    arrays = batch_of(kind) | {"weight": jnp.zeros(4)}

    def total(params):
        head = merge(graphdef, params)
        return head.loss(head(hidden_states(4, LENGTH), arrays, None), arrays)

    (value, weight), gradient = quick_jit(jax.value_and_grad(total, has_aux=True))(params)
    assert (value, weight) == (0, 0)
    assert not any(np.asarray(g).any() for g in gradient.values())


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_at_once_are_seeds_one_by_one(kind):
    """Parameters drawn, dropped out and differentiated under `vmap`, over all arguments."""
    loss, _ = applied(kind, dropout=0.3)
    arrays = jax.tree.map(lambda a: jnp.stack([a, a[::-1]]), batch_of(kind))
    keys, hidden = (
        jax.random.split(jax.random.key(1)),
        hidden_states(8, LENGTH).reshape(2, 4, 12, -1),
    )

    def draw(key):
        return split(head_of(kind, rngs=nnx.Rngs(key), **KINDS[kind], dropout=0.3))[1]

    def step(key, hidden, batch):
        return jax.value_and_grad(loss)(draw(key), hidden, batch, key)

    together = quick_jit(jax.vmap(step))(keys, hidden, arrays)
    for seed in range(2):
        alone = quick_jit(step)(
            keys[seed], hidden[seed], {name: array[seed] for name, array in arrays.items()}
        )
        jax.tree.map(
            lambda a, b, seed=seed: np.testing.assert_allclose(a[seed], b, rtol=1e-5, atol=1e-6),
            together,
            alone,
        )


def test_dropout_drops_before_the_classifier_and_only_with_a_key():
    """With all features 1 a logit counts the ones kept, each worth 1 / (1 - rate)."""
    head = head_of("tagging", dropout=0.25, labels=1)
    assert isinstance(head, TokenHead)
    head.classifier.kernel[...] = jnp.ones((TINY.hidden_size, 1))
    features = jnp.ones((1000, TINY.hidden_size))
    assert (head._classify(features, None) == TINY.hidden_size).all()
    kept = np.asarray(head._classify(features, jax.random.key(0))) * 0.75
    np.testing.assert_allclose(kept, kept.round(), atol=1e-4)
    # 32,000 draws: the standard deviation of their mean is 0.24 %.
    assert kept.mean() / TINY.hidden_size == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_fp32_under_a_bfloat16_encoder(kind):
    head = head_of(kind, dtype=jnp.bfloat16, **KINDS[kind])
    arrays = batch_of(kind)
    scores = head(hidden_states(4, LENGTH).astype(jnp.bfloat16), arrays, None)
    assert scores.dtype == jnp.float32
    assert all(a.dtype == jnp.float32 for a in (*head.loss(scores, arrays),))
    assert all(leaf.dtype == jnp.float32 for leaf in split(head)[1].values())


def test_positive_weights_from_counts():
    """Of four texts: one has the first label, three the second, none the third, all the fourth."""
    labels = np.array([[1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]], np.float32)
    assert positive_weights(labels) == (3.0, pytest.approx(1 / 3), 1.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "asked", "given"),
    [
        ("multilabel", True, None),
        ("multilabel", False, (1.0,) * 5),
        ("multilabel", True, (1.0,) * 4),
        ("classification", False, (1.0,) * 5),
    ],
)
def test_positive_weights_that_do_not_fit_are_refused(kind, asked, given):
    settings = Settings(positive_weights=asked)
    with pytest.raises(ValueError, match="positive"):
        make_head(kind, TINY, 5, settings, rngs=nnx.Rngs(0), positive=given)
