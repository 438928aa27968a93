"""One step against PyTorch, and against itself cut into pieces or spread over devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_hub
import torch
from torch.nn import functional

from cpt_jax import sharding
from cpt_jax.config import LearningRate, Optimizer, Phase
from cpt_jax.model import hub, modernbert
from cpt_jax.training import objectives, optim
from cpt_jax.training.step import State, batch_loss, compiler_options, make_train_step

LENGTHS = ((20, 13, 7), (31, 9), (40,), (3, 30, 4))  # documents of each row; the last has padding
LENGTH = 40
VOCABULARY = objectives.Vocabulary(size=120, mask_id=4, special_ids=(0, 1, 2, 3, 4))


def rows(lengths=LENGTHS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = np.zeros((len(lengths), LENGTH), np.int32)
    segments = np.zeros_like(ids)
    for row, documents in enumerate(lengths):
        at = 0
        for number, length in enumerate(documents, 1):
            ids[row, at : at + length] = [1, *rng.integers(5, 120, length - 2), 2]
            segments[row, at : at + length] = number
            at += length
    ordinals = np.arange(len(lengths), dtype=np.uint32)
    return {"input_ids": ids, "segment_ids": segments, "ordinals": ordinals}


@pytest.fixture(scope="module")
def reference():
    return tiny_hub.reference(num_hidden_layers=2)  # a global layer and a local one


@pytest.fixture(scope="module")
def model(reference, tmp_path_factory):
    """(spec, parameters) of the reference, read by the hub."""
    path = tiny_hub.write(
        tmp_path_factory.mktemp("model"), tiny_hub.v5(reference), tiny_hub.tensors(reference)
    )
    spec = hub.load_spec(path)
    return spec, {k: jnp.asarray(v) for k, v in hub.load_params(path, spec).items()}


def torch_gradients(reference, targets, segments, causal: bool) -> dict[str, np.ndarray]:
    """Gradient of the mean loss, each document run alone through transformers' model."""
    labels = np.full(segments.shape, -100, np.int64)
    if targets.positions is None:
        labels[:] = targets.labels
    else:
        for row, (positions, values) in enumerate(
            zip(targets.positions, targets.labels, strict=True)
        ):
            for position, value in zip(positions, values, strict=True):
                if value != -100:
                    labels[row, position] = value
    reference.zero_grad()
    total = torch.zeros(())
    for row in range(len(segments)):
        for document in sorted(set(segments[row]) - {0}):
            (where,) = np.nonzero(segments[row] == document)
            i = np.arange(len(where))
            distance = i[:, None] - i[None, :]
            full = distance >= 0 if causal else np.ones_like(distance, bool)
            window = np.abs(distance) <= reference.config.local_attention // 2
            masks = {
                "full_attention": torch.from_numpy(full)[None, None],
                "sliding_attention": torch.from_numpy(full & window)[None, None],
            }
            ids = torch.from_numpy(np.asarray(targets.input_ids)[row, where].astype(np.int64))
            logits = reference(input_ids=ids[None], attention_mask=masks).logits[0]
            expected = torch.from_numpy(labels[row, where])
            total = total + functional.cross_entropy(logits, expected, reduction="sum")
    (total / (labels != -100).sum()).backward()
    return {
        name: parameter.grad.numpy()
        for name, parameter in reference.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.torch
@pytest.mark.parametrize("objective", ["mlm", "clm"])
@pytest.mark.parametrize("remat", [False, True])
def test_gradients_against_pytorch(reference, model, objective, remat):
    """Packed rows here, documents alone there: every tensor within 1e-4 of its largest entry.

    fp32 sums in another order: documents alone there, packed rows and kernels in blocks here.
    """
    spec, params = model
    batch = {name: jnp.asarray(array) for name, array in rows().items()}
    if objective == "clm":
        targets = objectives.next_token(batch["input_ids"], batch["segment_ids"])
    else:
        key = jax.random.key(3)
        ids, segments, ordinals = (batch[k] for k in ("input_ids", "segment_ids", "ordinals"))
        targets = objectives.masked_token(
            ids, segments, ordinals, key, rate=0.3, vocabulary=VOCABULARY
        )
    mode = "causal" if objective == "clm" else "bidirectional"
    graphdef = modernbert.structure(spec, dtype=jnp.float32, remat=remat)

    def loss(params):
        sums = batch_loss(graphdef, params, targets, batch["segment_ids"], mode)
        return sums.nll / sums.count

    ours = jax.jit(jax.grad(loss), compiler_options=compiler_options())(params)
    theirs = torch_gradients(
        reference, targets, np.asarray(batch["segment_ids"]), objective == "clm"
    )
    assert len(theirs) == len(ours)
    errors = {}
    for path, gradient in ours.items():
        expected = theirs[hub.hf_name(path)]
        expected = expected.T if path.endswith(".kernel") else expected
        errors[path] = float(np.abs(gradient - expected).max() / np.abs(expected).max())
    worst = max(errors, key=lambda path: errors[path])
    print(objective, "largest relative error", errors[worst], "in", worst)
    assert errors[worst] < 1e-4, errors


def first_step(model, batch, *, objective, microbatches, devices):
    """Metrics and first moments (a tenth of the gradient) of one step."""
    spec, params = model
    phase = Phase(
        name="phase",
        objective=objective,
        mask_rate=0.3 if objective == "mlm" else None,
        tokens=10**6,
        batch_size=len(batch["ordinals"]),
        microbatches=microbatches,
        learning_rate=LearningRate("warmup_constant", 1e-3),
    )
    tx = optim.make_tx(Optimizer(weight_decay=0.0), 1e-3)
    step = make_train_step(
        modernbert.structure(spec),
        phase,
        tx,
        first_step=0,
        tokens_per_step=batch["input_ids"].size,
        vocabulary=VOCABULARY,
        frozen=frozenset(),
        seed=0,
    )
    mesh = sharding.make_mesh(jax.devices()[:devices])
    with jax.set_mesh(mesh):
        state = jax.device_put(
            State(jnp.int32(0), params, tx.init(params)), sharding.replicated(mesh)
        )
        step = jax.jit(step, compiler_options=compiler_options())
        new, metrics = step(state, sharding.place_batch(mesh, batch))
    return jax.device_get(metrics), jax.device_get(new.opt_state[1].mu)


@pytest.mark.parametrize(
    ("objective", "cuts"), [("mlm", [(4, 1), (1, 8)]), ("clm", [(2, 4)])], ids=["mlm", "clm"]
)
def test_pieces_and_devices_change_nothing(model, objective, cuts):
    """Uneven target counts in every piece: sums are added, no means averaged.

    fp32 sums in another order: within 1e-6 of each tensor's largest entry (9e-7 was seen) from
    fresh parameters; from ones scaled up like the reference's, whose entries cancel to a hundredth
    of their terms, 5e-6 was seen.
    """
    spec, _ = model
    model = spec, modernbert.init_params(spec, jax.random.key(0))
    batch = rows(((40,), (3, 4), (20, 20), (5,), (7, 7, 7), (2, 2), (39,), (11, 3)))
    whole, gradients = first_step(model, batch, objective=objective, microbatches=1, devices=1)
    assert whole["targets"] > 20
    for microbatches, devices in cuts:
        metrics, others = first_step(
            model, batch, objective=objective, microbatches=microbatches, devices=devices
        )
        assert metrics["targets"] == whole["targets"]
        assert metrics["loss"] == pytest.approx(whole["loss"], rel=1e-6)
        for path, gradient in gradients.items():
            assert np.abs(others[path] - gradient).max() < 1e-6 * np.abs(gradient).max(), path


def test_a_batch_without_targets_changes_nothing(model):
    """All padding: loss 0, gradients exactly 0, no NaN."""
    batch = rows()
    batch["segment_ids"] = np.zeros_like(batch["segment_ids"])
    for objective in ("mlm", "clm"):
        metrics, moments = first_step(model, batch, objective=objective, microbatches=1, devices=1)
        assert (metrics["loss"], metrics["targets"], metrics["grad_norm"]) == (0, 0, 0)
        assert metrics["finite"]
        assert all((moment == 0).all() for moment in moments.values())
