"""Tasks that a file declares."""

import dataclasses
import re
from pathlib import Path

import pytest
from tiny_tasks import CONLL, write

from cpt_jax.finetune.examples import Cut, Settings, Text
from cpt_jax.finetune.tasks import TASKS, custom, find
from cpt_jax.finetune.tasks.loading import load

WARDS = """
name: wards
kind: classification
format: jsonl
options: {text: note, label: ward}
folder: data
files:
  train: [a-*.jsonl, b.jsonl]
  test: test.jsonl
cuts: [{source: train, into: dev, share: 0.5}]
settings: {learning_rate: 3e-5, epochs: 5, max_length: 1024}
"""


def declared(folder: Path, text: str = WARDS) -> Path:
    path = folder / "wards.yaml"
    path.write_text(text)
    return path


def test_a_declared_task_is_read_from_beside_its_file(tmp_path):
    (tmp_path / "data").mkdir()
    note = '{{"note": "Note {0}", "ward": "{1}"}}\n'
    for name, wards in (("a-1", "AB"), ("a-2", "A"), ("b", "B"), ("test", "B")):
        lines = [note.format(f"{name} {n}", ward) for n, ward in enumerate(wards)]
        (tmp_path / "data" / f"{name}.jsonl").write_text("".join(lines))
    task = find(str(declared(tmp_path)))
    assert (task.name, task.title, task.metric) == ("wards", "wards", "macro_f1")
    assert task.settings == Settings(learning_rate=3e-5, epochs=5, max_length=1024)
    assert task.cuts == (Cut("train", "dev", 0.5),)
    loaded = load(task, "anywhere")
    assert loaded.labels == ("A", "B")
    sizes = {split: len(examples) for split, examples in loaded.splits.items()}
    assert sizes == {"train": 2, "dev": 2, "test": 1}
    where = f"{tmp_path}/data/test.jsonl:1"
    assert loaded.splits["test"] == [Text("test.jsonl:1", "Note test 0", ("B",), where=where)]


def test_a_declared_task_with_tags(tmp_path):
    text = """
name: own
kind: tagging
format: conll
options: {scheme: iob1, word: 0}
labels: [Disease]
files: {train: a.tsv, dev: a.tsv, test: a.tsv}
"""
    write(tmp_path, a__tsv=CONLL.replace("B-", "I-"))
    loaded = load(custom.read(declared(tmp_path, text)), tmp_path)
    assert loaded.task.metric == "entity_f1"
    assert [example.tags for example in loaded.splits["dev"]] == [  # type: ignore[union-attr]
        ("B-Disease", "I-Disease", "I-Disease", "O"),
        ("O",),
    ]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"wards\.yaml"):
        find(str(tmp_path / "wards.yaml"))
    (tmp_path / "data").mkdir()
    message = f"wards: no a-*.jsonl (train) in {tmp_path}/data; get it from its declaration"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        load(find(str(declared(tmp_path))), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("labels", "lables", None),
        ("kind: classification", "kind: tag", "kind: 'tag' is not one of 'classification', "),
        ("kind: classification", "", "wards.yaml.kind: missing"),
        ("folder: data", "foldr: data", "foldr: unknown field; did you mean wards.yaml.folder?"),
        (
            "learning_rate",
            "learnrate",
            "learnrate: unknown field; did you mean wards.yaml.settings.",
        ),
        ("3e-5", "fast", "learning_rate: 'fast' is a str, not a float"),
        ("3e-5", "0", "settings.learning_rate: 0.0 is not a number above 0"),
        ("epochs: 5", "epochs: 5, steps: 9", "settings.epochs, steps: 5 and 9; one of"),
        ("format: jsonl", "format: json", "format: 'json' is unknown; did you mean 'jsonl'?"),
        (
            "label: ward",
            "lable: ward",
            "options.lable: unknown field; did you mean wards.yaml.opti",
        ),
        (", label: ward", "", "wards.yaml.options.label: missing"),
        ("label: ward", "label: 3", "options.label: 3 is a int, not a str"),
        ("test: test", "tests: test", "files.tests: is not one of train, dev, test"),
        ("  test: test.jsonl", "", "files.test: missing; give files, or a cut into it"),
        ("into: dev", "into: test", "cuts[0]: from train into test, when there are train, test"),
        ("share: 0.5", "share: 5", "cuts[0].share: 5.0 is not between 0 and 1"),
        ("name: wards", "name: my wards", "name: 'my wards' names a folder; a letter or digit"),
        ("name: wards", "name: 3", "wards.yaml.name: 3 is a int, not a str"),
        (
            "name: wards",
            "metric: f1\nname: wards",
            "metric: 'f1' of a task of kind classification; allowed: macro_f1",
        ),
        ("folder: data", "name: twice", "'name' is there twice"),
        ("[{source", "[{{source", "not YAML: "),
        ("3e-5", ".inf", "settings.learning_rate: inf is not a number above 0"),
        ("epochs: 5", "batch: 0", "settings.batch: 0 is not 1 or more"),
        ("epochs: 5", "dropout: 1", "settings.dropout: 1.0 is not from 0 to below 1"),
        (WARDS, "- a\n", "not a mapping of fields to values"),
        (WARDS, "[" * 5000, "values within values, too deep to be read"),
        ("[a-*.jsonl, b.jsonl]", "[]", "files.train: no file"),
        ("[a-*.jsonl, b.jsonl]", "''", "files.train: '' is no path from `folder`"),
        ("[a-*.jsonl, b.jsonl]", "/a.jsonl", "files.train: '/a.jsonl' is no path from `folder`"),
        ("[a-*.jsonl, b.jsonl]", "'a**'", "files.train: 'a**': ** stands for whole folders"),
        ("test: test", "1: test", "files: its key: 1 is a int, not a str"),
        ("folder: data", "1: data", "wards.yaml.1: unknown field"),
        ("folder: data", "labels: [A, A]", "labels: ['A', 'A']: at least one, none empty, no two"),
        ("folder: data", "labels: []", "labels: []: at least one"),
        ("name: wards", "name: ..", "name: '..' names a folder"),
        ("name: wards", "licence: &a x\nsource: *a\nname: wards", "aliases (*name) are not read"),
        ("format: jsonl", "format: hoc", "options.text: hoc has none"),
    ],
)
def test_a_wrong_declaration_is_told(tmp_path, old, new, message):
    if message is None:
        text, message = (
            WARDS + "lables: [A]\n",
            "lables: unknown field; did you mean wards.yaml.labels?",
        )
    else:
        assert old in WARDS
        text = WARDS.replace(old, new)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        custom.read(declared(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path}/wards.yaml:")


def test_all_faults_are_told_at_once(tmp_path):
    text = WARDS.replace("jsonl\n", "json\n", 1).replace("share: 0.5", "share: 2")
    with pytest.raises(ValueError, match="did you mean 'jsonl'") as caught:
        custom.read(declared(tmp_path, text))
    assert len(str(caught.value).splitlines()) == 3


def test_the_page_says_what_there_is(repo, tmp_path):
    """docs/tasks.md: every task, format and field, and the example of a declaration."""
    page = (repo / "docs" / "tasks.md").read_text()
    named = set(re.findall(r"`([\w]+)`", page))
    assert set(TASKS) | set(custom.FORMATS) <= named
    declaration = {field.name for field in dataclasses.fields(custom.Declaration)}
    assert declaration - {"name", "format", "files", "options"} <= named
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert custom.read(declared(tmp_path, example)).name == "wards"


def test_the_page_has_every_setting_and_its_default(repo):
    page = (repo / "docs" / "finetune.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.M))
    for name, default in dataclasses.asdict(Settings()).items():
        shown = "none" if default is None else str(default)
        assert told[name] == shown or float(told[name]) == default, name
