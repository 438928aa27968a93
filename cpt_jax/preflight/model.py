"""The half of a preflight that runs the model: is it the one that was trained, fed as it was?

Everything is measured on a few held-out rows with the run's own corruption, in fp32.
"""

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cpt_jax import checkpoint
from cpt_jax.config import Config
from cpt_jax.model import hub, modernbert
from cpt_jax.model.spec import DEFAULT_THETA, FULL, SLIDING, ModelSpec
from cpt_jax.preflight.lines import Line
from cpt_jax.seeds import hash_seed
from cpt_jax.training.objectives import IGNORE, Targets, Vocabulary, masked_token
from cpt_jax.training.start import Start, initial_params
from cpt_jax.training.step import phase_targets

ROWS = 8  # at most, of each source
SEARCHED_ROWS = 256  # of each source, for one that holds several documents
TOKENS = {"cpu": 8192}  # read in all; what a minute allows
TOKENS_ELSEWHERE = 65536
# Two ways of adding up the same numbers in fp32 differ by some 1e-6 a layer; a leak moves tenths.
SAME_STATES = 1e-3  # relative to the largest
SAME_LOSS = 1e-3  # nats a target
SURE = 4.0  # standard errors of a paired difference: by chance once in 30,000


@dataclasses.dataclass(frozen=True)
class Rows:
    """Held-out rows, corrupted: what every check is measured on."""

    segment_ids: np.ndarray  # [B, L] int32
    targets: Targets
    unigram: float  # nats a target of who knows how often each token occurs, and nothing else


def check_model(run: Config, start: Start) -> Iterator[Line]:
    """Yields the lines on the parameters that the run starts from; compiles a few programs."""
    if start.begun:
        yield Line("ok", "model", "not looked at again: the run has begun")
        return
    params = {path: jnp.asarray(array) for path, array in initial_params(run, start.spec).items()}
    rows = _rows(run, start)
    with jax.default_matmul_precision("highest"):
        yield from _counts(run, start)
        yield _packing(start.spec, params, *_fullest_row(run, start))
        nll = _nll(start.spec, params, rows)
        if run.init.source == "scratch":
            yield _untrained(nll, start.vocabulary)
            return
        if checkpoint.names_checkpoint(run.init.source):  # the end of CLM, maybe: no encoder now
            yield Line("ok", "loss", f"held-out MLM {nll.mean():.3f} nats, from a checkpoint")
            return
        yield _loss(nll, rows)
        yield _alternatives(start.spec, params, rows, nll)
    yield _transformers(run.init.source, rows, nll)


def _rows(run: Config, start: Start) -> Rows:
    """Returns the first held-out rows of the sources in turn, cut to what can be afforded."""
    affordable = _affordable()
    length = min(run.data.seq_len, affordable // 4)
    wanted = min(ROWS * len(start.heldout), affordable // length)
    rows = [source[i] for i in range(ROWS) for source in start.heldout.values() if i < len(source)][
        :wanted
    ]
    ids, segments = (
        np.stack([row[name][:length] for row in rows]) for name in ("input_ids", "segment_ids")
    )
    key = jax.random.key(hash_seed("held-out corruption"))
    ordinals = jnp.arange(len(rows), dtype=jnp.uint32)
    targets = masked_token(
        *(jnp.asarray(ids), jnp.asarray(segments), ordinals, key),
        rate=run.evaluation.mask_rate,
        vocabulary=start.vocabulary,
    )
    labels = np.asarray(targets.labels)
    return Rows(segments, targets, _unigram(start, labels[labels != IGNORE]))


def _affordable() -> int:
    return TOKENS.get(jax.default_backend(), TOKENS_ELSEWHERE)


def _fullest_row(run: Config, start: Start) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids and segments [L] of that of the first rows which holds the most documents."""
    length = min(run.data.seq_len, _affordable() // 4)
    rows = [
        source[i]
        for source in (*start.heldout.values(), *start.train.values())
        for i in range(min(SEARCHED_ROWS, len(source)))
    ]
    fullest = max(rows, key=lambda row: row["segment_ids"][:length].max())
    return fullest["input_ids"][:length], fullest["segment_ids"][:length]


def _unigram(start: Start, tokens: np.ndarray) -> float:
    """Returns the loss on tokens of their frequencies in the first training rows, smoothed."""
    counts = np.ones(start.vocabulary.size)
    counts[list(start.vocabulary.special_ids)] = 0
    for source in start.train.values():
        for i in range(min(len(source), 256)):
            row = source[i]
            counts += np.bincount(row["input_ids"], minlength=len(counts)) * (counts > 0)
    return float(-np.log(counts[tokens] / counts.sum()).mean())


def _states(spec: ModelSpec, params: Any, ids: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Returns the encoder's last hidden states [B, L, D]."""
    graphdef = modernbert.structure(spec, dtype=jnp.float32)

    @jax.jit
    def forward(params, ids, segments):
        return modernbert.merge(graphdef, params).encode(ids, segments, "bidirectional")

    return np.asarray(forward(params, jnp.asarray(ids), jnp.asarray(segments)))


def _nll(spec: ModelSpec, params: Mapping[str, Any], rows: Rows) -> np.ndarray:
    """Returns the loss of each target of the rows, in nats."""
    graphdef = modernbert.structure(spec, dtype=jnp.float32)

    @jax.jit
    def forward(params, targets: Targets, segments):
        model = modernbert.merge(graphdef, params)
        hidden = model.encode(targets.input_ids, segments, "bidirectional")
        assert targets.positions is not None
        chosen = jnp.take_along_axis(hidden, targets.positions[..., None], axis=1)
        kernel, bias = model.decoder_weights()
        logits = model.predict(chosen) @ kernel.T + (0.0 if bias is None else bias)
        labels = jnp.maximum(targets.labels, 0)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)

    nll = np.asarray(forward(params, rows.targets, jnp.asarray(rows.segment_ids)), np.float64)
    return nll[np.asarray(rows.targets.labels) != IGNORE]


def _untrained(nll: np.ndarray, vocabulary: Vocabulary) -> Line:
    text = f"held-out MLM {nll.mean():.3f} nats; a guess costs {math.log(vocabulary.size):.3f}"
    return Line("ok", "loss", f"{text}: from scratch")


def _loss(nll: np.ndarray, rows: Rows) -> Line:
    """A trained encoder on text it can read beats the frequencies of the tokens."""
    mean, error = nll.mean(), nll.std() / math.sqrt(len(nll))
    text = (
        f"held-out MLM {mean:.3f} ± {error:.3f} nats over {len(nll)} targets; knowing only how "
        f"often tokens occur costs {rows.unigram:.3f}"
    )
    if not math.isfinite(mean):
        return Line("stop", "loss", f"{text}: the parameters or what they compute are not finite")
    if mean - SURE * error > rows.unigram:
        return Line(
            "stop",
            "loss",
            f"{text}: the model cannot read this data (another tokenizer's, or "
            "other weights than config.json's)",
        )
    if mean > rows.unigram:
        return Line(
            "warn", "loss", f"{text}: no better than that: an untrained model, or another language"
        )
    return Line("ok", "loss", text)


def _packing(spec: ModelSpec, params: Any, packed: np.ndarray, segments: np.ndarray) -> Line:
    """A row of several documents, against each of them alone at the beginning of a row."""
    count = min(int(segments.max()), ROWS)
    ids, alone = (np.zeros((count, len(segments)), np.int32) for _ in range(2))
    places = [np.flatnonzero(segments == n) for n in range(1, count + 1)]
    for i, place in enumerate(places):
        ids[i, : len(place)], alone[i, : len(place)] = packed[place], 1
    together = _states(spec, params, packed[None], segments[None])[0]
    apart = _states(spec, params, ids, alone)
    furthest = max(
        float(np.abs(apart[i, : len(place)] - together[place]).max())
        for i, place in enumerate(places)
    )
    relative = furthest / float(np.abs(together).max())
    text = f"a row of {segments.max()} documents, against {count} of them alone: last states "
    text += f"differ by {relative:.1e} of the largest"
    if not relative <= SAME_STATES:
        return Line("stop", "packing", f"{text}: documents see each other")
    if count < 2:
        return Line("warn", "packing", f"{text}; none of the first rows holds two documents")
    return Line("ok", "packing", text)


def _counts(run: Config, start: Start) -> list[Line]:
    """Targets a row in each phase, made by the very objective, against what they should be."""
    source = next(iter(start.train.values()))
    rows = [source[i] for i in range(min(ROWS, len(source)))]
    batch = {
        name: jnp.asarray(np.stack([row[name] for row in rows]))
        for name in ("input_ids", "segment_ids")
    } | {"ordinals": jnp.arange(len(rows), dtype=jnp.uint32)}
    ids, segments = (np.asarray(batch[name]) for name in ("input_ids", "segment_ids"))
    tokens = int((segments > 0).sum())
    ordinary = int(((segments > 0) & ~np.isin(ids, start.vocabulary.special_ids)).sum())
    documents = int(segments.max(1).sum())
    lines = []
    for phase in run.phases:
        key = jax.random.key(hash_seed(run.seed, "corruption"))
        targets = phase_targets(phase, batch, start.vocabulary, key)
        count = int((np.asarray(targets.labels) != IGNORE).sum())
        rate = phase.mask_rate or 1.0
        expected = tokens - documents if phase.objective == "clm" else rate * ordinary
        spread = 6 * math.sqrt(ordinary * rate * (1 - rate))
        text = f"{phase.name}: {count / len(rows):.1f} a row of {tokens / len(rows):.0f} tokens"
        right = abs(count - expected) <= spread and not int(targets.overflow)
        about = "" if right else f"; {expected / len(rows):.1f} were expected"
        lines.append(Line("ok" if right else "stop", "targets", text + about))
    return lines


def _alternatives(spec: ModelSpec, params: Any, rows: Rows, nll: np.ndarray) -> Line:
    """Whether the model reads better with other RoPE bases or another window than it is given.

    Trained weights are best under what they were trained with, so a wrong value in config.json or
    in the overrides shows without knowing the right one. Differences are paired, target by target.
    """
    best, text = None, []
    for name, other in _variants(spec).items():
        change = _nll(other, params, rows) - nll
        error = change.std() / math.sqrt(len(change)) or 1e-12
        text.append(f"{name} {change.mean():+.3f} ± {error:.3f}")
        if change.mean() < -SURE * error and (best is None or change.mean() < best[0]):
            best = change.mean(), name
    said = f"loss with other values: {', '.join(text)}"
    if best is None:
        return Line("ok", "position", said)
    return Line(
        "stop",
        "position",
        f"{said}: the weights were not trained with this config.json's, or the "
        f"overrides', values; {best[1]} fits better",
    )


def _variants(spec: ModelSpec) -> dict[str, ModelSpec]:
    """Returns the model with RoPE bases and windows that people take for one another."""
    ours = spec.global_rope_theta, spec.local_rope_theta
    published = DEFAULT_THETA[FULL], DEFAULT_THETA[SLIDING]
    thetas = dict.fromkeys((published, ours[::-1], (ours[0], ours[0]), (ours[1], ours[1])))
    variants = {
        f"theta {a:g}/{b:g}": dataclasses.replace(spec, global_rope_theta=a, local_rope_theta=b)
        for a, b in thetas
        if (a, b) != ours
    }
    for window in (spec.local_attention // 2, spec.local_attention * 2):
        variants[f"window {window}"] = dataclasses.replace(spec, local_attention=window)
    return variants


def _transformers(source: str, rows: Rows, nll: np.ndarray) -> Line:
    """The same targets by Hugging Face's model of the same files, each document alone."""
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("convert")):
        return Line("ok", "transformers", "not compared: it needs torch, and a checkout")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "rows.npz"
        targets = rows.targets
        np.savez(
            file,
            input_ids=np.asarray(targets.input_ids),
            segment_ids=rows.segment_ids,
            positions=np.asarray(targets.positions),
            labels=np.asarray(targets.labels),
        )
        command = [sys.executable, "-m", "convert", "loss", str(hub.resolve(source)), str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return Line("warn", "transformers", f"not compared: {done.stderr.strip()[-300:]}")
    theirs = json.loads(done.stdout.splitlines()[-1])["loss"]
    text = f"held-out MLM {theirs:.4f} nats by transformers, {nll.mean():.4f} here"
    if abs(theirs - nll.mean()) > SAME_LOSS:
        return Line("stop", "transformers", f"{text}: another model than the files describe")
    return Line("ok", "transformers", text)
