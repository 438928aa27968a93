"""A run from its config to its export: phases over one state, resume, forks, refusals."""

import copy
import json
import shutil

import jax
import numpy as np
import pytest
import tiny_run

from cpt_jax import config as config_lib
from cpt_jax import provenance
from cpt_jax import twin as twin_check
from cpt_jax.checkpoint import Origin
from cpt_jax.data.sources import open_source
from cpt_jax.training import loop, plan


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpora")
    tiny_run.corpus(root, "a", 150, seed=1)
    tiny_run.corpus(root, "b", 40, seed=2)
    return root


@pytest.fixture(scope="module")
def raw(root):
    config = tiny_run.raw_config(root)
    config["checkpoint"]["every_steps"] = 1
    config["checkpoint"]["keep"] = 20
    return config


@pytest.fixture(scope="module")
def detour(raw, tmp_path_factory):
    return tiny_run.train(raw, tmp_path_factory.mktemp("runs") / "detour")


@pytest.fixture(scope="module")
def twin(raw, tmp_path_factory):
    return tiny_run.train(tiny_run.twin(raw), tmp_path_factory.mktemp("runs") / "twin")


def plans(raw) -> list[plan.PhasePlan]:
    config = config_lib.parse(raw)
    sources = {s.name: open_source(s.path) for s in config.data.sources}
    return plan.plan_run(config, sources, Origin())


def batches(plans: list[plan.PhasePlan]) -> list[dict[str, np.ndarray]]:
    return [
        batch
        for phase in plans
        for batch in phase.batches(phase.first_step, host=0, hosts=1, threads=2, prefetch=2)
    ]


def test_both_phases_learn_their_own_objective(root, tmp_path):
    """From scratch, CLM lowers the held-out CLM loss; the decay then lowers the MLM loss."""
    raw = tiny_run.raw_config(root, clm_steps=60, decay_steps=60)
    raw["checkpoint"]["every_steps"] = raw["evaluation"]["every_steps"] = 60
    run = tiny_run.train(raw, tmp_path / "run")
    lines = tiny_run.metrics(run, "eval")
    assert [(line["step"], line["source"]) for line in lines] == [
        (step, source) for step in (0, 60, 120) for source in ("a", "b")
    ]
    clm, mlm = (
        {
            step: np.mean([line[name] for line in lines if line["step"] == step])
            for step in (0, 60, 120)
        }
        for name in ("clm_loss", "mlm_loss")
    )
    assert clm[60] < clm[0] - 0.5
    assert mlm[120] < mlm[60] - 0.1


def test_moments_and_count_cross_the_boundary(detour):
    """One gradient must explain how both moments moved: only if both were carried can it."""
    before, after = tiny_run.state(detour, 6), tiny_run.state(detour, 7)
    counts = [[v for k, v in s.items() if "count" in k] for s in (before, after)]
    assert counts == [[6], [7]]
    checked = 0
    for name in before:
        if "'mu'" not in name:
            continue
        mu = (after[name] - 0.9 * before[name]) / (1 - 0.9)
        nu_name = name.replace("'mu'", "'nu'")
        nu = (after[nu_name] - 0.98 * before[nu_name]) / (1 - 0.98)
        scale = max(np.abs(nu).max(), 1e-12)
        # float32 cancellation in both differences: 1e-4 of the largest square
        np.testing.assert_allclose(mu**2 / scale, nu / scale, atol=1e-4)
        checked += 1
    assert checked == len([name for name in before if "params" in name])


def test_learning_rates_are_exact(detour):
    """Rates of the steps by hand: warmup over two steps, constant; then 1 - sqrt to a tenth."""
    rates = [line["lr"] for line in tiny_run.metrics(detour, "train")]
    decay = [0.001 + 0.009 * (1 - (k / 4) ** 0.5) for k in range(4)]
    expected = [0.0, 0.005, 0.01, 0.01, 0.01, 0.01, *decay]
    np.testing.assert_allclose(rates, expected, rtol=2e-6)  # float32
    assert rates[0] == 0.0
    assert rates[6] == np.float32(0.01)


def test_update_norm_is_continuous_with_kept_moments_alone(raw, detour, tmp_path):
    """Across the boundary the update keeps its size; with fresh moments it jumps."""
    norms = [line["update_norm"] for line in tiny_run.metrics(detour, "train")]
    assert 0.5 < norms[6] / norms[5] < 1.5
    fresh = copy.deepcopy(raw)
    fresh["phases"] = raw["phases"][1:]
    fresh["init"] = {"source": f"{detour}@clm"}
    fresh["model"] |= {"size": None}
    reset = tiny_run.metrics(tiny_run.train(fresh, tmp_path / "fresh"), "train")[0]["update_norm"]
    # Adam's first step from nothing is lr * sign(g): as large as a step can be.
    assert reset > 1.5 * norms[6]


def test_twins_see_the_same_rows_in_the_same_order(raw, detour, twin):
    rows = [[line["rows"] for line in tiny_run.metrics(run, "train")] for run in (detour, twin)]
    assert rows[0] == rows[1]
    assert len(set(rows[0])) == 10
    verdict = twin_check.compare(detour, twin)
    assert (verdict.faults, verdict.compared) == ((), 10)
    assert [line.split(":")[0] for line in verdict.declared] == [
        f"config.phases.0.{field}" for field in ("mask_rate", "name", "objective")
    ]
    for ours, theirs in zip(batches(plans(raw)), batches(plans(tiny_run.twin(raw))), strict=True):
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


def test_a_changed_mixture_and_batch_repeat_and_skip_nothing(raw):
    """Every source is read in one unbroken order, whatever changes at the boundary."""
    changed = copy.deepcopy(raw)
    changed["phases"][1] |= {"batch_size": 8, "mixture": {"a": 0.2, "b": 0.8}}
    changed["phases"][1]["tokens"] *= 4
    straight = copy.deepcopy(raw)
    straight["phases"][0]["tokens"] = 100 * tiny_run.STEP
    drawn, reference = ({0: [], 1: []} for _ in range(2))
    for into, config in ((drawn, changed), (reference, straight)):
        for batch in batches(plans(config)):
            for source, row in zip(batch["sources"], batch["rows"], strict=True):
                into[int(source)].append(int(row))
    for source in (0, 1):
        taken = len(drawn[source])
        assert taken > 10
        assert drawn[source] == reference[source][:taken]


def test_every_stop_resumes_with_the_batch_it_would_have_had(raw):
    """Stopped at every step of 1..50, across the boundary and several epochs of both sources."""
    longer = copy.deepcopy(raw)
    longer["phases"][0]["tokens"] = 30 * tiny_run.STEP
    longer["phases"][1]["tokens"] = 25 * tiny_run.STEP
    phases = plans(longer)
    straight = batches(phases)
    epochs = phases[1].mixture.epochs_after(25 * tiny_run.BATCH)
    assert min(epochs.values()) > 1  # ends of epochs of both sources lie on the way
    for step in range(1, 51):
        phase = next(p for p in plans(longer) if step < p.stop_step)
        rest = phase.batches(step, host=0, hosts=1, threads=1, prefetch=1)
        for expected in straight[step : step + 2]:
            if step == phase.stop_step:
                break
            resumed = next(rest)
            assert all(np.array_equal(resumed[key], expected[key]) for key in expected)
            step += 1


def test_a_resumed_run_ends_bit_identical(raw, detour, tmp_path, capfd):
    """Broken off in phase 1, asked to stop between two saves of the decay, resumed each time."""
    workdir = tmp_path / "run"

    def break_off(step: int) -> bool:
        if step == 3:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        tiny_run.train(raw, workdir, stop=break_off)
    assert tiny_run.last_step(workdir) == 2
    rarer = copy.deepcopy(raw)
    rarer["checkpoint"]["every_steps"] = 5
    with pytest.raises(loop.Stopped, match="at step 8 of 10 and saved"):
        tiny_run.train(rarer, workdir, stop=lambda step: step == 8)
    assert tiny_run.last_step(workdir) == 8
    assert "resuming at step 2 (phase clm)" in capfd.readouterr().err
    tiny_run.train(rarer, workdir)
    assert "resuming at step 8 (phase decay)\ncompiling phase decay\n" in capfd.readouterr().err
    assert tiny_run.metrics(workdir) == tiny_run.metrics(detour)
    ours, straight = tiny_run.state(workdir, 10), tiny_run.state(detour, 10)
    assert ours.keys() == straight.keys()
    for name in straight:
        np.testing.assert_array_equal(ours[name], straight[name])
    assert not (workdir / "run.lock").exists()


def test_a_fork_with_its_optimizer_state_is_the_run_itself(raw, detour, tmp_path):
    """A decay forked from the end of phase 1 is bit-identical to the run's own decay."""
    fork = copy.deepcopy(raw)
    fork["phases"] = raw["phases"][1:]
    fork["init"] = {"source": f"{detour}@clm", "state": "params+opt_state"}
    fork["model"] |= {"size": None}
    run = tiny_run.train(fork, tmp_path / "fork")
    ours, own = tiny_run.state(run, 4), tiny_run.state(detour, 10)
    for name in own:
        np.testing.assert_array_equal(ours[name], own[name])
    (start,) = provenance.read_starts(run)
    assert (start["init"]["run"], start["init"]["step"]) == (str(detour), 6)
    tokens = [line["tokens"] for line in tiny_run.metrics(run, "train")]
    assert tokens == [line["tokens"] for line in tiny_run.metrics(detour, "train")[6:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["data"].update(shuffle_seed=7), "shuffle_seed: 7, and 42 in"),
        (lambda c: c["data"]["sources"][0].update(path=c["data"]["sources"][1]["path"]), "'a'"),
        (lambda c: c["init"].update(source="nowhere"), "expected RUN@STEP or RUN@PHASE"),
        (lambda c: c["init"].update(source=c["init"]["source"][:-3] + "cml"), "its phases: clm, "),
    ],
)
def test_a_fork_continues_only_the_same_data(raw, detour, tmp_path, change, message):
    fork = copy.deepcopy(raw)
    fork["phases"] = raw["phases"][1:]
    fork["init"] = {"source": f"{detour}@clm", "state": "params+opt_state"}
    fork["model"] |= {"size": None}
    change(fork)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tiny_run.train(fork, tmp_path / "fork")
    assert not (tmp_path / "fork").exists()


def test_freezing_in_a_phase(raw, detour, tmp_path):
    """Strict: frozen layers leave phase 1 as they entered it, while the others moved."""
    frozen = copy.deepcopy(raw)
    frozen["phases"][0] |= {"freeze": ["model.layers.0.**"], "freeze_mode": "strict"}
    run = tiny_run.train(frozen, tmp_path / "frozen")
    first, boundary, last = (tiny_run.state(run, step) for step in (1, 6, 10))
    layer = [name for name in first if "params" in name and "layers.0." in name]
    assert len(layer) == 5
    for name in layer:
        np.testing.assert_array_equal(first[name], boundary[name])
        assert not np.array_equal(boundary[name], last[name])  # freed in the decay
    moved = "['params']['model.layers.1.attn.Wo.kernel']"
    assert not np.array_equal(first[moved], boundary[moved])


def test_non_finite_updates_stop_the_run_with_the_last_finite_state(raw, tmp_path):
    """The parameters that survive are finite, and the message says what happened."""
    broken = copy.deepcopy(raw)
    broken["phases"][0]["learning_rate"] = {"kind": "linear", "peak": 1e38, "warmup_tokens": 256}
    broken["optimizer"] |= {"max_nonfinite_steps": 2, "weight_decay": 0.0}
    with pytest.raises(loop.NonFiniteError, match="the last 2 updates up to step"):
        tiny_run.train(broken, tmp_path / "run")
    lines = tiny_run.metrics(tmp_path / "run", "train")
    assert [line["finite"] for line in lines[-2:]] == [False, False]
    assert tiny_run.last_step(tmp_path / "run") < lines[-1]["step"]
    state = tiny_run.state(tmp_path / "run", tiny_run.last_step(tmp_path / "run"))
    assert all(np.isfinite(value).all() for value in state.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["phases"][0].update(batch_size=8), "phases.0.batch_size: 4 -> 8"),
        (lambda c: c["data"]["sources"][0].update(weight=0.5), "weight: 0.7 -> 0.5"),
        (lambda c: c.update(seed=3), "seed: 17 -> 3"),
    ],
)
def test_a_run_is_not_resumed_as_another(raw, detour, change, message):
    other = copy.deepcopy(raw)
    change(other)
    with pytest.raises(ValueError, match=f"(?s)holds another run.*{message}"):
        tiny_run.train(other, detour)


def test_a_run_may_be_resumed_with_other_logging(raw, detour):
    other = copy.deepcopy(raw)
    other["logging"]["every_steps"] = 3
    other["checkpoint"]["keep"] = 1
    other["data"]["reader_threads"] = 1
    tiny_run.train(other, detour)  # it is at its end: nothing more happens


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["data"].update(seq_len=64), "prepare it with --seq-len 64"),
        (
            lambda c: c["data"]["sources"][0].update(path="no/where"),
            "python -m cpt_jax.data.prepare",
        ),
        (lambda c: c["phases"][0].update(freeze=["model.layer.0.**"]), "match no parameter"),
        (lambda c: c["init"].update(source="no/such/model"), "no such file or directory, and not"),
        (lambda c: c["model"].update(size="huge"), "'huge' is neither base, large nor"),
        (lambda c: c["model"]["overrides"].update(hiden=3), "hiden"),
        (
            lambda c: c["evaluation"].update(batch_size=3),
            r"3 rows cannot be spread evenly over .* 2;",
        ),
        (lambda c: c["phases"][0].update(mask_mode=["causal"] * 5), "5 modes in mask_mode for 2"),
        (
            lambda c: c["model"]["overrides"].update(max_position_embeddings=16),
            "seq_len: 32 is more than the model's max_position_embeddings, 16",
        ),
        (
            lambda c: c["model"].update(attention="mosaic"),
            "config.model.attention: 'mosaic' cannot be used here: it needs a GPU",
        ),
        (
            lambda c: c["model"]["overrides"].update(attention_dropout=0.1),
            "set .*attention_dropout",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(raw, tmp_path, change, message):
    other = copy.deepcopy(raw)
    change(other)
    if other["init"]["source"] != "scratch":
        other["model"]["size"] = None
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tiny_run.train(other, tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()


def test_data_of_another_tokenizer_is_refused(raw, detour, tmp_path):
    """Same size and special tokens, other words: every embedding would mean another word."""
    shutil.copytree(detour / "export", tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["w0"], vocab["w1"] = vocab["w1"], vocab["w0"]
    file.write_text(json.dumps(tokenizer))
    other = copy.deepcopy(raw)
    other["init"] = {"source": str(tmp_path / "model")}
    other["model"]["size"] = None
    with pytest.raises(
        ValueError, match=r"another tokenizer .* 2 entries differ, such as 'w0', 'w1'"
    ):
        tiny_run.train(other, tmp_path / "run")
    file.write_text("{")
    with pytest.raises(ValueError, match=f"^{file}: not readable as a tokenizer: "):
        tiny_run.train(other, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_run_records(detour):
    written = json.loads((detour / "config.json").read_text())
    assert set(written) == {
        "config",
        "data",
        "corpora",
        "model",
        "origin",
        "id",
        "versions",
        "started",
    }
    assert written["versions"]["jax"] == jax.__version__
    start = provenance.read_starts(detour)[0]  # other tests have resumed it
    assert (start["step"], start["init"]) == (0, {"source": "scratch"})
    assert start["argv"]
    steps = [line["step"] for line in tiny_run.metrics(detour, "train")]
    assert steps == list(range(1, 11))
    assert {line["phase"] for line in tiny_run.metrics(detour, "train")} == {"clm", "decay"}
    # Nothing stops early with the smallest source: its passes are counted.
    last = tiny_run.metrics(detour, "train")[-1]
    assert last["epochs/a"] > 0
    assert last["epochs/b"] > 0
