"""The bridge: one fine-tuning in transformers and torch and one here, compared loss by loss.

A model that `hub.save` wrote is read by both sides; transformers' head begins with the values that
our seed draws; both see the same rows in the same order, padded there to the longest of a batch
and here to the task's lengths. That side has nothing of ours: transformers' model, its own loss,
its schedule, its Trainer's choice of what decays, torch's AdamW and clipping.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import pytest
import tiny_run
import torch
import transformers

from cpt_jax.finetune import fit, run
from cpt_jax.finetune.batches import Shapes, TrainingOrder
from cpt_jax.finetune.encode import Encoded, encode, open_vocabulary
from cpt_jax.finetune.examples import Kind, Settings, Split, Task, Text, Words
from cpt_jax.finetune.rows import Row
from cpt_jax.finetune.tasks.loading import Loaded
from cpt_jax.model import hub
from cpt_jax.seeds import hash_seed
from tests.model_oracle import TINY, noisy_params, relative

pytestmark = pytest.mark.torch

# fp32, summed in another order: the first loss agrees to its last digit, then each step of Adam,
# which divides gradients by their own size, adds some rounding: 6e-6 after ten where measured.
BOUND = 3e-5
SEEN = 1e-3  # by how much at least each of `CHANGES` moves a loss
SEED, STEPS, MULTIPLE = 3, 10, 32
RATE, HEAD_RATE, DECAY, CLIP_NORM = 2e-3, 1e-2, 0.3, 0.5
WARMUP, WARMUP_STEPS = 0.15, 2  # one and a half steps of ten are two, as in the Trainer
SETTINGS = Settings(
    learning_rate=RATE,
    head_learning_rate=HEAD_RATE,
    batch=4,
    epochs=None,
    steps=STEPS,
    evaluations=1,
    warmup=WARMUP,
    weight_decay=DECAY,
    clip_norm=CLIP_NORM,
)
SPEC = dataclasses.replace(
    TINY,
    vocab_size=len(tiny_run.SPECIAL + tiny_run.WORDS),
    num_hidden_layers=2,
    layer_types=("full_attention", "sliding_attention"),
)
MODELS = {
    "classification": transformers.ModernBertForSequenceClassification,
    "tagging": transformers.ModernBertForTokenClassification,
}


class Bridge(NamedTuple):
    """What both sides are given."""

    model: Path
    kind: Kind
    loaded: Loaded
    encoded: dict[Split, Encoded]
    network: Any
    order: TrainingOrder

    @property
    def rows(self) -> dict[Split, list[Row]]:
        return {split: encoded.rows for split, encoded in self.encoded.items()}


def examples(kind: Kind, count: int, seed: int) -> list[Any]:
    """Texts of 3 to 40 words; some words have a tag or decide on the label."""
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        numbers = rng.integers(0, 120, rng.integers(3, 41))
        words = tuple(tiny_run.WORDS[number] for number in numbers)
        tags = tuple("B-x" if number % 5 == 0 else "O" for number in numbers)
        label = ("few", "some", "many")[min((numbers % 5 == 0).sum() // 3, 2)]
        found.append(
            Words(str(i), words, tags)
            if kind == "tagging"
            else Text(str(i), " ".join(words), (label,))
        )
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model of random weights, exported with its tokenizer."""
    root = tmp_path_factory.mktemp("bridge")
    tokenizer = tiny_run.tokenizer(root / "tokenizer")
    hub.save(root / "model", SPEC, noisy_params(SPEC.param_shapes()), tokenizer_dir=tokenizer)
    return root / "model"


@functools.cache
def bridge(model: Path, kind: Kind) -> Bridge:
    labels = ("x",) if kind == "tagging" else ("few", "some", "many")
    metric = "entity_f1" if kind == "tagging" else "accuracy"
    task = Task("bridge", "", "", kind, lambda *_: [], {}, (), labels, metric, SETTINGS, "", "")
    counts: dict[Split, int] = {"train": 18, "dev": 4, "test": 6}  # an epoch's last batch is short
    splits = {split: examples(kind, count, seed=count) for split, count in counts.items()}
    loaded = Loaded(task, labels, cast(Any, splits), ())
    vocabulary = open_vocabulary(model)
    encoded: dict[Split, Encoded] = {
        split: encode(loaded.splits[split], vocabulary, kind, labels, SETTINGS) for split in counts
    }
    network = run.network_of(str(model), loaded, SPEC, encoded["train"])
    rows = [row for one in encoded.values() for row in one.rows]
    shapes = Shapes(rows, SETTINGS.batch, multiple=MULTIPLE)
    assert len(shapes.lengths) > 1
    order = TrainingOrder("bridge", encoded["train"].rows, shapes)
    return Bridge(model, kind, loaded, encoded, network, order)


def ours(given: Bridge) -> fit.Result:
    """As `run.run` trains."""
    (result,) = fit.fit(
        "bridge",
        given.network,
        given.rows,
        SETTINGS,
        [SEED],
        lambda predicted: {"metric": 0.0},
        metric="metric",
        multiple=MULTIPLE,
        devices=jax.devices()[:1],
    )
    return result


def inputs(given: Bridge, rows: list[Row]) -> dict[str, torch.Tensor]:
    """The model's arguments for some rows, as transformers' collators make them."""
    longest = max(len(row.input_ids) for row in rows)
    ids, labels = (np.full((len(rows), longest), fill) for fill in (SPEC.pad_token_id, -100))
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        size = len(row.input_ids)
        ids[i, :size], mask[i, :size] = row.input_ids, 1
        if given.kind == "tagging":
            tags = row.targets["labels"]
            labels[i, :size] = np.where(tags < 0, -100, tags)
    if given.kind == "classification":
        labels = np.array([row.targets["label"] for row in rows])
    arrays = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.tensor(array, dtype=torch.int64) for name, array in arrays.items()}


def model_of(given: Bridge) -> Any:
    """transformers' model of the directory, with the head that our seed draws."""
    found = MODELS[given.kind].from_pretrained(given.model, num_labels=3)
    key = jax.random.key(hash_seed(SEED, "head"))
    drawn = given.network.initial(given.network.pretrained, key)
    with torch.no_grad():
        for name, path in (("weight", "classifier.kernel"), ("bias", "classifier.bias")):
            found.get_parameter(f"classifier.{name}").copy_(torch.tensor(np.asarray(drawn[path]).T))
    return found


def groups_of(model: Any) -> list[dict[str, Any]]:
    """Each parameter with its rate and decay; what decays is the Trainer's choice."""
    decayed = set(transformers.Trainer.get_decay_parameter_names(cast(Any, None), model))
    return [
        {
            "params": [parameter],
            "lr": HEAD_RATE if name.startswith("classifier.") else RATE,
            "weight_decay": DECAY if name in decayed else 0.0,
        }
        for name, parameter in model.named_parameters()
    ]


def theirs(
    given: Bridge, *, warmup: int = WARMUP_STEPS, clip_norm: float = CLIP_NORM, **of_groups: Any
) -> tuple[np.ndarray, Any]:
    """The losses of the steps, and the model after them; `of_groups`: of AdamW, for all groups."""
    model = model_of(given).train()
    optimizer = torch.optim.AdamW([group | of_groups for group in groups_of(model)])
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, STEPS)
    losses = []
    for step in range(STEPS):
        rows = [given.rows["train"][i] for i in given.order.rows(SEED, step)]
        loss = model(**inputs(given, rows)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return np.array(losses), model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_losses_are_transformers_step_by_step(model, kind):
    """And so is what the trained models predict of other rows."""
    given = bridge(model, kind)
    result, (losses, trained) = ours(given), theirs(given)
    np.testing.assert_allclose(result.losses, losses, rtol=BOUND)
    rows = given.rows["test"]
    with torch.no_grad():
        expected = trained(**inputs(given, rows)).logits.softmax(-1).numpy()
    for row, one, predicted in zip(rows, expected, result.predictions, strict=True):
        size = len(row.input_ids) if kind == "tagging" else None
        assert relative(predicted["probabilities"][:size], one[:size]) < BOUND


CHANGES: dict[str, dict[str, Any]] = {
    "no step": {"lr": 0.0},
    "one rate": {"lr": RATE},
    "no warmup": {"warmup": 0},
    "warmup rounded down": {"warmup": WARMUP_STEPS - 1},
    "no clipping": {"clip_norm": float("inf")},
    "no decay": {"weight_decay": 0.0},
    "decay of biases and norms": {"weight_decay": DECAY},
    "betas of pretraining": {"betas": (0.9, 0.98)},
}


def test_another_fine_tuning_would_be_seen(model):
    given = bridge(model, "tagging")
    losses, _ = theirs(given)
    moved = {
        name: np.abs(theirs(given, **change)[0] / losses - 1).max()
        for name, change in CHANGES.items()
    }
    assert min(moved.values()) > SEEN, moved
