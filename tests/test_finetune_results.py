"""Result files: whole or not at all; whatever is wrong with one is said with its name."""

import dataclasses
import json
import os

import pytest

from cpt_jax.finetune import results
from cpt_jax.finetune.results import read, read_directory, write
from tests.tiny_results import result


def test_what_is_written_is_read(tmp_path):
    ours = result(seed=3, provenance={"argv": ["é", 1]}, settings={"dropout": 0.4, "epochs": None})
    path = write(tmp_path / "new" / "out", ours)
    assert path == tmp_path / "new" / "out" / "ncbi" / "seed-3.json"
    assert os.listdir(path.parent) == ["seed-3.json"]
    assert read(path) == ours
    assert read(path).score == 0.8


def test_a_file_is_replaced_and_not_rewritten(tmp_path):
    """Who reads the old one while the new is written reads the old one to its end."""
    path = write(tmp_path, result(score=0.5))
    with path.open() as old:
        write(tmp_path, result(score=0.6))
        assert json.load(old)["test"] == {"f1": 0.5}
    assert read(path).score == 0.6


def test_a_fault_while_writing_leaves_the_file_before(tmp_path, monkeypatch):
    path = write(tmp_path, result(score=0.5))

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path, result(score=0.6))
    assert read(path).score == 0.5
    assert os.listdir(path.parent) == ["seed-0.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": {"f1": float("nan")}}, "NaN is no number of JSON"),
        ({"test": {"f1": 80.0}}, "result.test.f1: 80.0 is not between 0 and 1"),
        ({"test": {"accuracy": 0.8}}, "has no f1, which is the metric"),
        ({"task": "a/b"}, "no names for a folder and a file"),
        ({"task": ".."}, "no names for a folder and a file"),
        ({"seed": -1}, "no names for a folder and a file"),
        ({"seconds": -1.0}, "result.seconds: -1.0"),
    ],
)
def test_what_could_not_be_read_is_not_written(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path, dataclasses.replace(result(), **change))
    assert not any(tmp_path.rglob("*.json"))


def spoilt(change):
    tree = dataclasses.asdict(result())
    change(tree)
    return json.dumps(tree)


DAMAGED = {
    "empty": ("", "damaged: Expecting value"),
    "deep": ("[" * 100_000, "damaged: "),
    "cut": (json.dumps(dataclasses.asdict(result()))[:100], "damaged: "),
    "another": ('{"metrics": {"f1": 0.8}}', "no result of fine-tuning: result.metrics: unknown"),
    "a list": ("[1]", "no result of fine-tuning: result: .* is not a group of fields"),
    "a field missing": (spoilt(lambda t: t.pop("dev")), "result.dev: missing"),
    "a field too many": (
        spoilt(lambda t: t.update(sed=1)),
        r"result.sed: unknown .* result.seed\?",
    ),
    "a seed in words": (spoilt(lambda t: t.update(seed="0")), "result.seed: '0' is a str"),
    "a score in words": (
        spoilt(lambda t: t["test"].update(f1="8")),
        "result.test.f1: '8' is a str",
    ),
    "a score missing": (spoilt(lambda t: t["test"].update(f1=None)), "result.test.f1: None"),
    "another kind": (spoilt(lambda t: t.update(kind="parsing")), "'parsing' is not one of"),
    "another seed": (spoilt(lambda t: t.update(seed=1)), "holds seed 1 of ncbi, whose file is"),
    "another task": (spoilt(lambda t: t.update(task="gad")), "holds seed 0 of gad, whose file is"),
    "percent": (spoilt(lambda t: t["dev"].update(f1=81)), "result.dev.f1: 81.0 is not between"),
    "infinite": ('{"seconds": Infinity}', "Infinity is no number of JSON"),
    "a field twice": ('{"seed": 1, "seed": 2}', r"twice in one object: \['seed'\]"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_and_foreign_files_are_named(tmp_path, name):
    text, message = DAMAGED[name]
    path = results.path_of(tmp_path, "ncbi", 0)
    path.parent.mkdir()
    path.write_text(text)
    for reading in (lambda: read(path), lambda: read_directory(tmp_path)):
        with pytest.raises(ValueError, match=message) as caught:
            reading()
        assert str(path) in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    path = write(tmp_path, result())
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"seed-0.json: damaged: 'utf-8'"):
        read(path)


def test_a_directory_of_results(tmp_path):
    for task, seed in (("ncbi", 10), ("ncbi", 2), ("gad", 0)):
        write(tmp_path, result(task=task, seed=seed))
    (tmp_path / "log.txt").write_text("somebody else's")
    (tmp_path / "ncbi" / "predictions.json").write_text("[]")
    (tmp_path / "plots").mkdir()
    found = read_directory(tmp_path)
    assert found.model == "models/a"
    assert {task: list(seeds) for task, seeds in found.tasks.items()} == {
        "gad": [0],
        "ncbi": [2, 10],
    }


def test_a_seed_twice_under_two_names(tmp_path):
    path = write(tmp_path, result(seed=1))
    (path.parent / "seed-01.json").write_text(path.read_text())
    with pytest.raises(ValueError, match=r"seed-01.json: holds seed 1 of ncbi, whose file is"):
        read_directory(tmp_path)


def test_directories_that_hold_no_results(tmp_path):
    with pytest.raises(NotADirectoryError, match="nothing: no such directory"):
        read_directory(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"holds no results \(TASK/seed-SEED.json\)"):
        read_directory(tmp_path)
    write(tmp_path, result())
    with pytest.raises(ValueError, match="the results of one task; name the directory above"):
        read_directory(tmp_path / "ncbi")


def test_results_that_are_not_of_one_model_or_measure(tmp_path):
    for name, change, message in (
        ("model", {"model": "models/b"}, "the results of two models: .*seed-0.json of models/a"),
        (
            "metric",
            {"metric": "accuracy"},
            r"seed-1.json: metric accuracy, but f1 in .*seed-0.json",
        ),
        ("kind", {"kind": "spans"}, r"seed-1.json: kind spans, but tagging in .*seed-0.json"),
    ):
        out = tmp_path / name
        write(out, result())
        other = dataclasses.replace(result(seed=1), test={"f1": 0.8, "accuracy": 0.9}, **change)
        write(out, other)
        with pytest.raises(ValueError, match=message):
            read_directory(out)
