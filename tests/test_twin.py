"""The twin check on run directories written by hand: one true pair, and false ones of each kind."""

import copy
import json
import shutil

import pytest
import tiny_run

from cpt_jax import config, twin
from cpt_jax.telemetry import RunLog

STEPS = 10


def write_run(path, raw, *, data="d" * 64, start=5.0, stop=STEPS, rows=None, **first):
    """What a run of six and four steps leaves behind; ``rows`` replaces digests of some steps."""
    parsed = config.parse(raw)
    path.mkdir(parents=True)
    description = {
        "config": config.to_dict(parsed),
        "data": {"a": data, "b": "e" * 64},
        "model": {"hidden_size": 16},
        "origin": {"rows": 0, "tokens": 0, "cursors": {}},
        "versions": {"jax": "0.10.2"},
        "started": str(path),  # differs, and says nothing
    }
    (path / "config.json").write_text(json.dumps(description))
    line = {"code": {"commit": "c" * 40}, "init": {"source": "scratch"}} | first
    (path / "starts.jsonl").write_text(json.dumps(line) + "\n")
    with RunLog(path, tensorboard=False) as log:
        for source in ("a", "b"):
            log.write("eval", step=0, source=source, mlm_loss=start, clm_loss=start + 1)
        for step in range(1, stop + 1):
            digest = (rows or {}).get(step, f"{step:08x}")
            log.write("train", step=step, loss=5.0 - step, rows=digest)
            if step in (6, STEPS):
                log.write("phase", step=step, event="end")
    return path


@pytest.fixture
def raw(tmp_path):
    return tiny_run.raw_config(tmp_path)


def verdict(capsys, a, b, *flags):
    status = twin.main([str(a), str(b), *flags])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def test_a_true_pair(raw, tmp_path, capsys):
    a = write_run(tmp_path / "detour", raw)
    other = tiny_run.twin(raw) | {"name": "twin"}
    other["logging"] = {"every_steps": 1, "tensorboard": True}
    b = write_run(tmp_path / "mlm", other)
    status, said = verdict(capsys, a, b)
    assert status == 0
    assert "10 steps, 10 of them compared by digest" in said
    declared = said.split("differ as declared in\n")[1].split("\n")
    assert [line.split(":")[0].strip() for line in declared if line] == [
        "config.logging.tensorboard",
        "config.name",
        "config.phases.0.mask_rate",
        "config.phases.0.name",
        "config.phases.0.objective",
    ]


def put(raw, value, *keys):
    *parents, last = keys
    for key in parents:
        raw = raw[key]
    raw[last] = value


# What is done to the second run's config, how it is written, and what the check has to say.
FALSE = {
    "data": (None, {"data": "f" * 64}, "data.a: 'ddd"),
    "seed": ((3, "seed"), {}, "config.seed: 17 -> 3"),
    "order": ((7, "data", "shuffle_seed"), {}, "config.data.shuffle_seed: 42 -> 7"),
    "batch": ((8, "phases", 1, "batch_size"), {}, "config.phases.1.batch_size: 4 -> 8"),
    "weight": ((0.6, "data", "sources", 0, "weight"), {}, "sources.0.weight: 0.7 -> 0.6"),
    "tokens": ((512, "phases", 1, "tokens"), {"stop": 10}, "config.phases.1.tokens: 512 -> "),
    "rate": ((5e-3, "phases", 0, "learning_rate", "peak"), {}, "peak: 0.01 -> 0.005"),
    "decay": ((0.3, "phases", 1, "mask_rate"), {}, "config.phases.1.mask_rate: 0.15 -> 0.3"),
    "frozen": ((["**"], "phases", 0, "freeze"), {}, "config.phases.0.freeze.0: 'absent' -> '**'"),
    "parameters": (None, {"start": 5.1}, "other parameters: mlm loss on a before the first step"),
    "weights": (None, {"init": {"sha256": "0"}}, "init.sha256: 'absent' -> '0'"),
    "code": (None, {"code": {"commit": "b" * 40}}, "code.commit: 'ccc"),
    "a row": (None, {"rows": {7: "0badcafe"}}, "the rows of 1 of 10 steps differ, step 7"),
    "rows": (None, {"rows": {s: f"{s + 1:08x}" for s in range(1, 11)}}, "step 1 the first"),
    "cut short": (None, {"stop": 8}, "mlm was cut short: step 8 of 10"),
}


@pytest.mark.parametrize("kind", FALSE)
def test_false_pairs_are_named(raw, tmp_path, capsys, kind):
    change, written, message = FALSE[kind]
    a = write_run(tmp_path / "detour", raw)
    other = tiny_run.twin(raw)
    if change:
        put(other, *change)
    if kind == "tokens":
        a = write_run(tmp_path / "longer", raw)
        put(other, 3 * tiny_run.STEP, *change[1:])
    b = write_run(tmp_path / "mlm", other, **written)
    status, said = verdict(capsys, a, b)
    assert status == 1
    assert said.startswith("no twins")
    assert message in said.split("differ as declared")[0]


def test_more_may_be_declared(raw, tmp_path, capsys):
    other = tiny_run.twin(raw)
    other["phases"][0]["learning_rate"]["peak"] = 5e-3
    a, b = write_run(tmp_path / "a", raw), write_run(tmp_path / "b", other)
    pattern = "config.phases.0.learning_rate.*"
    status, said = verdict(capsys, a, b, "--allow", pattern)
    assert status == 0
    assert "peak: 0.01 -> 0.005" in said
    status, said = verdict(capsys, a, b, "--allow", "config.phases.0.learningrate.*")
    assert status == 2
    assert "neither run has such a field" in said


def test_what_is_no_run(raw, tmp_path, capsys):
    a = write_run(tmp_path / "a", raw)
    assert verdict(capsys, a, tmp_path / "none")[0] == 2
    (a / "metrics.jsonl").write_text("{\n{}\n")
    status, said = verdict(capsys, a, a)
    assert status == 2
    assert "metrics.jsonl:1: not a JSON object" in said


def test_a_run_is_no_twin_of_itself(raw, tmp_path, capsys):
    a = write_run(tmp_path / "a", raw)
    description = json.loads((a / "config.json").read_text())
    (a / "config.json").write_text(json.dumps(description | {"id": "1"}))
    shutil.copytree(a, tmp_path / "copy")
    for other in (a, tmp_path / "copy"):
        status, said = verdict(capsys, a, other)
        assert status == 1
        assert "are one run, or a copy of it" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"step": 3,', '"step": "3",', "metrics.jsonl:5: not a JSON object with a kind and a step"),
        ('"rows"', '"raws"', "no step was logged by both runs"),
        ('"source"', '"sauce"', "not those of the same sources"),
        ('"mlm_loss": 5.0', '"mlm_loss": "5"', "they start from other parameters"),
    ],
)
def test_damaged_metrics_are_told(raw, tmp_path, capsys, old, new, message):
    a, b = write_run(tmp_path / "a", raw), write_run(tmp_path / "b", tiny_run.twin(raw))
    metrics = (b / "metrics.jsonl").read_text()
    assert old in metrics
    (b / "metrics.jsonl").write_text(metrics.replace(old, new))
    status, said = verdict(capsys, a, b)
    assert status
    assert message in said


def test_a_pair_logged_at_other_steps(raw, tmp_path, capsys):
    """Digests are compared where both logged; where none is common, nothing is proven."""
    a = write_run(tmp_path / "a", raw)
    b = write_run(tmp_path / "b", copy.deepcopy(raw))
    lines = [json.loads(line) for line in (b / "metrics.jsonl").read_text().splitlines()]
    for keep, status in (({5, 10}, 0), (set(), 1)):
        kept = [x for x in lines if x["kind"] != "train" or x["step"] in keep]
        (b / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in kept))
        assert verdict(capsys, a, b)[0] == status
