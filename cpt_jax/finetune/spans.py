"""The span model for entities that may nest, as one Flax NNX head.

Words are the means of their tokens' states. Three bidirectional LSTMs read them; from the second
on, a gate says for each word how much of the new state replaces the old, and a layer norm follows.
On that stand two scorers of the span of words b .. e for each label:

- A tagger. For each label a chain of tags says of every word whether it is in an entity of that
  label, and whether one begins and whether one ends there: O, I, B, L, U (both). Of entities that
  do not overlap that is BIOUL, of nested ones of one label it is still one chain (13 % of QUAERO's
  are inside another of their own label, which one chain over all labels, or strict BIOUL, could
  not say). What no set of entities gives is impossible: O after B or I, I or L after O
  or at the start, B or I at the end. The chain scores nothing else: what a learned transition would
  tell is in the LSTM's states. The score of a span is the log-odds that its label begins at b,
  ends at e and leaves no word between out, under the conditional random field (`crf`).
- A biaffine scorer: the inner product of a projection of word b and one of word e for each label.

Each learns from its own loss, the chain's likelihood and binary cross-entropy over all spans; the
scores are summed where entities are predicted, those above a threshold. Spans longer than `REACH`
words are not predicted, and teach the tagger alone. Everything here is fp32.

Sizes are those of `LSTM` (both directions together) and `BIAFFINE` (of one label) for encoders as
wide as ModernBERT-base or wider, and in proportion for smaller ones.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from cpt_jax.finetune import crf
from cpt_jax.finetune.head import Batch, Head, Sums
from cpt_jax.model.layers import dropout
from cpt_jax.model.modernbert import Hidden, Key

LAYERS, LSTM, BIAFFINE, REACH = 3, 400, 64, 40
BASE = 768  # hidden size of ModernBERT-base

O, I, B, L, U = range(5)  # noqa: E741
INSIDE, FIRST, LAST = np.array([I, B, L, U]), np.array([B, U]), np.array([L, U])
BIOUL = crf.Chain(
    start=np.where(np.isin(range(5), [I, L]), crf.IMPOSSIBLE, 0).astype(np.float32),
    transitions=np.zeros((5, 5), np.float32),
    end=np.where(np.isin(range(5), [B, I]), crf.IMPOSSIBLE, 0).astype(np.float32),
)
BIOUL.transitions[[O, O, B, I], [I, L, O, O]] = crf.IMPOSSIBLE

SURE = -1e-6  # the log of the highest probability that a chain's is taken for: log-odds of 14
# An entity in a hundred spans: what the biaffine scorer begins with, far closer than even odds.
PRIOR = -math.log(99)


class Scores(NamedTuple):
    """What the two scorers say of a batch.

    Attributes:
      tags: log-probabilities of each word's tags before they have to form a chain.
      pairs: log-odds of the span of words w .. w + r, at [w, r].
      words: which words are there.
    """

    tags: Float[Array, "B C W 5"]
    pairs: Float[Array, "B C W R"]
    words: Bool[Array, "B W"]


class SpanModel(nnx.Module):
    """LSTMs, tagger and biaffine scorer: all of the head's parameters."""

    def __init__(self, inputs: int, labels: int, rate: float, *, rngs: nnx.Rngs):
        width, self.size = scaled(LSTM, inputs), scaled(BIAFFINE, inputs)
        self.drop = nnx.Dropout(rate)
        sizes = [inputs] + [width] * (LAYERS - 1)
        self.lstms = nnx.List([bilstm(size, width, rngs) for size in sizes])
        self.gates = nnx.List([nnx.Linear(width, 1, rngs=rngs) for _ in range(LAYERS - 1)])
        self.norms = nnx.List(
            [
                nnx.LayerNorm(width, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
                for _ in range(LAYERS - 1)
            ]
        )
        self.tagger = nnx.Linear(width, labels * len(BIOUL.start), rngs=rngs)
        self.first = nnx.Linear(width, labels * self.size, rngs=rngs)
        self.last = nnx.Linear(width, labels * self.size, rngs=rngs)
        self.bias = nnx.Param(jnp.full(labels, PRIOR))

    def __call__(
        self, x: Float[Array, "B W D"], words: Bool[Array, "B W"], dropout_key: Key
    ) -> Scores:
        """Both scorers' results; a key drops of words, and of what each LSTM gives."""
        keys: list[Key] = [None] * (LAYERS + 1)
        if dropout_key is not None:
            keys = list(jax.random.split(dropout_key, LAYERS + 1))
        x = dropout(self.drop, x, keys[-1])
        # Up to the last word: one that is missing before it is read as zeros.
        lengths = jnp.where(words, jnp.arange(1, words.shape[1] + 1), 0).max(1)
        zeros = (jnp.zeros((len(x), self.norms[0].num_features // 2)),) * 2
        for i, lstm in enumerate(self.lstms):
            new = lstm(x, initial_carry=(zeros, zeros), seq_lengths=lengths)
            new = dropout(self.drop, jnp.asarray(new), keys[i])
            if i == 0:
                x = new  # of another width than the words: nothing to keep
            else:
                gate = jax.nn.sigmoid(self.gates[i - 1](new))
                x = self.norms[i - 1](x * (1 - gate) + new * gate)
        bias = self.bias[...]
        labels = len(bias)

        def by_label(y: Array) -> Array:
            return y.reshape(*y.shape[:2], labels, -1).swapaxes(1, 2)

        tags = jax.nn.log_softmax(by_label(self.tagger(x)))
        first, last = by_label(self.first(x)), by_label(self.last(x))
        pairs = band(first, last, min(REACH, x.shape[1])) / math.sqrt(self.size)
        return Scores(tags, pairs + bias[:, None, None], words)


class SpanHead(Head):
    """The head of kind spans; its parameters are `spans.*`.

    Rows have room for W words, their length in tokens, and memory goes with B W. Measured for the
    gradient at 16 rows of 512 tokens and 10 labels: 1.1 GB at a hidden size of 768 and 0.2 GB at
    128, most of it what the LSTMs' loops keep; scores are arrays of 4 B C W `REACH` bytes (13 MB).

    Args:
      inputs: the encoder's hidden size.
      labels: how many.
      rate: of dropout.
      rngs: where initial parameters come from.
    """

    def __init__(self, inputs: int, labels: int, rate: float, *, rngs: nnx.Rngs):
        self.spans = SpanModel(inputs, labels, rate, rngs=rngs)

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> Scores:
        """Scores of every span, of words that are the means of their tokens."""
        return self.spans(*pooled(hidden, batch["word_ids"]), dropout_key)

    def loss(self, scores: Scores, batch: Batch) -> Sums:
        """Each row's chains and spans, a mean over labels, summed; and the rows' weight.

        Spans that begin or end at a word that is not there are left out.
        """
        tags, targets = gold(batch["spans"], scores)
        mask = scores.words[:, None]
        chains = crf.log_partition(scores.tags, mask, BIOUL) - crf.score(
            scores.tags, tags, mask, BIOUL
        )
        each = optax.losses.sigmoid_binary_cross_entropy(scores.pairs, targets)
        spans = jnp.where(_within(scores)[:, None], each, 0).sum((-2, -1))
        weight = batch["weight"]
        of_rows = (chains + spans).mean(-1)
        return jnp.where(weight > 0, weight * of_rows, 0).sum(), weight.sum()

    def predict(self, scores: Scores, batch: Batch) -> dict[str, Array]:
        """The spans that score highest, as many as the row has tokens, the best first.

        Returns:
          ``spans`` [B, W, 3]: first word, last word (inclusive), label; -1 where there are no
          more; and ``scores`` [B, W]: log-odds, -inf where there is no span.
        """
        rows, labels, words, reach = scores.pairs.shape
        summed = scores.pairs + span_odds(scores)
        summed = jnp.where(_within(scores)[:, None], summed, -jnp.inf)
        best, place = jax.lax.top_k(summed.reshape(rows, -1), words)
        label, first, further = jnp.unravel_index(place, (labels, words, reach))
        found = jnp.stack([first, first + further, label], axis=-1)
        return {"spans": jnp.where(jnp.isfinite(best)[..., None], found, -1), "scores": best}


def bilstm(inputs: int, width: int, rngs: nnx.Rngs) -> nnx.Bidirectional:
    """An LSTM in either direction over the words, `width` numbers of both for each word."""
    cells = [nnx.OptimizedLSTMCell(inputs, width // 2, rngs=rngs) for _ in range(2)]
    # Without random states of their own, which would be parameters that are none.
    return nnx.Bidirectional(*(nnx.RNN(cell, rngs=False) for cell in cells), rngs=False)


def scaled(size: int, inputs: int) -> int:
    """A size that is meant for `BASE`, for an encoder of another width: a multiple of 8."""
    return max(8, 8 * round(size * min(1, inputs / BASE) / 8))


def pooled(
    hidden: Hidden, word_ids: Int[Array, "B L"]
) -> tuple[Float[Array, "B L D"], Bool[Array, "B L"]]:
    """The mean of each word's tokens in fp32, 0 where there is no such word; and where there is."""
    rows, length, _ = hidden.shape
    row = jnp.arange(rows)[:, None]
    word = jnp.where(word_ids < 0, length, word_ids)  # beyond the end, and so nowhere
    total = (
        jnp.zeros(hidden.shape, jnp.float32)
        .at[row, word]
        .add(hidden.astype(jnp.float32), mode="drop")
    )
    tokens = jnp.zeros((rows, length), jnp.int32).at[row, word].add(1, mode="drop")
    return total / jnp.maximum(tokens, 1)[..., None], tokens > 0


def band(
    first: Float[Array, "B C W K"], last: Float[Array, "B C W K"], reach: int
) -> Float[Array, "B C W {reach}"]:
    """``first[w] . last[w + r]`` at [w, r], for r < reach; 0 where w + r is beyond the words.

    In blocks of `reach` words against twice as many, so that time and memory go with
    W x 2 reach, and in matrix products.
    """
    rows, labels, words, size = first.shape
    blocks = -(-words // reach)
    padding = [(0, 0), (0, 0), (0, blocks * reach - words), (0, 0)]
    shape = (rows, labels, blocks, reach, size)
    first = jnp.pad(first, padding).reshape(shape)
    last = jnp.pad(last, padding).reshape(shape)
    beyond = jnp.pad(last[:, :, 1:], [(0, 0), (0, 0), (0, 1), (0, 0), (0, 0)])
    products = first @ jnp.concatenate([last, beyond], axis=3).swapaxes(3, 4)
    # Row i of a block begins at its own word when rows are one longer than they were.
    flat = products.reshape(*shape[:3], 2 * reach * reach)
    skewed = jnp.pad(flat, [(0, 0)] * 3 + [(0, reach)]).reshape(*shape[:4], 2 * reach + 1)
    return skewed[..., :reach].reshape(rows, labels, blocks * reach, reach)[:, :, :words]


def gold(
    spans: Int[Array, "B M 3"], scores: Scores
) -> tuple[Int[Array, "B C W"], Float[Array, "B C W R"]]:
    """The tags that a batch's entities give each label's words, and 1 for each entity's span."""
    rows, labels, words, reach = scores.pairs.shape
    first, last, label = (spans[..., i] for i in range(3))
    real = (first >= 0) & _at(scores.words, first) & _at(scores.words, last)
    first, last = (jnp.where(real, end, words + 1) for end in (first, last))  # else nowhere
    row = jnp.arange(rows)[:, None]

    def marked(shape: tuple[int, ...], *places: Array) -> Array:
        return jnp.zeros(shape, bool).at[row, label, *places].set(True, mode="drop")

    begins, ends = (marked((rows, labels, words), end) for end in (first, last))
    change = jnp.zeros((rows, labels, words + 1), jnp.int32)
    change = change.at[row, label, first].add(1, mode="drop")
    change = change.at[row, label, last + 1].add(-1, mode="drop")
    inside = change.cumsum(-1)[..., :words] > 0
    targets = marked((rows, labels, words, reach), first, last - first)
    return jnp.where(inside, I + begins + 2 * ends, O), targets.astype(jnp.float32)


def span_odds(scores: Scores) -> Float[Array, "B C W R"]:
    """The tagger's log-odds of each span.

    As chains score nothing but what is impossible, and inside an entity nothing is, the words
    between the ends are independent given that none is O.
    """
    reach, mask = scores.pairs.shape[-1], scores.words[:, None]
    found = crf.messages(scores.tags, mask, BIOUL)
    begun, ended = found.before + scores.tags, found.after + scores.tags
    total = found.total[..., None, None]
    alone = (begun + found.after)[..., U, None] - total

    def summed(tags: Array, which: np.ndarray) -> Array:
        return jax.nn.logsumexp(tags[..., which], axis=-1)

    inner = jnp.where(mask, summed(scores.tags, INSIDE), 0)
    between = _ahead(inner, reach).at[..., 0].set(0)
    between = between.cumsum(-1) - between
    several = summed(begun, FIRST)[..., None] + between + _ahead(summed(ended, LAST), reach)
    log_p = jnp.minimum(jnp.where(jnp.arange(reach) == 0, alone, several - total), SURE)
    return log_p - jnp.log(-jnp.expm1(log_p))


def _within(scores: Scores) -> Bool[Array, "B W R"]:
    """Which spans begin and end at a word that is there."""
    return scores.words[..., None] & _ahead(scores.words, scores.pairs.shape[-1])


def _ahead(x: Array, reach: int) -> Array:
    """``x[..., w + r]`` at [..., w, r]; 0 beyond the end."""
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, reach)])
    return padded[..., np.add.outer(np.arange(x.shape[-1]), np.arange(reach))]


def _at(words: Bool[Array, "B W"], place: Int[Array, "B M"]) -> Bool[Array, "B M"]:
    return jnp.take_along_axis(words, place, axis=1, mode="clip")
