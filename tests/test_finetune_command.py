"""The commands of fine-tuning, from files on disk to a comparison, on a model of two layers."""

import json
import os
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_run
from tiny_results import write_results

from cpt_jax.finetune import __main__ as command
from cpt_jax.finetune import run
from cpt_jax.finetune.__main__ import main
from cpt_jax.finetune.tasks import find
from cpt_jax.model import hub
from cpt_jax.model.modernbert import init_params
from cpt_jax.model.spec import SIZES

TASK = """name: words
kind: {kind}
format: {format}
files: {{train: train.tsv, dev: dev.tsv, test: test.tsv}}
folder: tasks/words
metric: {metric}
settings: {{epochs: 8, batch: 8, learning_rate: 0.01, max_length: 32, stride: 4}}
"""


def sentences(first: int, count: int) -> str:
    """Sentences of six words in which every w7 is an entity."""
    rng, lines = np.random.default_rng(first), []
    for i in range(count):
        words = [f"w{number}" for number in rng.integers(10, 120, 6)]
        tags = ["O"] * 6
        words[i % 6], tags[i % 6] = "w7", "B-seven"
        lines += [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)] + [""]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A model, and a task of one's own."""
    root = tmp_path_factory.mktemp("finetune")
    tokenizer = tiny_run.tokenizer(root / "tokenizer")
    words = {"vocab_size": len(tiny_run.SPECIAL + tiny_run.WORDS)}
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
    spec = SIZES["base"].override({**words, **special, **tiny_run.MODEL}, "model")
    params = init_params(spec, jax.random.key(3))
    for name in ("model", "other"):
        hub.save(root / name, spec, params, tokenizer_dir=tokenizer)
        params = {path: 1.01 * value for path, value in params.items()}
    folder = root / "tasks" / "words"
    folder.mkdir(parents=True)
    for split, (first, count) in {"train": (0, 40), "dev": (1, 12), "test": (2, 12)}.items():
        (folder / f"{split}.tsv").write_text(sentences(first, count))
    text = TASK.format(kind="tagging", format="conll", metric="entity_f1")
    (root / "words.yaml").write_text(text)
    return root


def train(root: Path, *more: str, model: str = "model", out: str = "scores") -> int:
    task = ("--task", str(root / "words.yaml"), "--data", str(root / "tasks"))
    return main([*task, "--model", str(root / model), "--out", str(root / out), *more])


@pytest.fixture(scope="module")
def trained(root) -> Path:
    """Two seeds of it."""
    assert train(root, "--seeds", "2") == 0
    return root


def read(file: Path) -> dict:
    return json.loads(file.read_text())


@pytest.mark.slow
def test_results_and_predictions_are_written(trained, capsys):
    """The file of predictions gives the same score, and holds no text."""
    for seed in range(2):
        file = trained / "scores" / "words" / f"seed-{seed}.json"
        result = read(file)
        assert result["test"]["entity_f1"] >= 0.9  # the word alone tells
        assert result["seed"] == seed
        assert result["steps"] == 8 * 5
        assert result["settings"]["learning_rate"] == 0.01
        assert result["settings"]["train_examples"] == 40
        assert re.fullmatch(r"\w{64}", result["provenance"]["weights"]["sha256"][hub.WEIGHTS])
        answers = file.with_suffix(".predictions.jsonl")
        assert main(["score", str(answers)]) == 0
        assert f"entity_f1: {100 * result['test']['entity_f1']:.2f} %" in capsys.readouterr().out
        assert len(answers.read_text().splitlines()) == 1 + 12
        assert "w7" not in answers.read_text()


@pytest.mark.slow
def test_what_is_there_is_not_trained_again(trained, capsys, monkeypatch):
    """A third seed is; the two before keep their files."""
    scores = trained / "scores" / "words"
    before = {seed: (scores / f"seed-{seed}.json").read_bytes() for seed in range(2)}
    assert train(trained, "--seeds", "3") == 0
    said = capsys.readouterr().out
    assert "seed 2: test entity_f1" in said
    assert "seed 0:" not in said
    assert "over 3 of 3 seeds; baseline dictionary: " in said
    assert before == {seed: (scores / f"seed-{seed}.json").read_bytes() for seed in range(2)}
    monkeypatch.setattr(run.fit, "fit", None)  # nothing left to train
    assert train(trained, "--seeds", "1,2") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "model", "said"),
    [
        (("--set", "epochs=1"), "model", "of another settings"),
        (("--train-examples", "20"), "model", "of another settings"),
        ((), "other", "of another model"),
    ],
)
def test_results_of_something_else_are_not_taken_for_ours(more, model, said, trained, capsys):
    assert train(trained, *more, model=model) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error
    assert "seed-0.json" in error


@pytest.mark.slow
def test_models_are_compared(trained, capsys):
    """Of two seeds each: a table with both, and the page."""
    assert train(trained, "--seeds", "2", model="other", out="others") == 0
    both = [str(trained / name) for name in ("scores", "others")]
    assert main(["compare", *both, "--out", str(trained / "verdict")]) == 0
    assert "words" in capsys.readouterr().out
    assert (trained / "verdict" / "compare.html").stat().st_size > 1000
    assert main(["power", *both, "--difference", "1"]) == 2  # of one task nothing can be said
    assert "1 tasks have two seeds or more in common" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "2", "--set", "epoch=3"), "settings.epoch: unknown field; did you mean"),
        (("--set", "epochs"), "--set epochs: not FIELD=VALUE"),
        (("--set", "batch=many"), "settings.batch: 'many' is a str, not a int"),
        (("--set", "batch=0"), "settings.batch: 0 is not 1 or more"),
        (("--set", "epochs=-1"), "settings.epochs: -1 is not 1 or more"),
        (("--set", "steps=0"), "settings.steps: 0 is not 1 or more"),
        (("--set", "evaluations=0"), "settings.evaluations: 0 is not 1 or more"),
        (("--set", "patience=0"), "settings.patience: 0 is not 1 or more"),
        (("--set", "learning_rate=-1e-3"), "settings.learning_rate: -0.001 is not a number above"),
        (("--set", "head_learning_rate=0"), "settings.head_learning_rate: 0.0 is not a number"),
        (("--set", "learning_rate=1e999"), "settings.learning_rate: inf is not a number above 0"),
        (("--set", "weight_decay=-1"), "settings.weight_decay: -1.0 is not a number from 0"),
        (("--set", "clip_norm=0"), "settings.clip_norm: 0.0 is not a number above 0"),
        (("--set", "warmup=2"), "settings.warmup: 2.0 is not a share, from 0 to 1"),
        (("--set", "dropout=1"), "settings.dropout: 1.0 is not from 0 to below 1"),
        (("--set", "stride=-1"), "settings.stride: -1 is not 0 or more"),
        (("--train-examples", "41"), "41 training examples; words has 40"),
        (("--train-examples", "0"), "0 training examples"),
    ],
)
def test_bad_arguments_are_refused(arguments, said, root, capsys):
    assert train(root, *arguments, out="none") == 2
    assert said in capsys.readouterr().err
    assert not (root / "none").exists()


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("3,", (3,)), ("0,3,7", (0, 3, 7)), ("0,", (0,))]
)
def test_seeds_are_a_number_or_a_list(text, seeds):
    assert command._seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "", ",", "1,1", "-1", "a", "1,,2", "1.5", "²"])
def test_other_seeds_are_refused(text, root, capsys):
    with pytest.raises(SystemExit, match="2"):
        train(root, "--seeds", text, out="none")
    assert f"argument --seeds: {text!r} is neither" in capsys.readouterr().err


def test_seeds_without_end_are_refused(root, capsys):
    with pytest.raises(SystemExit, match="2"):
        train(root, "--seeds", "1000000000000", out="none")
    assert "argument --seeds: 1000000000000: more seeds than 1,000" in capsys.readouterr().err


def test_an_out_that_cannot_hold_results_is_refused_before_training(root, capsys, monkeypatch):
    monkeypatch.setattr(run.fit, "fit", None)  # nothing is trained
    (root / "file").write_text("mine")
    for out in ("file", "file/within"):
        assert train(root, out=out) == 2
        assert f"{root}/file" in capsys.readouterr().err
    assert (root / "file").read_text() == "mine"


def test_a_directory_of_another_models_results_is_refused(root, capsys, monkeypatch):
    """Though they are of another task: `compare` could not tell whose they are."""
    monkeypatch.setattr(run.fit, "fit", None)
    write_results(root / "theirs", {"gad": [0.5]}, model="somebody/else")
    assert train(root, out="theirs") == 2
    error = capsys.readouterr().err
    assert f"{root}/theirs/gad/seed-0.json: there is a result of another model" in error
    assert "somebody/else" in error


def test_all_seeds_are_written_though_nobody_reads_of_them(root, monkeypatch):
    """`| head -1`: standard output is a pipe that is closed at its other end."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert train(root, "--seeds", "2", "-s", "epochs=1", out="unread") == 0
    assert len(list((root / "unread" / "words").glob("seed-*.json"))) == 2


def test_ctrl_c_says_what_is_kept(root, capsys, monkeypatch):
    def interrupted(ask):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", interrupted)
    assert train(root, out="none") == 130
    assert "interrupted; the seeds that were finished keep their results" in capsys.readouterr().err


def test_of_epochs_and_steps_the_given_one_counts():
    task = find("ncbi_disease")
    assert task.settings.steps is None
    changed = task.settings.changed({"steps": 100})
    assert (changed.steps, changed.epochs) == (100, None)
    assert task.settings.changed({"epochs": 3}).epochs == 3


def test_a_sample_of_the_training_split_is_the_same_each_time(root):
    task = find(str(root / "words.yaml"))
    loaded = run.load(task, root / "tasks")
    few, again, more = (run.sampled(loaded, n).splits["train"] for n in (10, 10, 20))
    assert few == again
    assert set(few) <= set(more) < set(loaded.splits["train"])
    assert run.sampled(loaded, 10).splits["test"] == loaded.splits["test"]


def test_the_tasks_are_listed(root, capsys):
    assert main(["list", "--data", str(root)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"ncbi_disease +NCBI-disease, tagging, entity_f1: not on disk", said)
    assert said.count("not on disk") == said.count("\n") // 2
