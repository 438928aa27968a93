"""A task from disk: files found, splits made, examples checked; and what all declarations keep."""

import dataclasses
import re
from pathlib import Path

import datasets
import pytest
from tiny_tasks import BLUE, CONLL, GAD, HOC, record, write

from cpt_jax.finetune.examples import KINDS, SPLITS, Annotated, Cut, Span, Task, Text, Words
from cpt_jax.finetune.metrics import check_metric
from cpt_jax.finetune.tasks import TASKS, find
from cpt_jax.finetune.tasks.loading import cut_of, entry, load

NAMES = ("train.tsv", "devel.tsv", "test.tsv")


def ncbi(folder: Path, **changed: str) -> Task:
    """NCBI-disease, each split the same small file unless it is changed."""
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(changed.get(name.split(".")[0], CONLL))
    return TASKS["ncbi_disease"]


def test_a_task_is_found_by_either_name_of_its_folder_and_deeper(tmp_path):
    for number, folder in enumerate(
        ("NCBI-disease-IOB", "en/NCBI-disease", "a/b/NCBI-disease-IOB")
    ):
        task = ncbi(tmp_path / str(number) / folder)
        loaded = load(task, tmp_path / str(number))
        assert (loaded.task, loaded.labels) == (task, ("Disease",))
        assert {split: len(examples) for split, examples in loaded.splits.items()} == {
            "train": 2,
            "dev": 2,
            "test": 2,
        }
        assert list(loaded.splits) == list(SPLITS)
        for split, name in zip(SPLITS, NAMES, strict=True):
            assert (
                loaded.splits[split][0].where == str(tmp_path / str(number) / folder / name) + ":3"
            )


def test_splits_may_lie_in_two_folders_of_the_name(tmp_path):
    task = ncbi(tmp_path / "open" / "NCBI-disease-IOB")
    other = tmp_path / "restricted" / "NCBI-disease-IOB"
    other.mkdir(parents=True)
    (tmp_path / "open" / "NCBI-disease-IOB" / "train.tsv").rename(other / "train.tsv")
    assert load(task, tmp_path).splits["train"][0].where == f"{other}/train.tsv:3"


def test_what_a_mac_adds_to_an_archive_is_passed_over(tmp_path):
    folder = tmp_path / "deidentifiedmedicaltext" / "1.0"
    folder.mkdir(parents=True)
    for name in ("id.text", "id.res"):
        text = "".join(record(f"note {number}", f"{number}||||1") for number in range(10))
        (folder / name).write_text(text)
    junk = tmp_path / "deidentifiedmedicaltext" / "__MACOSX" / "1.0"
    junk.mkdir(parents=True)
    for path in (junk / "id.text", folder / "._id.text"):
        path.write_bytes(b"\0\5\x16\7")
    splits = load(TASKS["deid"], tmp_path).splits
    assert {split: len(examples) for split, examples in splits.items()} == {
        "train": 7,
        "dev": 1,
        "test": 2,
    }
    again = folder / "copy"
    again.mkdir()
    (again / "id.res").write_text("x")
    with pytest.raises(ValueError, match=r"where id\.text and id\.res are read"):
        load(TASKS["deid"], tmp_path)


def test_what_is_not_there_is_told_with_where_to_get_it(tmp_path):
    task = ncbi(tmp_path / "elsewhere")
    get = f"get it from {task.source} (CC BY 4.0"
    absent = f"ncbi_disease: no folder NCBI-disease-IOB or NCBI-disease under {tmp_path}; {get}"
    with pytest.raises(FileNotFoundError, match=re.escape(absent)):
        load(task, tmp_path)
    assert entry(task, tmp_path)[1:3] == (False, None)
    assert absent in str(entry(task, tmp_path).fault)
    folder = (tmp_path / "elsewhere").rename(tmp_path / "NCBI-disease")
    (folder / "devel.tsv").unlink()
    with pytest.raises(
        FileNotFoundError, match=re.escape(f"no devel.tsv (dev) in {folder}; {get}")
    ):
        load(task, tmp_path)
    (folder / "devel.tsv").write_text("-DOCSTART-\tO\n\n")
    with pytest.raises(ValueError, match=re.escape(f"{folder}/devel.tsv: no example of ncbi_dis")):
        load(task, tmp_path)


def test_entry_counts(tmp_path):
    task = ncbi(tmp_path / "NCBI-disease", train=CONLL + "\nMore\tO\n")
    assert entry(task, tmp_path) == (task, True, {"train": 3, "dev": 2, "test": 2}, None)


def test_an_unknown_label_is_told_with_its_line(tmp_path):
    folder = tmp_path / "NCBI-disease"
    task = ncbi(folder, devel=CONLL.replace("Disease", "Disaese"))
    message = f"{folder}/devel.tsv:3: devel.tsv:3: label 'Disaese' is none of Disease"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(task, tmp_path)
    assert entry(task, tmp_path) == (task, True, None, f"{message}")
    # Without declared labels they are those of the training split.
    with pytest.raises(ValueError, match=re.escape(message)):
        load(dataclasses.replace(task, labels=None), tmp_path)


def test_texts_in_two_splits_and_labels_in_none_are_warnings(tmp_path):
    task = ncbi(tmp_path / "NCBI-disease", test="Other\tO\n\nNone\tO\n")
    assert load(task, tmp_path).warnings == (
        "ncbi_disease: 2 of 2 texts of dev are in train too",
        "ncbi_disease: 1 of 2 texts of test are in train too",
        "ncbi_disease: 1 of 2 texts of test are in dev too",
        "ncbi_disease: no Disease in test",
    )


def test_ids_are_unique_in_a_split(tmp_path):
    folder = tmp_path / "GAD"
    folder.mkdir()
    for split in SPLITS:
        write(folder, **{f"{split}__tsv": GAD})
    assert len(load(TASKS["gad"], tmp_path).splits["dev"]) == 2
    (folder / "test.tsv").write_text(GAD.replace("\n1\ta", "\n0\ta"))
    message = f"{folder}/test.tsv:3: id '0' again; it was at {folder}/test.tsv:2"
    with pytest.raises(ValueError, match=re.escape(message)):
        load(TASKS["gad"], tmp_path)


def task_of(kind, *examples) -> Task:
    """A task whose every split is these examples."""
    return Task(
        name="own",
        title="Own",
        language="",
        kind=kind,
        read=lambda files, split: list(examples),
        files=dict.fromkeys(SPLITS, ("*",)),
        folder=(".",),
        labels=("A", "B"),
        metric="macro_f1",
        settings=TASKS["gad"].settings,
        source="nowhere",
        licence="none",
    )


@pytest.mark.parametrize(
    ("kind", "example", "message"),
    [
        (
            "classification",
            Text("1", "x", ()),
            "1: 0 labels; a task of kind classification needs one",
        ),
        ("relation", Text("1", "x", ("A",)), "1: a relation needs its text's two markers"),
        ("multilabel", Text("1", " ", ("A",)), "1: empty text"),
        ("multilabel", Text("1", "x", ("A", "C")), "1: label 'C' is none of A, B"),
        (
            "tagging",
            Text("1", "x", ("A",)),
            "1: Text in a task of kind tagging; allowed: Words or Annotated",
        ),
        ("spans", Words("1", ("x",), ("O",)), "1: Words in a task of kind spans"),
        ("multilabel", Annotated("1", "x", ()), "1: Annotated in a task of kind multilabel"),
        ("tagging", Words("1", ("x", ""), ("O", "O")), "1: word 1 is empty"),
        ("tagging", Words("1", ("x",), ("O", "O")), "1: 1 words with 2 tags"),
        ("spans", Annotated("1", "xy", (Span(1, 3, "A"),)), "1: A at 1-3 of a text of 2"),
        ("spans", Annotated("1", "xy", (Span(1, 1, "A"),)), "1: A at 1-1 of a text of 2"),
        (
            *("tagging", Annotated("1", "xyz", (Span(0, 2, "A"), Span(1, 3, "B")))),
            "1: B at 1-3 overlaps another entity",
        ),
    ],
)
def test_an_example_must_be_what_the_kind_asks_for(tmp_path, kind, example, message):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=re.escape(f"own, train: {message}")):
        load(task_of(kind, example), tmp_path)


def test_nested_entities_are_sound_where_they_may_nest(tmp_path):
    (tmp_path / "file").touch()
    example = Annotated("1", "xyz", (Span(0, 3, "A"), Span(0, 3, "B"), Span(1, 3, "B")))
    assert load(task_of("spans", example), tmp_path).splits["test"] == [example]


@pytest.mark.parametrize("share", [0.125, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("size", [5, 40, 1009])
def test_a_cut_is_that_of_datasets(size, share):
    examples = [Text(str(number), "x", ("A",)) for number in range(size)]
    ours = cut_of(examples, Cut("train", "test", share, seed=7))
    theirs = datasets.Dataset.from_dict({"id": [example.id for example in examples]})
    split = theirs.train_test_split(test_size=share, seed=7)
    stays, goes = ([example.id for example in part] for part in ours)
    assert (stays, goes) == (split["train"]["id"][:], split["test"]["id"][:])


def test_a_cut_is_that_of_scikit_learn():
    """The example of its documentation: train_test_split(range(5), test_size=0.33, random_state=42)
    gives [2, 0, 3] and [1, 4]."""
    examples = [Text(str(number), "x", ("A",)) for number in range(5)]
    stays, goes = cut_of(examples, Cut("train", "test", 0.33, generator="mt19937"))
    assert [example.id for example in stays] == ["2", "0", "3"]
    assert [example.id for example in goes] == ["1", "4"]


def test_cuts_follow_one_another(tmp_path):
    (tmp_path / "file").touch()
    examples = [Text(str(number), f"x{number}", ("A",)) for number in range(40)]
    cuts = (Cut("train", "dev", 0.3), Cut("dev", "test", 0.5))
    task = dataclasses.replace(
        task_of("classification", *examples), files={"train": ("*",)}, cuts=cuts
    )
    splits = load(task, tmp_path).splits
    assert {split: len(found) for split, found in splits.items()} == {
        "train": 28,
        "dev": 6,
        "test": 6,
    }
    ids = [example.id for found in splits.values() for example in found]
    assert sorted(ids) == sorted(example.id for example in examples)


def test_names_are_found_and_the_nearest_told():
    assert find("bc5cdr") is TASKS["bc5cdr"]
    with pytest.raises(ValueError, match="'ncbi': no such task; the nearest are ncbi_disease, "):
        find("ncbi")


def test_the_english_columns_of_the_paper_are_all_there():
    columns = [task.paper for task in TASKS.values() if task.language == "en" and task.paper]
    assert columns == [
        *("ChemProt", "Phenotype", "COS", "SocialHistory", "DEID", "AnatEM", "BC5CDR", "JNLPBA"),
        *("NCBI", "GAD", "HoC"),
    ]


@pytest.mark.parametrize("name", TASKS)
def test_declarations_hold_together(name):
    task = TASKS[name]
    assert task.name == name
    assert task.kind in KINDS
    check_metric(task.metric, task.kind)
    assert task.source
    assert task.licence
    assert task.labels is None or len(set(task.labels)) == len(task.labels)
    splits = set(task.files)
    for cut in task.cuts:
        assert cut.source in splits
        assert cut.into not in splits
        splits.add(cut.into)
    assert splits == set(SPLITS)
    assert (task.settings.epochs is None) != (task.settings.steps is None)


def test_declared_names_are_each_there_once():
    from cpt_jax.finetune.tasks import english, french, others

    assert len(TASKS) == len(english.TASKS) + len(french.TASKS) + len(others.TASKS)


@pytest.mark.parametrize(("name", "text"), [("hoc", HOC), ("chemprot", BLUE)])
def test_a_declaration_reads_its_layout(tmp_path, name, text):
    folder = tmp_path / TASKS[name].folder[0]
    folder.mkdir()
    for split in SPLITS:
        write(folder, **{f"{split}__tsv": text})
    assert [len(examples) for examples in load(TASKS[name], tmp_path).splits.values()] == [2, 2, 2]
