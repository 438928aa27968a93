"""One task, one model, many seeds: from their names to result files."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from cpt_jax import memory, provenance
from cpt_jax.finetune import baselines, fit, metrics, predictions, results, significance
from cpt_jax.finetune.decode import EVEN, THRESHOLDS, Output, decode
from cpt_jax.finetune.encode import Encoded, Vocabulary, encode, open_vocabulary
from cpt_jax.finetune.examples import Split, Task
from cpt_jax.finetune.heads import make_head, positive_weights
from cpt_jax.finetune.network import Network
from cpt_jax.finetune.tags import tag_names
from cpt_jax.finetune.tasks.loading import Loaded, load
from cpt_jax.model import hub, modernbert
from cpt_jax.model.spec import ModelSpec
from cpt_jax.seeds import hash_seed

THRESHOLD = "threshold"  # beside a result's dev scores, where it was tuned


@dataclasses.dataclass(frozen=True)
class Ask:
    """What is to be run.

    Attributes:
      task: declared, its settings those to train with.
      model: a Hugging Face directory or repository, or a finished run of ours.
      data: the directory that holds the task's folder.
      seeds: no two alike.
      out: the model's directory of results.
      train_examples: of the training split only so many, drawn once for all seeds; None: all.
    """

    task: Task
    model: str
    data: Path
    seeds: tuple[int, ...]
    out: Path
    train_examples: int | None = None


def run(ask: Ask) -> Iterator[str]:
    """Trains with the seeds that have no result yet, writes each that comes, and tells of it.

    Beside ``seed-SEED.json`` lies ``seed-SEED.predictions.jsonl``, of the test split, without text.
    What was cut or changed of the data is told on standard error.

    Raises:
      ValueError, OSError: task, data, model or settings are at fault, or results that are there
        are of another model or of other settings, or none can be written: nothing is trained.
    """
    metrics.check_metric(ask.task.metric, ask.task.kind)
    spec, vocabulary = hub.load_spec(ask.model), open_vocabulary(hub.resolve(ask.model))
    loaded = sampled(load(ask.task, ask.data), ask.train_examples)
    about = _about(ask, loaded)
    results.check_model(ask.out, ask.model)
    seeds = [seed for seed in ask.seeds if not _is_done(ask, about, seed)]
    if seeds:
        (ask.out / ask.task.name).mkdir(parents=True, exist_ok=True)  # or it fails after training
        encoded = _encode(loaded, vocabulary)
        for one in _trained(ask, loaded, spec, vocabulary, encoded, seeds):
            if one.failure is None:
                yield _line(_write(ask, about, encoded["test"], one))
    yield _summary(ask, loaded)


def is_complete(ask: Ask) -> bool:
    """Whether every seed has a result."""
    return all(results.path_of(ask.out, ask.task.name, seed).exists() for seed in ask.seeds)


def _trained(
    ask: Ask,
    loaded: Loaded,
    spec: ModelSpec,
    vocabulary: Vocabulary,
    encoded: Mapping[Split, Encoded],
    seeds: Sequence[int],
) -> Iterator[fit.Result]:
    """What each seed comes to."""
    if jax.default_backend() == "cpu":
        memory.keep_freed()

    def score(predicted: Sequence[Any]) -> dict[str, float]:
        return dev_scores(ask.task, encoded["dev"], predicted)

    yield from fit.fit(
        ask.task.name,
        network_of(ask.model, loaded, spec, encoded["train"]),
        {split: e.rows for split, e in encoded.items()},
        ask.task.settings,
        seeds,
        score,
        metric=ask.task.metric,
        pad_id=vocabulary.pad,
    )


def dev_scores(task: Task, dev: Encoded, predicted: Sequence[Output]) -> dict[str, float]:
    """Metrics of the dev split; beside them, where it is tuned, the threshold that does best."""
    if not task.settings.tune_threshold:
        return metrics.score(decode(dev, predicted))
    found = [
        {**metrics.score(decode(dev, predicted, threshold)), THRESHOLD: threshold}
        for threshold in THRESHOLDS
    ]
    return max(found, key=lambda scores: scores[task.metric])


def sampled(loaded: Loaded, examples: int | None) -> Loaded:
    """The task with so many of its training examples, the same for a task's every model and seed.

    Raises: ValueError where there are not so many.
    """
    train = loaded.splits["train"]
    if examples is None:
        return loaded
    if not 0 < examples <= len(train):
        raise ValueError(f"{examples} training examples; {loaded.task.name} has {len(train)}")
    rng = np.random.default_rng(hash_seed(loaded.task.name, "examples"))
    order = rng.permutation(len(train))
    kept = [train[i] for i in sorted(order[:examples])]
    return loaded._replace(splits={**loaded.splits, "train": kept})


def baseline(loaded: Loaded) -> tuple[str, float]:
    """The best that needs no model, by its name, and its score on the test split."""
    task, splits = loaded.task, loaded.splits
    found = {}
    for name, (kinds, _) in baselines.BASELINES.items():
        if task.kind in kinds:
            answers = baselines.predict(
                name, task.kind, loaded.labels, splits["train"], splits["test"]
            )
            found[name] = metrics.score(answers)[task.metric]
    return max(found.items(), key=lambda item: item[1])


def _line(result: results.Result) -> str:
    return (
        f"{result.task}, seed {result.seed}: test {result.metric} {100 * result.score:.2f} %, best "
        f"after {result.best_step} of {result.steps} steps, {result.seconds:.0f} s"
    )


def _summary(ask: Ask, loaded: Loaded) -> str:
    """The seeds' mean, and what it has to be better than."""
    paths = [results.path_of(ask.out, ask.task.name, seed) for seed in ask.seeds]
    scores = [100 * results.read(path).score for path in paths if path.exists()]
    name, least = baseline(loaded)
    told = f"no seed of {len(paths)} came to a result"
    if scores:
        spread = " %"
        if len(scores) > 1:
            low, high = significance.t_interval(np.array(scores))
            spread = f" ± {np.std(scores, ddof=1):.2f} % (95 % interval {low:.2f} to {high:.2f})"
        told = f"{np.mean(scores):.2f}{spread} over {len(scores)} of {len(paths)} seeds"
    return f"{ask.task.name}: {ask.task.metric} {told}; baseline {name}: {100 * least:.2f} %"


def _encode(loaded: Loaded, vocabulary: Vocabulary) -> dict[Split, Encoded]:
    """The rows of the splits; tells what should be known of them."""
    task, found = loaded.task, {}
    for line in loaded.warnings:
        print(line, file=sys.stderr)
    for split, examples in loaded.splits.items():
        found[split] = encode(examples, vocabulary, task.kind, loaded.labels, task.settings)
        for line in found[split].counts.lines(task.settings.max_length):
            print(f"{task.name}, {split}: {line}", file=sys.stderr)
    return found


def network_of(model: str, loaded: Loaded, spec: ModelSpec, train: Encoded) -> Network:
    """Encoder and head, in bf16 on accelerators."""
    kind, settings = loaded.task.kind, loaded.task.settings
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    labels = len(tag_names(loaded.labels) if kind == "tagging" else loaded.labels)
    positive = None
    if kind == "multilabel" and settings.positive_weights:
        positive = positive_weights(np.stack([row.targets["labels"] for row in train.rows]))

    def make(rngs: nnx.Rngs) -> nnx.Module:
        return make_head(kind, spec, labels, settings, rngs=rngs, dtype=dtype, positive=positive)

    loaded_params = hub.load_params(model, spec, head_key=jax.random.key(0))
    params = jax.tree.map(jnp.asarray, loaded_params)
    return Network(modernbert.structure(spec, dtype=dtype), params, make)


def _about(ask: Ask, loaded: Loaded) -> dict[str, Any]:
    """What all seeds' results have in common."""
    train = len(loaded.splits["train"])
    return {
        "task": ask.task.name,
        "kind": ask.task.kind,
        "metric": ask.task.metric,
        "model": ask.model,
        "settings": {**dataclasses.asdict(ask.task.settings), "train_examples": train},
        "provenance": {
            "weights": provenance.describe_init(ask.model),
            "code": provenance.describe_code(),
        },
    }


def _is_done(ask: Ask, about: Mapping[str, Any], seed: int) -> bool:
    """Whether the result of a seed is there.

    Raises: ValueError if it is of another model, of other weights, or of other settings.
    """
    path = results.path_of(ask.out, ask.task.name, seed)
    if not path.exists():
        return False
    there = dataclasses.asdict(results.read(path))
    mine = json.loads(json.dumps(about))
    pairs = {name: (there[name], mine[name]) for name in ("metric", "model", "settings")}
    pairs["weights"] = (there["provenance"].get("weights"), mine["provenance"]["weights"])
    for name, (old, new) in pairs.items():
        if old != new:
            raise ValueError(
                f"{path}: there is a result of another {name}: {old}; now {new}. Give another --out"
            )
    return True


def _write(ask: Ask, about: Mapping[str, Any], test: Encoded, one: fit.Result) -> results.Result:
    answers = decode(test, one.predictions, one.dev.get(THRESHOLD, EVEN))
    file = results.path_of(ask.out, ask.task.name, one.seed).with_suffix(".predictions.jsonl")
    head = {"task": ask.task.name, "split": "test", "model": ask.model, "seed": one.seed}
    predictions.write(file, answers, {**head, **metrics.about(answers)})
    result = results.Result(
        **about,
        seed=one.seed,
        test=metrics.score(answers),
        dev=one.dev,
        best_step=one.best_step,
        steps=one.steps,
        seconds=one.seconds,
    )
    results.write(ask.out, result)
    return result
