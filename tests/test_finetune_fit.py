"""Training over seeds: together as alone, what is taken as the best, who stops, groups, devices."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cpt_jax.finetune.batches import Shapes, TrainingOrder
from cpt_jax.finetune.examples import Settings
from cpt_jax.finetune.fit import Group, evaluation_steps, fit
from cpt_jax.finetune.network import make_tx, rate
from cpt_jax.finetune.program import Programs
from tests.model_oracle import relative
from tests.tiny_tagging import SETTINGS, SPEC, Tagger, accuracy, network, splits

MULTIPLE = 32


def scored(rows, script=None):
    """The accuracy on the dev split or, if there is a script, what it says call by call."""
    told = iter(script or ())

    def score(predicted):
        value = accuracy(rows["dev"], predicted)
        return {"accuracy": next(told) if script else value}

    return score


def run(rows, settings, seeds, script=None, **options):
    score = options.pop("score", None) or scored(rows, script)
    made = options.pop("network", None) or network()
    options = {"metric": "accuracy", "multiple": MULTIPLE, "devices": jax.devices()[:1]} | options
    return list(fit("tiny", made, rows, settings, seeds, score, **options))


def after_20_steps(seeds, devices=1):
    """The state of each seed, from a program of all of them."""
    rows = splits()["train"]
    order = TrainingOrder("tiny", rows, Shapes(rows, SETTINGS.batch, multiple=MULTIPLE))
    programs = Programs(network(), SETTINGS, 40, len(seeds), jax.devices()[:devices])
    state = programs.start(seeds, [True] * len(seeds))
    keys = programs.keys(seeds, "dropout")
    losses = []
    for step in range(20):
        state, loss = programs.train(state, order.batch(seeds, step), keys, step)
        losses.append(np.asarray(loss))
    return jax.device_get(state), np.array(losses)


@pytest.fixture(scope="module")
def three():
    """Three seeds at once."""
    return after_20_steps([3, 4, 5])


def test_seeds_at_once_are_as_seeds_one_by_one(three):
    """Within 1e-5 of each array's largest value after 20 steps, dropout on, epsilon 1e-8.

    Adam divides each gradient by its own size: where one is all rounding, so is the step, and no
    element can be told closer than in relation to its array.
    """
    state, losses = three
    starts = network().pretrained
    for i, seed in enumerate([3, 4, 5]):
        alone, alone_losses = after_20_steps([seed])
        np.testing.assert_allclose(losses[:, i], alone_losses[:, 0], rtol=1e-5)
        for path, array in alone.params.items():
            assert relative(state.params[path][i], array[0]) < 1e-5, path
            if path in starts:  # and moved by more than that is
                assert relative(array[0], starts[path]) > 1e-4, path
        moments, expected = (jax.tree.leaves(s.opt_state) for s in (state, alone))
        for one, other in zip(moments, expected, strict=True):
            assert relative(one[i], other[0]) < 1e-4


def test_seeds_differ_in_all_that_they_draw(three):
    state, losses = three
    kernel = state.params["classifier.kernel"]
    first = jax.device_get(
        Programs(network(), SETTINGS, 40, 2, jax.devices()[:1]).start([3, 4], [True, True]).params
    )
    assert not np.allclose(first["classifier.kernel"][0], first["classifier.kernel"][1])
    for path in network().pretrained:  # and in nothing else at the start
        np.testing.assert_array_equal(first[path][0], first[path][1])
    assert len(np.unique(kernel[:, 0, 0])) == 3
    assert len(np.unique(losses[0])) == 3


def test_seeds_spread_over_devices_are_as_on_one(three):
    """Three seeds on three devices, no two together."""
    state, losses = three
    spread, spread_losses = after_20_steps([3, 4, 5], devices=3)
    np.testing.assert_allclose(losses, spread_losses, rtol=1e-5)
    for path, array in state.params.items():
        assert relative(spread.params[path], array) < 1e-5, path


def test_dropout_is_on_and_keyed_by_step():
    """The loss of one batch with unmoved parameters differs from key to key, and not without."""
    rows = splits()["train"]
    made = network()
    params = made.initial(made.pretrained, jax.random.key(0))
    batch = Shapes(rows, 4, multiple=MULTIPLE).collate(rows[:4], 64)
    with_keys = [float(made.loss(params, batch, jax.random.key(i))) for i in (0, 1)]
    without = [float(made.loss(params, batch, None)) for _ in (0, 1)]
    assert len({*with_keys, *without}) == 3


def test_the_heads_part_of_the_encoder_begins_with_the_encoders_values():
    made = network()
    params = made.initial(made.pretrained, jax.random.key(0))
    given = made.pretrained["head.dense.kernel"]
    np.testing.assert_array_equal(params["head.dense.kernel"], given)
    assert made.new == {"classifier.kernel", "classifier.bias"}
    assert "decoder.bias" not in params  # nothing trains it


def test_a_parameter_of_two_shapes_is_refused():
    class Wide(Tagger):
        def __init__(self, *, rngs):
            super().__init__(rngs=rngs)
            wide = dataclasses.replace(SPEC, hidden_size=48)
            self.head = type(self.head)(wide, rngs=rngs, dtype=jnp.float32)

    with pytest.raises(ValueError, match=r"head.dense.kernel: \[32, 32\] in the model, \[48, 48\]"):
        network(Wide)


def test_the_rate_by_hand():
    """Ten steps, a fifth of them warmup: transformers' linear schedule."""
    rates = [float(rate(step, 10, 0.2)) for step in range(10)]
    np.testing.assert_allclose(rates, [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert [float(rate(step, 2, 0.0)) for step in range(2)] == [1, 0.5]
    assert float(rate(0, 1, 0.01)) == 0  # a part of a step is a step, as in transformers


@pytest.mark.torch
def test_a_step_is_torchs_adamw_with_two_groups():
    """Clip, rates of both groups, decay of matrices alone; 12 steps under a schedule."""
    import torch

    made = network()
    settings = dataclasses.replace(SETTINGS, weight_decay=0.3, clip_norm=0.5)
    rng = np.random.default_rng(0)
    shapes = {
        "model.final_norm.scale": (6,),
        "head.dense.kernel": (6, 5),
        "classifier.kernel": (5, 3),
        "classifier.bias": (3,),
    }
    # Small, so that what they move by, some 1e-4, is not lost in fp32's digits.
    start = {path: 0.1 * rng.standard_normal(shape) for path, shape in shapes.items()}
    theirs = {path: torch.tensor(array, requires_grad=True) for path, array in start.items()}
    groups = [
        {
            "params": [parameter],
            "lr": 1e-3 if path.startswith("classifier") else 5e-5,
            "weight_decay": 0.3 if parameter.ndim > 1 else 0.0,
        }
        for path, parameter in theirs.items()
    ]
    adamw = torch.optim.AdamW(groups)
    peaks = [group["lr"] for group in groups]
    tx = make_tx(made, settings)
    ours: Any = {path: jnp.asarray(array, jnp.float32) for path, array in start.items()}
    state = tx.init(ours)
    for step in range(12):
        grads = {path: rng.standard_normal(shape) for path, shape in shapes.items()}
        share = float(rate(step, 12, 0.2))
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * share
        for path, parameter in theirs.items():
            parameter.grad = torch.tensor(grads[path])
        torch.nn.utils.clip_grad_norm_(theirs.values(), 0.5)
        adamw.step()
        as_fp32 = {path: jnp.asarray(array, jnp.float32) for path, array in grads.items()}
        updates: Any
        updates, state = tx.update(as_fp32, state, ours)
        ours = optax.apply_updates(ours, {path: -share * u for path, u in updates.items()})
    for path, parameter in theirs.items():
        moved = parameter.detach().numpy() - start[path]
        assert relative(np.asarray(ours[path], np.float64) - start[path], moved) < 2e-3, path


def test_when_the_dev_split_is_scored():
    assert evaluation_steps(Settings(epochs=3), 30, 10) == {10, 20, 30}
    assert evaluation_steps(Settings(epochs=None, steps=25), 25, 10) == {10, 20, 25}
    assert evaluation_steps(Settings(epochs=None, steps=4000, evaluations=8), 4000, 10) == set(
        range(500, 4001, 500)
    )
    assert evaluation_steps(Settings(evaluations=5), 2, 2) == {1, 2}


def test_training_learns_and_reports(capsys):
    """An end-to-end run, of which what comes out is said: accuracies far above a third."""
    rows = splits(train=60, longest=30)
    settings = dataclasses.replace(SETTINGS, epochs=12, learning_rate=3e-3, head_learning_rate=1e-2)
    results = run(rows, settings, [0, 1])
    assert [result.seed for result in results] == [0, 1]
    for result in results:
        assert result.failure is None
        assert result.steps == 12 * 15 == len(result.losses)
        assert accuracy(rows["test"], result.predictions) > 0.6
        assert result.dev == dict(result.evaluations)[result.best_step]
        assert len(result.evaluations) == 12
        assert result.losses[-15:].mean() < 0.8 * result.losses[:15].mean()
    said = capsys.readouterr().err
    assert "tiny, step 15: dev accuracy 0." in said
    assert "step 180/180  tiny, 2 seeds, losses " in said
    assert " tokens/s " in said


def test_the_best_parameters_are_those_of_the_best_evaluation():
    """With dev rows as test rows: what is predicted at the end is what was when dev was best.

    The second and the fourth time are equally good: the earlier is taken. Each seed has its own.
    """
    rows = splits(longest=30)
    rows["test"] = rows["dev"]
    script = [[0.1, 0.3], [0.5, 0.2], [0.4, 0.1], [0.5, 0.0]]
    seen = []

    def score(predicted):
        seen.append([p["probabilities"].copy() for p in predicted])
        turn, seed = divmod(len(seen) - 1, 2)
        return {"accuracy": script[turn][seed]}

    settings = dataclasses.replace(SETTINGS, learning_rate=1e-3, evaluations=4)
    results = run(rows, settings, [0, 1], score=score)
    assert [result.best_step for result in results] == [6, 3]
    for seed, turn in [(0, 1), (1, 0)]:
        expected = seen[2 * turn + seed]
        for row, one in zip(results[seed].predictions, expected, strict=True):
            np.testing.assert_array_equal(row["probabilities"], one)
        others = [seen[2 * other + seed] for other in range(4) if other != turn]
        assert all(np.abs(other[0] - expected[0]).max() > 1e-4 for other in others)


def test_a_seed_without_patience_stops_and_the_other_goes_on():
    rows = splits(longest=30)
    # seed 0: best at first, stopped after two more; seed 1 rises to the end
    script = [0.5, 0.1, 0.4, 0.2, 0.5, 0.3, 0.4, 0.5]
    settings = dataclasses.replace(SETTINGS, evaluations=4, patience=2)
    results = run(rows, settings, [0, 1], script=script)
    assert [(r.best_step, r.steps, len(r.evaluations)) for r in results] == [(3, 9, 3), (12, 12, 4)]
    assert [len(result.losses) for result in results] == [9, 12]
    # all stopped: the task is at its end
    script = [0.5, 0.5, 0.1, 0.1, 0.1, 0.1]
    results = run(rows, settings, [0, 1], script=script)
    assert [result.steps for result in results] == [9, 9]


def test_what_has_stopped_does_not_move():
    rows = splits()["train"]
    order = TrainingOrder("tiny", rows, Shapes(rows, 4, multiple=MULTIPLE))
    programs = Programs(network(), SETTINGS, 40, 2, jax.devices()[:1])
    state = programs.start([0, 1], [True, True])
    keys = programs.keys([0, 1], "dropout")
    for step in range(2):
        state, _ = programs.train(state, order.batch([0, 1], step), keys, step)
    before = jax.device_get(state)
    state = state._replace(active=programs.mask([True, False]))
    state = jax.device_get(programs.train(state, order.batch([0, 1], 2), keys, 2)[0])
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(state), strict=True)
    moved = [(not np.array_equal(a[0], b[0]), np.array_equal(a[1], b[1])) for a, b in pairs]
    assert sum(of_first for of_first, _ in moved) == len(moved) - 1  # all but `active`
    assert sum(of_second for _, of_second in moved) == len(moved) - 1


def test_a_seed_that_is_not_finite_stops_alone_and_by_name(capsys):
    """A row whose loss overflows comes to one seed in step 5, to the other after the last step."""

    class Fragile(Tagger):
        def loss(self, scores, batch):
            total, weight = super().loss(scores, batch)
            bad = ((batch["input_ids"] == 4).any(-1) * batch["weight"]).any()
            return total * jnp.where(bad, jnp.inf, 1.0), weight

    rows = splits()
    order = TrainingOrder("tiny", rows["train"], Shapes([*rows["train"]], 4, multiple=MULTIPLE))
    when = [{i: step for step in range(6) for i in order.rows(seed, step)} for seed in range(30)]
    other, place = next(
        (seed, i)
        for seed in range(1, 30)
        for i in range(22)
        if when[0].get(i) == 4 and when[seed].get(i) == 5
    )
    rows["train"][place].input_ids[0] = 4
    settings = dataclasses.replace(SETTINGS, epochs=None, steps=5, evaluations=2)
    failed, whole = run(rows, settings, [0, other], network=network(Fragile))
    assert failed.failure == "loss, gradient or update of step 5 is not finite: seed 0 is stopped"
    assert (failed.dev, failed.predictions, failed.steps) == ({}, [], 5)
    assert np.isfinite(failed.losses[:4]).all()
    assert f"tiny: {failed.failure}" in capsys.readouterr().err
    assert whole.failure is None
    assert accuracy(rows["test"], whole.predictions) > 0
    assert np.isfinite(whole.losses).all()


@pytest.mark.parametrize(("split", "said"), [("dev", "after step 2 are"), ("test", "of the test")])
def test_predictions_that_are_no_numbers_fail_their_seed_alone(split, said, monkeypatch, capsys):
    """Where the loss did not show it; what scores them would end all seeds' training."""
    predict = Group._predict

    def spoilt(group, params, of):
        found = predict(group, params, of)
        if of == split:
            found[0][3]["probabilities"] = np.full_like(found[0][3]["probabilities"], np.nan)
        return found

    monkeypatch.setattr(Group, "_predict", spoilt)
    settings = dataclasses.replace(SETTINGS, epochs=None, steps=2, evaluations=1)
    failed, whole = run(splits(longest=30), settings, [4, 5])
    assert failed.failure is not None
    assert said in failed.failure
    assert "seed 4" in failed.failure
    assert (failed.dev, failed.predictions) == ({}, [])
    assert f"tiny: {failed.failure}" in capsys.readouterr().err
    assert whole.failure is None
    assert len(whole.predictions) == 7


def test_groups_of_seeds_where_memory_is_short(monkeypatch, capsys):
    """Five seeds, room for two: three groups, the last of one seed, with the results of one."""
    rows = splits(longest=30)
    settings = dataclasses.replace(SETTINGS, epochs=1)
    together = run(rows, settings, [0, 1, 2, 3, 4])
    sizes = []

    def bytes_needed(self, training, predicting):
        sizes.append(self.seeds)
        return self.seeds * 2**30

    monkeypatch.setattr(Programs, "bytes_needed", bytes_needed)
    monkeypatch.setattr(Programs, "bytes_available", lambda self: int(2.5 * 2**30))
    grouped = run(rows, settings, [0, 1, 2, 3, 4])
    assert sizes == [5, 3, 2]
    assert [result.seed for result in grouped] == [0, 1, 2, 3, 4]
    for one, other in zip(together, grouped, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-5)
    said = capsys.readouterr().err
    assert "tiny: 5 seeds on a device need 5.0 GiB, and there are 2.5: half as many" in said


def test_more_seeds_than_devices_are_spread_evenly(monkeypatch):
    """Five over four devices are two on each of three: no longer than two on each of four."""
    made = []
    monkeypatch.setattr(Programs, "bytes_needed", lambda self, *_: made.append(self) or 0)
    rows = splits(longest=30)
    settings = dataclasses.replace(SETTINGS, epochs=1)
    results = run(rows, settings, [0, 1, 2, 3, 4], devices=jax.devices()[:4])
    assert [(p.seeds, p._mesh.devices.size) for p in made] == [(6, 3)]
    assert [result.seed for result in results] == [0, 1, 2, 3, 4]


def test_memory_is_reckoned_from_what_is_compiled():
    """At least the four copies of the parameters, more with more seeds, half as much on two."""
    rows = splits()["train"]
    shapes = Shapes(rows, 4, multiple=MULTIPLE)
    made, batch = network(), shapes.collate(rows[:4], 64)
    of_one = 4 * sum(array.size for array in made.pretrained.values())

    def needed(seeds, devices):
        programs = Programs(made, SETTINGS, 40, seeds, jax.devices()[:devices])
        assert (programs.bytes_available() or 0) > 2**20
        return programs.bytes_needed(batch, batch)

    one, four, spread = needed(1, 1), needed(4, 1), needed(4, 2)
    assert 4 * of_one < one < 20 * of_one + 2**24
    assert 3 * one < four < 5 * one
    assert 0.4 * four < spread < 0.6 * four


def test_what_cannot_be_meant_is_refused():
    rows = splits()
    both = dataclasses.replace(SETTINGS, steps=3)
    with pytest.raises(ValueError, match="tiny: epochs, steps: 2 and 3; one of them is None"):
        run(rows, both, [0])
    with pytest.raises(ValueError, match=r"tiny: a seed twice in \[0, 1, 0\]"):
        run(rows, SETTINGS, [0, 1, 0])
    with pytest.raises(ValueError, match="tiny: no row to train on"):
        run({**rows, "train": []}, SETTINGS, [0])
