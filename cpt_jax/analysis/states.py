"""Hidden states of texts, computed once for each model, in batches of rows of like lengths."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cpt_jax.analysis.models import Opened
from cpt_jax.directories import whole_file
from cpt_jax.finetune.encode import Vocabulary, open_vocabulary
from cpt_jax.model import modernbert

MULTIPLE = 64  # lengths of batches, tokens: so many programs at most as a row has such parts
BATCH_TOKENS = 8192
SAY_SECONDS = 5.0

# Of a batch's hidden states [B, L, D], of all layers, its segment ids, and places in its rows
# [B, P]: what is kept, [B, ...].
Reduce = Callable[[Any, Any, Any], Any]


def layer_means(
    model: Opened,
    texts: Sequence[str],
    max_length: int,
    cache: Path | None,
    say: Callable[[str], Any],
    batch_tokens: int = BATCH_TOKENS,
) -> Float[np.ndarray, "layers texts D"]:
    """Means over the tokens of each text, [CLS] and [SEP] among them, of every layer's output.

    Args:
      model: whose.
      texts: are cut to ``max_length`` tokens.
      cache, say, batch_tokens: see `reduced`.

    Returns: float32; the first of N + 1 layers is the embeddings', the last after the final norm.
    """
    vocabulary = open_vocabulary(model.tokenizer)
    rows = [encoded(vocabulary, text, max_length) for text in texts]
    found = reduced(model, vocabulary.pad, rows, means, cache, say, batch_tokens)
    return found.swapaxes(0, 1)


def encoded(vocabulary: Vocabulary, text: str, max_length: int) -> list[int]:
    """[CLS], as much of the text as there is room for, and [SEP]."""
    ids = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    return [vocabulary.cls, *ids[: max_length - 2], vocabulary.sep]


def means(states: Any, segments: Any, places: Any) -> Any:
    """[B, layers, D]: of each layer the mean over a row's tokens."""
    there = (segments > 0)[..., None]
    count = there.sum(1)
    wide = [jnp.where(there, state.astype(jnp.float32), 0).sum(1) / count for state in states]
    return jnp.stack(wide, axis=1)


def first_tokens(states: Any, segments: Any, places: Any) -> Any:
    """[B, D]: of the last layer the first token's."""
    return states[-1][:, 0].astype(jnp.float32)


def at_places(states: Any, segments: Any, places: Any) -> Any:
    """[B, layers, P, D]: of every layer the states of the tokens at some places."""
    chosen = [jnp.take_along_axis(state, places[..., None], axis=1) for state in states]
    return jnp.stack(chosen, axis=1).astype(jnp.float32)


def reduced(
    model: Opened,
    pad: int,
    rows: Sequence[Sequence[int]],
    reduce: Reduce,
    cache: Path | None,
    say: Callable[[str], Any],
    batch_tokens: int = BATCH_TOKENS,
    places: Sequence[Sequence[int]] | None = None,
) -> np.ndarray:
    """What is kept of the hidden states of each row.

    Args:
      model: computed in fp32 on a CPU, else in bf16.
      pad: the token that pads.
      rows: token ids.
      reduce: `means`, `first_tokens` or `at_places`.
      cache: a directory in which it is kept; another model's or other rows' are others.
      say: takes lines of progress.
      batch_tokens: of a batch, at most, where no row alone is longer.
      places: in each row, as many in one as in another, for `at_places`.
    """
    places = places or [[0]] * len(rows)
    read = [list(map(int, row)) for row in rows], [list(map(int, each)) for each in places]
    mark = json.dumps([model.about, reduce.__name__, *read], sort_keys=True)
    file = cache and cache / f"{hashlib.sha256(mark.encode()).hexdigest()[:24]}.npy"
    if file and file.exists():
        return np.load(file)
    found = _computed(model, pad, rows, np.array(places), reduce, say, batch_tokens)
    if file:
        with whole_file(file) as opened:
            np.save(opened.buffer, found)
    return found


def _computed(
    model: Opened,
    pad: int,
    rows: Sequence[Sequence[int]],
    places: np.ndarray,
    reduce: Reduce,
    say: Callable[[str], Any],
    batch_tokens: int,
) -> np.ndarray:
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    structure = modernbert.structure(model.spec, dtype=dtype)
    params = {path: jnp.asarray(array) for path, array in model.params().items()}

    @jax.jit
    def compute(params, ids, segments, at):
        network = modernbert.merge(structure, params)
        output = network(ids, segment_ids=segments, output_hidden_states=True)
        return reduce(output.hidden_states, segments, at)

    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))  # the longest first: memory
    start, told = 0, time.monotonic()
    while start < len(order):
        length = -(-len(rows[order[start]]) // MULTIPLE) * MULTIPLE
        size = max(1, batch_tokens // length)
        together = order[start : start + size]
        ids = np.full((size, length), pad, np.int32)
        segments = np.zeros((size, length), np.int32)
        segments[:, 0] = 1  # rows that only fill the batch: of one token
        at = np.zeros((size, places.shape[1]), np.int32)
        for row, number in enumerate(together):
            ids[row, : len(rows[number])] = rows[number]
            segments[row, : len(rows[number])] = 1
            at[row] = places[number]
        values = np.asarray(compute(params, ids, segments, at))
        for row, number in enumerate(together):
            found[number] = values[row]
        start += len(together)
        if time.monotonic() - told > SAY_SECONDS or start == len(rows):
            told = time.monotonic()
            say(f"{model.name}: {start:,} of {len(rows):,} texts")
    return np.stack(found)
