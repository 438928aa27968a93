"""Hidden states of texts, a mean over each text's tokens for every layer, once for each model."""

import hashlib
import json
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


def layer_means(
    model: Opened,
    texts: Sequence[str],
    max_length: int,
    cache: Path | None,
    say: Callable[[str], Any],
    batch_tokens: int = 8192,
) -> Float[np.ndarray, "layers texts D"]:
    """Means over the tokens of each text, [CLS] and [SEP] among them, of every layer's output.

    Args:
      model: whose; computed in fp32 on a CPU, else in bf16.
      texts: are cut to ``max_length`` tokens.
      cache: a directory in which they are kept; another model's or other texts' are others.
      say: takes lines of progress.
      batch_tokens: of a batch, at most, where texts are no longer.

    Returns: float32; the first of N + 1 layers is the embeddings', the last after the final norm.
    """
    mark = json.dumps([model.about, max_length, list(texts)], sort_keys=True)
    file = cache and cache / f"{hashlib.sha256(mark.encode()).hexdigest()[:24]}.npy"
    if file and file.exists():
        return np.load(file)
    vocabulary = open_vocabulary(model.tokenizer)
    rows = [encoded(vocabulary, text, max_length) for text in texts]
    means = _means(model, vocabulary.pad, rows, batch_tokens, say)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as opened:
            np.save(opened.buffer, means)
    return means


def encoded(vocabulary: Vocabulary, text: str, max_length: int) -> list[int]:
    """[CLS], as much of the text as there is room for, and [SEP]."""
    ids = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    return [vocabulary.cls, *ids[: max_length - 2], vocabulary.sep]


def _means(
    model: Opened, pad: int, rows: list[list[int]], batch_tokens: int, say: Callable[[str], Any]
) -> np.ndarray:
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    structure = modernbert.structure(model.spec, dtype=dtype)
    params = {path: jnp.asarray(array) for path, array in model.params().items()}

    @jax.jit
    def means_of(params, ids, segments):
        network = modernbert.merge(structure, params)
        states = network(ids, segment_ids=segments, output_hidden_states=True).hidden_states
        there = (segments > 0)[..., None]
        count = there.sum(1)
        return jnp.stack(
            [(jnp.where(there, s.astype(jnp.float32), 0)).sum(1) / count for s in states]
        )

    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))  # the longest first: memory
    start = 0
    while start < len(order):
        length = -(-len(rows[order[start]]) // MULTIPLE) * MULTIPLE
        size = max(1, batch_tokens // length)
        places = order[start : start + size]
        ids = np.full((size, length), pad, np.int32)
        segments = np.zeros((size, length), np.int32)
        segments[:, 0] = 1  # a row that only fills the batch: its mean is of one token
        for row, place in enumerate(places):
            ids[row, : len(rows[place])] = rows[place]
            segments[row, : len(rows[place])] = 1
        means = np.asarray(means_of(params, ids, segments))
        for row, place in enumerate(places):
            found[place] = means[:, row]
        start += len(places)
        say(f"{model.name}: {start:,} of {len(rows):,} texts")
    return np.stack(found, axis=1)
