"""What a preflight catches before a run is paid for, on a model that was really trained."""

import copy
import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_run

from cpt_jax import config as config_lib
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import open_source
from cpt_jax.model import modernbert, ranges
from cpt_jax.model.spec import SIZES
from cpt_jax.preflight import model, plan
from cpt_jax.training import start as start_lib
from cpt_jax.training.plan import plan_run

LENGTH = 512  # of rows: documents reach beyond the window of 64 tokens a side


@pytest.fixture(scope="module")
def notes(shared, tmp_path_factory):
    """Texts on medicine, prepared for the trained model; half of them held out."""
    root = tmp_path_factory.mktemp("notes")
    with (shared / "data" / "en_bio" / "medquad.jsonl").open() as lines:
        text = "".join(line for line, _ in zip(lines, range(200), strict=False))
    (root / "notes.jsonl").write_text(text)
    return root


def corpus(root, name, shared, **options):
    out = root / name
    if not out.exists():
        options = {"seq_len": LENGTH, "heldout_fraction": 0.5} | options
        prepare([str(root / "notes.jsonl")], shared / "models" / "mini-base", out, **options)
    return out


def trained(shared, path, init=None, **overrides):
    """The quick detour of the trained model on a corpus, and its start."""
    made = importlib.import_module("configs.cpt").get_config("quick")
    made.data.seq_len = LENGTH
    made.data.sources[0].path = str(path)
    made.init.source = str(init or shared / "models" / "mini-base")
    made.model.overrides = overrides
    run = config_lib.parse(made)
    return run, start_lib.prepare_start(run, path / "no-run")


def measured(run, start):
    """Parameters, rows and losses as the checks of the model take them."""
    params = {k: jnp.asarray(v) for k, v in start_lib.initial_params(run, start.spec).items()}
    rows = model._rows(run, start)
    return params, rows, model._nll(start.spec, params, rows)


def edited(shared, tmp_path, **fields):
    """The trained model with other values in its config.json, as a careless copy has them."""
    shutil.copytree(shared / "models" / "mini-base", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.chmod(0o644)
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return tmp_path / "model"


def swapped(theta, other):
    bases = {"full_attention": theta, "sliding_attention": other}
    return {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        }
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "better"),
    [
        ({}, None),
        (swapped(10000.0, 160000.0), "theta 160000/10000"),
        ({"local_attention": 256}, "window 128"),
    ],
    ids=["as trained", "theta swapped", "window doubled"],
)
def test_positions_the_weights_were_not_trained_with(shared, notes, tmp_path, fields, better):
    run, start = trained(shared, corpus(notes, "a", shared), edited(shared, tmp_path, **fields))
    params, rows, nll = measured(run, start)
    line = model._alternatives(start.spec, params, rows, nll)
    print(line)
    if better is None:
        assert line.level == "ok"
    else:
        assert line.level == "stop"
        assert f"{better} fits better" in line.text


def test_another_tokenizer_of_the_same_size(shared, notes):
    """Ids that mean other words: the loss is worse than that of the words' frequencies."""
    run, start = trained(shared, corpus(notes, "a", shared))
    params, rows, nll = measured(run, start)
    line = model._loss(nll, rows)
    print(line)
    assert line.level == "ok"
    words = np.arange(start.spec.vocab_size)
    words[5:] = np.random.default_rng(0).permutation(words[5:])
    other = dict(params)
    for name in ("model.embeddings.tok_embeddings.embedding", "decoder.bias"):
        other[name] = params[name][words]
    line = model._loss(model._nll(start.spec, other, rows), rows)
    assert line.level == "stop"
    assert "another tokenizer" in line.text


@pytest.mark.slow
def test_documents_that_see_each_other(shared, notes, monkeypatch):
    run, start = trained(shared, corpus(notes, "a", shared))
    params = {k: jnp.asarray(v) for k, v in start_lib.initial_params(run, start.spec).items()}
    row = model._fullest_row(run, start)
    assert model._packing(start.spec, params, *row).level == "ok"
    key_ranges = ranges.key_ranges

    def leaking(segment_ids, *args, **kwargs):
        return key_ranges(jnp.minimum(segment_ids, 1), *args, **kwargs)

    for module in (ranges, modernbert):
        if hasattr(module, "key_ranges"):
            monkeypatch.setattr(module, "key_ranges", leaking)
    line = model._packing(start.spec, params, *row)
    assert line.level == "stop"
    assert "documents see each other" in line.text


def plan_lines(run, start, workdir=None):
    plans = plan_run(run, start.train, start.origin)
    return plan.check_plan(run, start, plans, workdir), plans


def line_of(lines, check):
    return next(line for line in lines if line.check == check)


@pytest.mark.parametrize(
    ("template", "level"), [("[CLS] text [SEP]", "ok"), ("text [SEP]", "stop")]
)
def test_a_template_that_is_not_the_tokenizers(shared, notes, template, level):
    path = corpus(notes, template.replace("[", "").replace("]", ""), shared, template=template)
    lines, _ = plan_lines(*trained(shared, path))
    assert line_of(lines, "template").level == level


@pytest.mark.torch
@pytest.mark.slow
def test_transformers_reads_the_same_files(shared, notes, monkeypatch):
    """Equal as they are; with an override, the files and the run are two models."""
    monkeypatch.setitem(model.TOKENS, "cpu", 4 * LENGTH)
    for overrides, level in (({}, "ok"), ({"global_rope_theta": 100.0}, "stop")):
        run, start = trained(shared, corpus(notes, "a", shared), **overrides)
        _, rows, nll = measured(run, start)
        line = model._transformers(run.init.source, rows, nll)
        assert line.level == level, line
        warned = [line.level for line in plan._overrides(run, start)]
        assert warned == (["warn"] if overrides else [])


# --- the plan, on a corpus of the tests' own


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpora")
    tiny_run.corpus(root, "a", 60, seed=1)
    tiny_run.corpus(root, "b", 20, seed=2)
    return root


def planned(root, change=lambda raw: None, workdir=None):
    raw = copy.deepcopy(tiny_run.raw_config(root))
    change(raw)
    run = config_lib.parse(raw)
    start = start_lib.prepare_start(run, root / "no-run")
    return *plan_lines(run, start, workdir), (run, start)


def test_epochs_are_what_the_run_reads(root):
    """Against the rows themselves: tokens drawn of each source over the tokens it has."""
    lines, plans, _ = planned(root)
    drawn = {"a": 0, "b": 0}
    for each in plans:
        for batch in each.batches(each.first_step, host=0, hosts=1, threads=1, prefetch=1):
            for row, source in zip(batch["segment_ids"], batch["sources"], strict=True):
                drawn["ab"[source]] += int((row > 0).sum())
    said = [line.text for line in lines if line.check == "epochs"]
    for name, text in zip("ab", said, strict=True):
        tokens = open_source(root / name).manifest["splits"]["train"]["tokens"]
        assert text.startswith(f"{name}: ")
        # The last row of a pass is short, and is drawn or not: a row is 5 % of the small source.
        assert float(text.split()[1]) == pytest.approx(drawn[name] / tokens, rel=0.06)
    assert {line.level for line in lines} == {"ok", "warn"}  # warn: a decay of four steps


def test_a_phase_that_trains_nothing(root):
    lines, *_ = planned(root, lambda raw: raw["phases"][0].update(freeze=["**"]))
    first = next(line for line in lines if line.check == "steps")
    assert first.level == "warn"
    assert first.text.endswith("it trains nothing")


def test_a_source_repeated_fifty_times(root):
    def often(raw):
        raw["phases"][0]["tokens"] = 50 * open_source(root / "b").tokens
        raw["data"]["sources"][0]["weight"] = 0.01

    lines, *_ = planned(root, often)
    a, b = (line for line in lines if line.check == "epochs")
    assert a.level == "ok"
    assert b.level == "stop"
    assert "beyond 40 another epoch adds nothing" in b.text
    assert "most repeated documents: " in b.text


def test_a_tokenizer_that_pads_and_cuts(root, tmp_path):
    """The template is what the tokenizer adds to a text, not what it fills a batch with."""
    paths = [shutil.copytree(root / name, tmp_path / name) for name in "ab"]
    content = json.loads((paths[0] / "tokenizer.json").read_text())
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}

    def prepared_with(text):
        for path in paths:
            (path / "tokenizer.json").write_text(text)
            manifest = json.loads((path / "manifest.json").read_text())
            manifest["tokenizer"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
            (path / "manifest.json").write_text(json.dumps(manifest))

    def moved(raw):
        for source, path in zip(raw["data"]["sources"], paths, strict=True):
            source["path"] = str(path)

    prepared_with(json.dumps(content | {"truncation": cut, "padding": pad}))
    lines, *_ = planned(root, moved)
    assert line_of(lines, "template").level == "ok"
    prepared_with("{")
    with pytest.raises(ValueError, match=r"a/tokenizer.json: not readable as a tokenizer: "):
        planned(root, moved)


def test_disk_and_memory(root, tmp_path, monkeypatch):
    lines, *_ = planned(root, workdir=tmp_path / "run")
    assert line_of(lines, "disk").level == line_of(lines, "memory").level == "ok"
    free = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: free)

    def large(raw):
        raw["phases"][1] |= {"batch_size": 1 << 26, "tokens": 1 << 31}

    lines, *_ = planned(root, large, tmp_path / "run")
    assert line_of(lines, "disk").level == "stop"
    assert line_of(lines, "memory").level == "warn"  # an estimate
    assert "microbatches" in line_of(lines, "memory").text
    monkeypatch.setattr(plan.os, "sysconf", lambda name: 100)  # 10 kB in all
    lines, *_ = planned(root, workdir=tmp_path / "run")
    assert line_of(lines, "memory").level == "stop"


@pytest.mark.parametrize(
    ("axes", "held"),
    [({}, 2.03), ({"fsdp": 8}, 0.74), ({"fsdp": 2, "tensor": 2}, 0.92), ({"tensor": 4}, 0.92)],
)
def test_memory_is_that_of_a_device(root, axes, held):
    """Large on eight devices, GiB by hand.

    4 bytes of 395.8 million numbers over fsdp x tensor and 12 over all three axes, and 16 of the
    0.1 million that are whole everywhere.
    """
    _, plans, (run, start) = planned(root, lambda raw: raw.update(mesh=axes))
    large = dataclasses.replace(start, spec=SIZES["large"])
    line = plan._memory(run, large, plans)
    assert f" {held:.2f} of it parameters, gradients and moments" in line.text


def test_targets_a_row(root):
    _, _, opened = planned(root)
    clm, mlm = model._counts(*opened)
    assert (clm.level, mlm.level) == ("ok", "ok")
    assert clm.text.startswith("clm: ")


def test_an_objective_that_predicts_too_few_is_stopped(root, monkeypatch):
    _, _, opened = planned(root)
    right = model.phase_targets

    def half(phase, batch, vocabulary, key):
        targets = right(phase, batch, vocabulary, key)
        labels = targets.labels.at[:, : targets.labels.shape[1] // 2].set(model.IGNORE)
        return targets._replace(labels=labels)

    monkeypatch.setattr(model, "phase_targets", half)
    lines = model._counts(*opened)
    assert [line.level for line in lines] == ["stop", "stop"]
    assert all("were expected" in line.text for line in lines)


@pytest.mark.slow
def test_the_command_says_all_and_writes_nothing(root, tmp_path, repo):
    (tmp_path / "run.py").write_text(
        f"import sys\nsys.path.insert(0, {str(repo / 'tests')!r})\n"
        "import tiny_run, pathlib\n"
        "from cpt_jax import config\n"
        "def get_config():\n"
        f"    raw = tiny_run.raw_config(pathlib.Path({str(root)!r}))\n"
        "    return config.to_config_dict(config.parse(raw))\n"
    )
    command = [sys.executable, "-m", "cpt_jax.preflight", "--config=run.py", "--workdir=run"]
    command.append("--config.phases[0].tokens=9000000")
    environment = os.environ | {"PYTHONPATH": str(repo)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line.split(maxsplit=2)[:2] for line in done.stdout.splitlines()]
    assert lines == [
        *(["ok", "resume"], ["ok", "steps"], ["warn", "steps"], ["stop", "epochs"]),
        *(
            ["stop", "epochs"],
            ["ok", "template"],
            ["ok", "disk"],
            ["ok", "attention"],
            ["ok", "memory"],
            ["ok", "hours"],
        ),
        *(["ok", "targets"], ["ok", "targets"], ["ok", "packing"], ["ok", "loss"]),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["run.py"],
        ["__pycache__", "run.py"],
    )
