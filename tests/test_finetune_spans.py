"""The span model against a PyTorch model of its description, and against enumeration."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

from cpt_jax.finetune import crf
from cpt_jax.finetune.examples import Settings
from cpt_jax.finetune.heads import make_head
from cpt_jax.finetune.spans import (
    BIOUL,
    Scores,
    SpanHead,
    band,
    bilstm,
    gold,
    pooled,
    scaled,
    span_odds,
)
from cpt_jax.model.modernbert import merge, split
from tests.model_oracle import TINY, quick_jit, relative

D, LABELS, WIDTH, SIZE = 32, 2, 16, 8
# fp32 through three recurrent layers and back, summed in another order: at most 5e-6 measured.
BOUND = 3e-5

# Three rows: words of one and of several tokens, entities of one label nested and side by side,
# padding behind; the last row only fills the batch, and its targets are nonsense.
WORD_IDS = np.array([
    [-1, 0, 0, 1, 2, 3, 3, 3, 4, -1, -1, -1],
    [-1, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    [-1, 5, 5, 2, 7, -1, -1, -1, -1, -1, -1, -1],
])  # fmt: skip
SPANS = np.array([
    [[0, 3, 0], [1, 1, 0], [2, 3, 0], [1, 4, 1]],
    [[0, 0, 1], [1, 1, 1], [-1, -1, -1], [-1, -1, -1]],
    [[9, 1, 7], [0, 50, -4], [2, 2, 0], [-1, -1, -1]],
])  # fmt: skip
BATCH = {
    "word_ids": jnp.asarray(WORD_IDS),
    "spans": jnp.asarray(SPANS),
    "weight": jnp.array([1.0, 1.0, 0.0]),
}
WORDS = (5, 2)


@functools.cache
def head(rate: float = 0.0, labels: int = LABELS) -> SpanHead:
    return SpanHead(D, labels, rate, rngs=nnx.Rngs(0))


@functools.cache
def large_params() -> dict[str, jax.Array]:
    """Parameters so large that an error shows."""
    rng = np.random.default_rng(0)

    def draw(path: str, leaf: jax.Array) -> jax.Array:
        noise = rng.standard_normal(leaf.shape)
        return jnp.asarray(1 + 0.3 * noise if path.endswith("scale") else 0.5 * noise, jnp.float32)

    return {path: draw(path, leaf) for path, leaf in split(head())[1].items()}


def hidden_states() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (*WORD_IDS.shape, D))


def mean_loss(params, hidden, batch=BATCH, key=None):
    of_head = merge(nnx.split(head(0.3 if key is not None else 0.0))[0], params)
    total, weight = of_head.loss(of_head(hidden, batch, key), batch)
    return total / weight


def listing(params, hidden, batch=BATCH):
    """Scores and what is predicted of them."""
    of_head = merge(nnx.split(head())[0], params)
    scores = of_head(hidden, batch, None)
    return scores, of_head.predict(scores, batch)


# Compiled once for all tests: most of their time.
quick_loss = quick_jit(mean_loss)
quick_gradient = quick_jit(jax.value_and_grad(mean_loss, argnums=(0, 1)))
quick_listing = quick_jit(listing)


# ---- PyTorch

CELLS = (("forward_rnn.cell", ""), ("backward_rnn.cell", "_reverse"))


def torch_lstm(params, prefix: str, inputs: int) -> torch.nn.LSTM:
    """torch's bidirectional LSTM with our parameters as its own."""
    lstm = torch.nn.LSTM(inputs, WIDTH // 2, bidirectional=True, batch_first=True)
    for ours, theirs in CELLS:
        values = {
            "weight_ih_l0": params[f"{prefix}.{ours}.dense_i.kernel"].T,
            "weight_hh_l0": params[f"{prefix}.{ours}.dense_h.kernel"].T,
            "bias_ih_l0": params[f"{prefix}.{ours}.dense_h.bias"],
            "bias_hh_l0": jnp.zeros(4 * (WIDTH // 2)),
        }
        with torch.no_grad():
            for name, value in values.items():
                getattr(lstm, name + theirs).copy_(torch.tensor(np.asarray(value)))
    return lstm


class TorchSpans(torch.nn.Module):
    """The description again, a row at a time and without padding."""

    def __init__(self, params):
        super().__init__()
        self.lstms = torch.nn.ModuleList(
            torch_lstm(params, f"spans.lstms.{i}", D if i == 0 else WIDTH) for i in range(3)
        )
        names = [p for p in params if ".lstms." not in p]
        self.rest = torch.nn.ParameterDict(
            {p.replace(".", "/"): torch.tensor(np.asarray(params[p])) for p in names}
        )

    def linear(self, name: str, x):
        return x @ self.rest[f"spans/{name}/kernel"] + self.rest[f"spans/{name}/bias"]

    def states(self, hidden, words: list[list[int]]):
        """[W, WIDTH] of words that are lists of token numbers."""
        x = torch.stack([hidden[tokens].mean(0) for tokens in words])
        for i, lstm in enumerate(self.lstms):
            new = lstm(x[None])[0][0]
            if i == 0:
                x = new
                continue
            gate = torch.sigmoid(self.linear(f"gates/{i - 1}", new))
            scale, bias = (self.rest[f"spans/norms/{i - 1}/{p}"] for p in ("scale", "bias"))
            x = torch.nn.functional.layer_norm(x * (1 - gate) + new * gate, (WIDTH,), scale, bias)
        return x

    def loss(self, hidden, words, entities):
        """Of one row whose entities are (first, last, label)."""
        x = self.states(hidden, words)
        n = len(words)
        tags = self.linear("tagger", x).view(n, LABELS, 5).log_softmax(-1)
        first = self.linear("first", x).view(n, LABELS, SIZE)
        last = self.linear("last", x).view(n, LABELS, SIZE)
        total = torch.zeros(())
        for label in range(LABELS):
            own = [(b, e) for b, e, c in entities if c == label]
            total = total + chain_loss(tags[:, label], tags_of(own, n))
            odds = first[:, label] @ last[:, label].T / SIZE**0.5 + self.rest["spans/bias"][label]
            target = torch.zeros(n, n)
            for b, e in own:
                target[b, e] = 1
            each = torch.nn.functional.binary_cross_entropy_with_logits(
                odds, target, reduction="none"
            )
            total = total + each.triu().sum()
        return total / LABELS


def tags_of(entities: list[tuple[int, int]], words: int) -> list[int]:
    """Of one label's entities: O 0, I 1, B 2, L 3, U 4."""
    begins, ends = {b for b, _ in entities}, {e for _, e in entities}
    found = []
    for word in range(words):
        within = any(b <= word <= e for b, e in entities)
        kind = (word in begins, word in ends)
        found.append({(0, 0): 1, (1, 0): 2, (0, 1): 3, (1, 1): 4}[kind] if within else 0)
    return found


def allowed(tags: tuple[int, ...]) -> bool:
    """Whether a set of entities can give the tags: O and what is inside meet at a B, L or U."""
    padded = (0, *tags, 0)
    return all(
        (after in (0, 2, 4) if before == 0 else True)
        and (before in (0, 3, 4) if after == 0 else True)
        for before, after in itertools.pairwise(padded)
    )


def chain_loss(log_p, tags: list[int]):
    """Minus the log-likelihood of the tags among all that are allowed, one by one."""
    every = [t for t in itertools.product(range(5), repeat=len(tags)) if allowed(t)]
    index = torch.tensor(every)
    scores = log_p[torch.arange(len(tags)), index].sum(-1)
    return scores.logsumexp(0) - log_p[torch.arange(len(tags)), torch.tensor(tags)].sum()


def in_our_names(model: TorchSpans) -> dict[str, np.ndarray]:
    """Its gradients."""
    found = {
        path.replace("/", "."): x.grad.numpy()
        for path, x in model.rest.items()
        if x.grad is not None
    }
    for i, lstm in enumerate(model.lstms):
        for ours, theirs in CELLS:
            names = {"dense_i.kernel": "weight_ih_l0", "dense_h.kernel": "weight_hh_l0"}
            for leaf, name in names.items():
                gradient = getattr(lstm, name + theirs).grad.numpy().T
                found[f"spans.lstms.{i}.{ours}.{leaf}"] = gradient
            bias = getattr(lstm, f"bias_ih_l0{theirs}").grad.numpy()
            found[f"spans.lstms.{i}.{ours}.dense_h.bias"] = bias
    return found


@pytest.mark.torch
def test_loss_and_gradients_are_pytorchs():
    params, hidden = large_params(), hidden_states()
    value, (gradients, of_hidden) = quick_gradient(params, hidden)
    model = TorchSpans(params)
    states = torch.tensor(np.asarray(hidden), requires_grad=True)
    loss = torch.zeros(())
    for row, count in enumerate(WORDS):
        tokens = [list(np.flatnonzero(WORD_IDS[row] == word)) for word in range(count)]
        entities = [tuple(span) for span in SPANS[row].tolist() if span[0] >= 0]
        loss = loss + model.loss(states[row], tokens, entities) / len(WORDS)
    loss.backward()
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    expected = in_our_names(model)
    assert expected.keys() == gradients.keys() == params.keys()
    errors = {path: relative(gradients[path], expected[path]) for path in params}
    assert states.grad is not None
    errors["hidden"] = relative(of_hidden, states.grad.numpy())
    assert max(errors.values()) < BOUND, errors


@pytest.mark.torch
def test_lstm_is_torchs_on_packed_words():
    """Rows of several lengths, which torch packs."""
    lengths, rng = [6, 1, 4], np.random.default_rng(1)
    x = rng.standard_normal((3, 6, D)).astype(np.float32)
    lstm = bilstm(D, WIDTH, nnx.Rngs(1))
    theirs = torch_lstm({f"x.{path}": leaf for path, leaf in split(lstm)[1].items()}, "x", D)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    words = np.arange(6) < np.array(lengths)[:, None]
    zeros = (jnp.zeros((3, WIDTH // 2)),) * 2
    found = lstm(jnp.asarray(x), initial_carry=(zeros, zeros), seq_lengths=jnp.array(lengths))
    found = np.where(words[..., None], found, 0)
    assert relative(found, expected.detach().numpy()) < 1e-6


# ---- enumeration


def spans_within(words: int) -> list[tuple[int, int]]:
    return [(b, e) for b in range(words) for e in range(b, words)]


def test_a_chain_is_possible_exactly_if_entities_give_it():
    """All 1024 sets of spans of four words, nested and crossing, against all 625 chains."""
    every = spans_within(4)
    sets = [s for n in range(len(every) + 1) for s in itertools.combinations(every, n)]
    spans = np.full((len(sets), len(every), 3), -1)
    for row, chosen in zip(spans, sets, strict=True):
        row[: len(chosen)] = [(b, e, 0) for b, e in chosen] or np.zeros((0, 3))
    empty = Scores(
        jnp.zeros((len(sets), 1, 4, 5)),
        jnp.zeros((len(sets), 1, 4, 4)),
        jnp.ones((len(sets), 4), bool),
    )
    tags, targets = gold(jnp.asarray(spans), empty)
    for found, target, chosen in zip(
        np.asarray(tags)[:, 0], np.asarray(targets)[:, 0], sets, strict=True
    ):
        assert found.tolist() == tags_of(list(chosen), 4)
        assert {(b, b + r) for b, r in zip(*np.nonzero(target), strict=True)} == set(chosen)
    chains = np.array(list(itertools.product(range(5), repeat=4)))
    zeros, real = jnp.zeros((len(chains), 4, 5)), jnp.ones((len(chains), 4), bool)
    scores = crf.score(zeros, jnp.asarray(chains), real, BIOUL)
    possible = {tuple(chain) for chain in chains[np.asarray(scores) == 0].tolist()}
    assert possible == {tuple(row) for row in np.asarray(tags)[:, 0].tolist()}


def test_the_taggers_odds_are_sums_over_all_chains():
    """That the label begins at b, ends at e and leaves no word between out; and the biaffine's."""
    words, rng = 5, np.random.default_rng(2)
    tags = np.asarray(jax.nn.log_softmax(2 * rng.standard_normal((2, 3, words, 5))), np.float32)
    real = np.arange(words) < np.array([5, 3])[:, None]
    scores = Scores(jnp.asarray(tags), jnp.zeros((2, 3, words, 4)), jnp.asarray(real))
    odds = np.asarray(span_odds(scores))
    for row, count in enumerate((5, 3)):
        for label in range(3):
            own = tags[row, label].astype(np.float64)
            chains = [t for t in itertools.product(range(5), repeat=count) if allowed(t)]
            weights = np.exp([sum(own[w, t] for w, t in enumerate(chain)) for chain in chains])
            for b, e in spans_within(count):
                if e - b >= 4:
                    continue  # beyond the reach of this array
                fits = [c[b] in (2, 4) and c[e] in (3, 4) and 0 not in c[b : e + 1] for c in chains]
                p = weights[fits].sum() / weights.sum()
                # fp32: odds of 1 in 1e4 keep four digits, which is what the bound asks.
                assert odds[row, label, b, e - b] == pytest.approx(np.log(p / (1 - p)), abs=2e-4)


@pytest.mark.parametrize(("words", "reach"), [(1, 1), (5, 5), (7, 3), (12, 4), (9, 4)])
def test_the_band_is_that_of_the_whole_product(words, reach):
    first, last = np.random.default_rng(3).standard_normal((2, 2, 3, words, 6)).astype(np.float32)
    whole = np.einsum("bcik,bcjk->bcij", first, last)
    found = np.asarray(band(jnp.asarray(first), jnp.asarray(last), reach))
    assert found.shape == (2, 3, words, reach)
    for w, r in itertools.product(range(words), range(reach)):
        expected = whole[:, :, w, w + r] if w + r < words else 0
        np.testing.assert_allclose(found[:, :, w, r], expected, atol=1e-5)


def test_listed_spans_are_the_best_of_all():
    """Sorted by the sum of both scores; of words that are there; -1 and -inf when they run out."""
    scores, listed = quick_listing(large_params(), hidden_states())
    summed = np.asarray(scores.pairs + span_odds(scores))
    for row, count in enumerate(WORDS):
        every = [
            (summed[row, label, b, e - b], (b, e, label))
            for b, e in spans_within(count)
            for label in range(LABELS)
        ]
        every = sorted(every, reverse=True)[: WORD_IDS.shape[1]]
        missing = WORD_IDS.shape[1] - len(every)
        expected = [list(span) for _, span in every] + [[-1, -1, -1]] * missing
        assert listed["spans"][row].tolist() == expected
        assert listed["scores"][row].tolist() == [s for s, _ in every] + [-np.inf] * missing


def test_words_are_the_means_of_their_tokens():
    hidden = jnp.asarray(np.arange(2 * 4 * 1, dtype=np.float32).reshape(2, 4, 1))
    ids = jnp.array([[-1, 0, 0, 1], [-1, 2, -1, -1]])
    means, words = pooled(hidden, ids)
    assert means[..., 0].tolist() == [[1.5, 3, 0, 0], [0, 0, 5, 0]]
    assert words.tolist() == [[True, True, False, False], [False, False, True, False]]


# ---- whatever the weights are


def test_padding_and_rows_of_no_weight_change_nothing():
    """Loss and gradients: with other states there, in longer rows, and without the last row."""
    params, hidden = large_params(), hidden_states()
    value, (of_params, of_hidden) = quick_gradient(params, hidden)
    nothing = (WORD_IDS < 0) | (np.asarray(BATCH["weight"]) == 0)[:, None]
    assert not np.asarray(of_hidden)[nothing].any()
    noise = jnp.where(nothing[..., None], 100.0, hidden)
    longer = jnp.pad(hidden, ((0, 0), (0, 45), (0, 0)), constant_values=3.0)
    wide = BATCH | {
        "word_ids": jnp.pad(BATCH["word_ids"], ((0, 0), (0, 45)), constant_values=-1),
        "spans": jnp.pad(BATCH["spans"], ((0, 0), (0, 3), (0, 0)), constant_values=-1),
    }
    fewer = {name: array[:2] for name, array in BATCH.items()}
    for states, batch in ((noise, BATCH), (longer, wide), (hidden[:2], fewer)):
        other, (of_other, _) = quick_gradient(params, states, batch)
        assert float(other) == pytest.approx(float(value), rel=1e-5)
        errors = {path: relative(of_other[path], of_params[path]) for path in params}
        assert max(errors.values()) < BOUND, errors


def test_a_batch_without_weight_gives_no_gradient():
    def total(params):
        of_head = merge(nnx.split(head())[0], params)
        empty = BATCH | {"weight": jnp.zeros(3)}
        return of_head.loss(of_head(hidden_states(), empty, None), empty)

    (value, weight), gradient = quick_jit(jax.value_and_grad(total, has_aux=True))(large_params())
    assert (value, weight) == (0, 0)
    assert not any(np.asarray(g).any() for g in gradient.values())


def test_seeds_at_once_are_seeds_one_by_one():
    """Parameters drawn, dropped out, differentiated and spans listed under `vmap`."""
    batches = jax.tree.map(lambda a: jnp.stack([a, a[::-1]]), BATCH)
    keys, hidden = (
        jax.random.split(jax.random.key(1)),
        jnp.stack([hidden_states(), hidden_states() + 1]),
    )

    def step(key, hidden, batch):
        of_seed = SpanHead(D, LABELS, 0.3, rngs=nnx.Rngs(key))
        graphdef, params = split(of_seed)
        found = merge(graphdef, params).predict(of_seed(hidden, batch, None), batch)
        return jax.value_and_grad(mean_loss)(params, hidden, batch, key), found["scores"]

    together = quick_jit(jax.vmap(step))(keys, hidden, batches)
    for seed in range(2):
        batch = {name: array[seed] for name, array in batches.items()}
        alone = quick_jit(step)(keys[seed], hidden[seed], batch)
        jax.tree.map(
            lambda a, b, seed=seed: np.testing.assert_allclose(a[seed], b, rtol=1e-5, atol=2e-6),
            together,
            alone,
        )


def test_dropout_is_off_without_a_key_and_another_with_each():
    keys = (None, *jax.random.split(jax.random.key(0)))
    losses = [float(quick_loss(large_params(), hidden_states(), BATCH, key)) for key in keys]
    assert len(set(losses)) == 3
    dropping = merge(nnx.split(head(0.3))[0], large_params())
    total, weight = dropping.loss(dropping(hidden_states(), BATCH, None), BATCH)
    assert float(total / weight) == pytest.approx(losses[0], rel=1e-5)


def test_an_entity_at_a_word_that_is_not_there_is_left_out():
    """Such a chain would be impossible, and its loss 1e9."""
    with_it = BATCH | {"spans": BATCH["spans"].at[1, 2].set(jnp.array([1, 3, 0]))}
    params, hidden = large_params(), hidden_states()
    assert quick_loss(params, hidden, with_it) == quick_loss(params, hidden, BATCH)


def test_an_entity_beyond_the_reach_teaches_the_tagger_alone():
    words = 60
    ids, hidden = jnp.arange(words)[None], jax.random.normal(jax.random.key(0), (1, words, D))
    batch = {"word_ids": ids, "weight": jnp.ones(1), "spans": jnp.array([[[3, 57, 0]]])}
    scores, _ = quick_listing(large_params(), hidden, batch)
    tags, targets = gold(batch["spans"], scores)
    assert tags[0, 0].tolist() == tags_of([(3, 57)], words)
    assert not np.asarray(targets).any()
    assert np.isfinite(head().loss(scores, batch)[0])


def test_nested_entities_are_learned():
    """Two rows by heart: what is listed above 0 is what was annotated, and nothing else."""
    params, hidden, tx = split(head())[1], hidden_states(), optax.adam(0.02)

    update, state = quick_jit(tx.update), tx.init(params)
    for _ in range(150):
        _, (gradient, _) = quick_gradient(params, hidden)
        updates, state = update(gradient, state)
        params = optax.apply_updates(params, updates)
    _, listed = quick_listing(params, hidden)
    for row in range(len(WORDS)):
        found = np.asarray(listed["spans"][row])[np.asarray(listed["scores"][row]) > 0]
        expected = [span for span in SPANS[row].tolist() if span[0] >= 0]
        assert sorted(found.tolist()) == sorted(expected)


def test_memory_goes_with_the_words_and_not_with_their_square():
    def bytes_of(words: int) -> int:
        shapes = {
            "word_ids": jax.ShapeDtypeStruct((2, words), jnp.int32),
            "spans": jax.ShapeDtypeStruct((2, 4, 3), jnp.int32),
            "weight": jax.ShapeDtypeStruct((2,), jnp.float32),
        }
        params = jax.eval_shape(lambda: split(head())[1])
        hidden = jax.ShapeDtypeStruct((2, words, D), jnp.float32)
        compiled = quick_jit(jax.grad(mean_loss)).lower(params, hidden, shapes).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert bytes_of(800) < 2.2 * bytes_of(400)


def test_sizes_are_in_proportion_to_the_encoder():
    assert [scaled(400, size) for size in (768, 1024, 384, 128, 8)] == [400, 400, 200, 64, 8]
    made = make_head("spans", TINY, 3, Settings(dropout=0.4), rngs=nnx.Rngs(0))
    assert isinstance(made, SpanHead)
    shapes = {path: leaf.shape for path, leaf in split(made)[1].items()}
    assert shapes["spans.tagger.kernel"] == (16, 15)
    assert shapes["spans.lstms.0.forward_rnn.cell.dense_h.kernel"] == (8, 32)
    assert all(path.startswith("spans.") for path in shapes)
