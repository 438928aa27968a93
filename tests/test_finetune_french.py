"""The French tasks: declared as the paper has them, read from the layouts they are published in."""

import hashlib
import json
from pathlib import Path

import pytest

from cpt_jax.finetune.examples import Settings, Text
from cpt_jax.finetune.tasks import TASKS, coded, find, french, reading, records
from cpt_jax.finetune.tasks.loading import load

PAPER = ("fracco_30", "fracco_100", "cantemist", "distemist", "meddialog", "diamed")
# Documents of each split, by the rule's own words; see test_splits_follow_from_names.
TRAIN, DEV, TEST = ["n4", "n5", "n6", "n7"], ["n2"], ["n1"]


def test_declared_as_the_paper_has_them(shared):
    columns = json.loads((shared / "paper/reference_results.json").read_text())["french"]["tasks"]
    assert [task.paper for task in french.TASKS] == columns
    assert [task.title for task in french.TASKS] == columns
    assert [task.name for task in french.TASKS] == [*PAPER, "emea", "medline"]
    assert {task.language for task in french.TASKS} == {"fr"}


def test_settings_are_the_papers():
    """SPEC section 6, its three French rows."""
    cases = Settings(2e-5, None, 4, 15, None, None, 0.1, 0.01, max_length=2048)
    codes = Settings(
        2e-5, None, 4, 15, None, None, 0.1, 0.01, max_length=4096, positive_weights=True
    )
    spans = Settings(5e-5, 1e-3, 16, None, 4000, 8, 0.1, 0.01, 10.0, max_length=1024, dropout=0.4)
    assert find("diamed").settings == cases
    assert {find(name).settings for name in PAPER[:5]} == {codes}
    assert find("emea").settings == find("medline").settings == spans
    assert spans.steps is not None
    assert spans.steps / 8 == 500


def write_coded(folder: Path, notes: dict[str, list[tuple[str, str, str]]]) -> list[Path]:
    """BRAT's files; notes: of each document its (label of a mention, kind of note, text)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in notes.items():
        (folder / f"{name}.txt").write_text(f"Cas {name}.\r\n", encoding="utf-8-sig", newline="")
        mentions = [f"T{i}\t{label} 0 3\tCas\n" for i, (label, _, _) in enumerate(rows)]
        codes = [f"#{i}\t{kind} T{i}\t{text}\n" for i, (_, kind, text) in enumerate(rows)]
        (folder / f"{name}.ann").write_text("".join(mentions + codes))
    return sorted(folder.iterdir())


def icd(*codes: str) -> list[tuple[str, str, str]]:
    return [("expression_CIM", "ICD-O", code) for code in codes]


def test_splits_follow_from_names():
    def tenth(name: str) -> int:
        digest = hashlib.blake2b(f'["split", "{name}"]'.encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little") % 10

    split = {8: "dev", 9: "test"}
    names = [f"cc_onco{i}" for i in range(1, 1502)]
    assert [coded.split_of(n) for n in names] == [split.get(tenth(n), "train") for n in names]
    shares = [sum(coded.split_of(n) == s for n in names) / 1501 for s in ("train", "dev", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    for names, expected in ((TRAIN, "train"), (DEV, "dev"), (TEST, "test")):
        assert {coded.split_of(name) for name in names} == {expected}


def test_codes_of_a_document(tmp_path):
    """Mentions of other labels, notes of other kinds and marks that no code was found are none."""
    notes = [
        *icd("C77.1  8000/1", "tocheck", "C41.3 8000/6;C41.4 8000/6 ", "C77.1 8000/1", ""),
        ("morphologie", "ICD-O", "8140/3"),
        ("expression_CIM", "AnnotatorNotes", "trad"),
    ]
    files = write_coded(tmp_path / "x", {TRAIN[0]: notes, TRAIN[1]: []})
    one, none = coded.read(files, "train", system="ICD-O", label="expression_CIM")
    where = str(tmp_path / "x" / f"{TRAIN[0]}.txt")
    labels = ("C77.1 8000/1", "C41.3 8000/6", "C41.4 8000/6")
    assert one == Text(TRAIN[0], f"Cas {TRAIN[0]}.\n", labels, where=where)
    assert isinstance(none, Text)
    assert none.labels == ()
    (both,) = coded.read(files, "train", system="ICD-O")[:1]
    assert isinstance(both, Text)
    assert both.labels == (*labels, "8140/3")


def test_most_frequent_codes_are_those_of_the_training_split(tmp_path):
    """c is in 3 of its documents, b and d in 2, a thrice in one; e is everywhere but there."""
    dev, test = [*DEV, "n22"], [*TEST, "n12", "n3"]
    assert {coded.split_of(name) for name in dev} == {"dev"}
    assert {coded.split_of(name) for name in test} == {"test"}
    notes = {
        TRAIN[0]: icd("c", "d", "b", "a", "a", "a"),
        TRAIN[1]: icd("c", "d"),
        TRAIN[2]: icd("c", "b"),
        TRAIN[3]: [],
        **dict.fromkeys(dev, icd("e", "d", "c")),
        **dict.fromkeys(test, icd("e", "b")),
    }
    files = write_coded(tmp_path / "x", notes)

    def labels(split: str, top: int | None) -> list[tuple[str, ...]]:
        found = coded.read(files, split, system="ICD-O", label="expression_CIM", top=top)
        assert all(isinstance(text, Text) for text in found)
        return [text.labels for text in found if isinstance(text, Text)]

    assert labels("train", 1) == [("c",), ("c",), ("c",), ()]
    assert labels("train", 2) == [("c", "b"), ("c",), ("c", "b"), ()]
    assert labels("dev", 3) == [("d", "c")] * 2
    assert labels("test", 3) == [("b",)] * 3
    assert labels("test", None) == [("e", "b")] * 3
    assert labels("train", 30)[0] == ("c", "d", "b", "a")


def test_no_code_at_all(tmp_path):
    files = write_coded(tmp_path / "x", {TRAIN[0]: icd("c"), DEV[0]: []})
    with pytest.raises(ValueError, match=r"/x: no note of kind 'SNOMED' in 2 documents"):
        coded.read(files, "train", system="SNOMED")
    with pytest.raises(ValueError, match=r"kind 'ICD-O' on a mention 'topographie' in 2 doc"):
        coded.read(files, "train", system="ICD-O", label="topographie")


def medical_dialogues(root: Path, changes: dict[str, str] | None = None) -> Path:
    """MedDialog-FR's two tables, with some text replaced."""
    annotated = (
        "id\tsplit\tlabels\n"
        "hm1_1_q\ttrain\t['C01', 'C02']\n"
        "hm1_2_q\tdev\t\"['C01']\"\n"
        "hm1_3_q\ttest\t['C02']\n"
        "hm1_4_q\ttrain\t[]\n"
    )
    edited = "id\tmachine_translation\tpost-edited\n" + "".join(
        f'hm1_{i}_{kind}\tx\t"{text} {i} ""?"""\n'
        for i in (1, 2, 3, 4)
        for kind, text in (("q", "Question"), ("a", "Réponse"))
        if (i, kind) != (3, "a")
    )
    tables = {
        "multilabel_annotation/dataset_multilabel_meddialog_22labels.csv": annotated,
        "post-editing/meddialog-fr-women_post-editing.csv": edited,
    }
    for name, table in tables.items():
        for old, new in (changes or {}).items():
            table = table.replace(old, new)
        path = root / "MedDialog-FR-women" / name
        path.parent.mkdir(parents=True)
        path.write_text(table)
    return root


def clinical_cases(root: Path, changes: dict[str, str] | None = None) -> Path:
    """DiaMED's three files, with some text replaced."""
    for split in ("train", "validation", "test"):
        cases = [
            {"identifier": f"{split}1", "icd-10": "A00-B99  Certain infectious diseases"},
            {"identifier": f"{split}2", "icd-10": float("nan")},
            {"identifier": f"{split}3", "icd-10": "Plusieurs cas cliniques"},
            {"identifier": f"{split}4", "icd-10": "Aucune annotation possible"},
            {"identifier": f"{split}5", "icd-10": None},
            {"identifier": f"{split}6", "icd-10": "O00-O9A  Pregnancy"},
        ]
        text = json.dumps([case | {"clinical_case": " Un cas. "} for case in cases], indent=1)
        for old, new in (changes or {}).items():
            text = text.replace(old, new)
        path = root / "DiaMED/splits" / f"{split}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_meddialog(tmp_path):
    loaded = load(find("meddialog"), medical_dialogues(tmp_path))
    assert loaded.labels == ("C01", "C02")
    train, dev, test = (loaded.splits[split] for split in ("train", "dev", "test"))
    first = ("hm1_1_q", 'Question 1 "?"', ("C01", "C02"), 'Réponse 1 "?"')
    assert train[0][:4] == first
    assert [text[2] for text in (*train, *dev, *test)] == [("C01", "C02"), (), ("C01",), ("C02",)]
    assert test[0][:4] == ("hm1_3_q", 'Question 3 "?"', ("C02",), None)
    assert train[1].where.endswith("22labels.csv:5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"\tsplit": "\tpart"}, r"22labels.csv:1: no column 'split' among id, part, labels"),
        ({"\tpost-edited": "\tedited"}, r"post-editing.csv:1: no column 'post-edited'"),
        ({"\ttest\t": "\tvalid\t"}, r"22labels.csv:4: split 'valid' is none of train, dev, test"),
        ({"['C02']": "C02"}, r"22labels.csv:4: labels 'C02' are no list such as"),
        ({"['C02']": "[2]"}, r"22labels.csv:4: labels '\[2\]' are no list such as"),
        ({"['C02']": "['']"}, r"22labels.csv:4: labels: .* holds an empty label or one twice"),
        ({"'C01', 'C02'": "'C01', 'C01'"}, r"22labels.csv:2: labels: .* or one twice"),
        ({"hm1_3_q\ttest": "hm1_9_q\ttest"}, r"22labels.csv:4: hm1_9_q: no text of this id"),
        ({'"Question 3 ""?"""': " "}, r"post-editing.csv:6: post-edited: empty"),
        ({"dev\t\"['C01']\"": "dev\t['C03']"}, r"22labels.csv:3: hm1_2_q: label 'C03' is none of"),
    ],
)
def test_meddialog_faults(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load(find("meddialog"), medical_dialogues(tmp_path, change))


def test_meddialog_is_two_tables(tmp_path):
    medical_dialogues(tmp_path)
    with pytest.raises(ValueError, match="1 tables; 2 are read"):
        records.meddialog(sorted(tmp_path.rglob("*22labels.csv")), "train")


def test_diamed(tmp_path):
    loaded = load(find("diamed"), clinical_cases(tmp_path))
    assert len(loaded.labels) == len(set(loaded.labels)) == 22
    assert [text[:3] for text in loaded.splits["dev"]] == [
        ("validation1", "Un cas.", ("A00-B99",)),
        ("validation6", "Un cas.", ("O00-O9A",)),
    ]
    assert loaded.splits["dev"][1].where.endswith("validation.json:27")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A00-B99": "A00-B98"}, r"train.json:2: train1: icd-10 'A00-B98  .* with no chapter"),
        ({"O00-O9A": "XV"}, r"train.json:27: train6: icd-10 'XV  Pregnancy' begins with no"),
        ({'"icd-10"': '"icd10"'}, r"train.json:2: no field 'icd-10' among identifier, icd10"),
        ({'"A00-B99  Certain infectious diseases"': "3"}, r"train.json:2: icd-10: '3' is a int"),
        ({" Un cas. ": " "}, r"train.json:2: clinical_case: empty"),
        ({'"identifier": "train1",': '"identifier": "train1"'}, r"train.json:4: not JSON: Expec"),
        ({"[": "{", "]": "}"}, r"train.json:2: not JSON"),
        ({"train6": "train1"}, r"train.json:27: id 'train1' again"),
    ],
)
def test_diamed_faults(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load(find("diamed"), clinical_cases(tmp_path, change))


def test_coded_tasks_load_from_their_folders(tmp_path):
    names = [*TRAIN, *DEV, *TEST]
    composite = [*icd("C34.9 8000/6"), ("morphologie", "ICD-O", "8000/6")]
    write_coded(tmp_path / "FRACCO/ann_txt_files", dict.fromkeys(names, composite))
    notes = {
        name: [("morphology-onco", "ICD-O-3.1", "8000/6"), ("morphology-onco", "SNOMED", "7+8")]
        for name in names
    }
    write_coded(tmp_path / "FRASIMED/CANTEMIST-FRASIMED", notes)
    write_coded(tmp_path / "FRASIMED/DISTEMIST-FRASIMED", notes)
    expected = {
        "fracco_30": ("C34.9 8000/6",),
        "fracco_100": ("C34.9 8000/6",),
        "cantemist": ("8000/6",),
        "distemist": ("7", "8"),
    }
    for name, labels in expected.items():
        loaded = load(find(name), tmp_path)
        assert loaded.labels == labels
        ids = {split: [text.id for text in texts] for split, texts in loaded.splits.items()}
        assert ids == {"train": TRAIN, "dev": DEV, "test": TEST}
        assert {text[2] for texts in loaded.splits.values() for text in texts} == {labels}


@pytest.mark.parametrize("task", [*french.TASKS, find("morfitt")], ids=lambda task: task.name)
def test_what_is_not_there_says_where_to_get_it(tmp_path, task):
    with pytest.raises(FileNotFoundError, match=f"{task.name}: no folder .* get it from .*http"):
        load(task, tmp_path)


# The tables of MORFITT's README: (train, dev, test).
MORFITT_TEXTS = (1514, 1022, 1088)
MORFITT_LABELS = {
    "veterinary": (320, 250, 254),
    "etiology": (317, 202, 222),
    "psychology": (255, 175, 179),
    "surgery": (223, 169, 157),
    "genetics": (207, 139, 159),
    "physiology": (217, 125, 148),
    "pharmacology": (112, 84, 103),
    "microbiology": (115, 72, 86),
    "immunology": (106, 86, 70),
    "chemistry": (94, 53, 65),
    "virology": (76, 57, 67),
    "parasitology": (68, 34, 50),
}


def test_morfitt(shared):
    loaded = load(find("morfitt"), shared / "data")
    splits = [loaded.splits[split] for split in ("train", "dev", "test")]
    assert tuple(map(len, splits)) == MORFITT_TEXTS
    for label, counts in MORFITT_LABELS.items():
        assert tuple(sum(label in t[2] for t in split) for split in splits) == counts, label
    assert set(loaded.labels) == MORFITT_LABELS.keys()
    assert not any('""' in text[1] for split in splits for text in split)  # quotes of CSV


MORFITT = "identifier\tabstract\tspecialities\nm1\t Un résumé. \tsurgery|virology\n"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (MORFITT.replace("specialities", "labels"), r"train.tsv:1: no column 'specialities'"),
        (MORFITT.replace("virology", "Virologie"), r"train.tsv:2: specialities: 'Virologie' is no"),
        (MORFITT.replace("|virology", "|"), r"train.tsv:2: specialities: '' is none of chemistry"),
        (MORFITT.replace("virology", "surgery"), r"train.tsv:2: specialities: .* or one twice"),
        (MORFITT.replace(" Un résumé. ", " "), r"train.tsv:2: abstract: empty"),
        (
            MORFITT.replace("\tsurgery|virology", ""),
            r"train.tsv:2: 2 fields where the header has 3",
        ),
        (MORFITT.replace("\t Un", '\t"Un'), r"train.tsv:2: not CSV"),
        (MORFITT.encode("latin-1"), r"train.tsv: byte 0xe9 is not UTF-8, at line [12]"),
    ],
)
def test_morfitt_faults(tmp_path, table, message):
    path = tmp_path / "train.tsv"
    path.write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(ValueError, match=message):
        find("morfitt").read([path], "train")


def test_french_med_mcqa(shared):
    """Numbers of right answers, as in the table of its README."""
    loaded = load(find("french_med_mcqa"), shared / "data")
    expected = {
        "train": [595, 528, 718, 296, 34],
        "dev": [164, 45, 71, 30, 2],
        "test": [321, 97, 141, 56, 7],
    }
    for split, counts in expected.items():
        texts = loaded.splits["train" if split == "train" else "dev" if split == "dev" else "test"]
        assert [sum(len(t[2]) == n for t in texts) for n in (1, 2, 3, 4, 5)] == counts
    first = loaded.splits["dev"][0]
    question = (
        "L'adrénaline stimule tous ces processus métaboliques sauf un. Lequel?\n"
        "(a) Glycolyse\n(b) Lipolyse\n(c) Néoglucogénèse\n(d) Glycogénolyse\n(e) Cétogénèse"
    )
    assert first[1:3] == (question, ("e",))
    assert [text.id[-2:] for text in loaded.splits["train"] if "#" in text.id] == ["#2"]


QUESTION = {
    "id": "q1",
    "question": "Laquelle ?",
    "answers": dict(zip("abcde", "ABCDE", strict=True)),
    "correct_answers": ["b", "d"],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": {"a": "A"}}, r"dev.json:1: q1: answers .* are not a to e"),
        ({"answers": QUESTION["answers"] | {"c": ""}}, r"dev.json:1: c: empty"),
        ({"correct_answers": []}, r"dev.json:1: q1: correct_answers \[\] is no list of letters"),
        ({"correct_answers": ["f"]}, r"dev.json:1: q1: correct_answers: 'f' is none of a, b, c"),
        ({"correct_answers": ["b", "b"]}, r"dev.json:1: q1: correct_answers: .* or one twice"),
        ({"question": 3}, r"dev.json:1: question: '3' is a int, not a text"),
        ({"id": None}, r"dev.json:1: id: 'None' is a NoneType"),
    ],
)
def test_french_med_mcqa_faults(tmp_path, change, message):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([QUESTION | change]))
    with pytest.raises(ValueError, match=message):
        find("french_med_mcqa").read([path], "dev")


def test_lines_of_json_lists(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('\n [{"a":\n 1},\n\n{"b": "\\n"}, {}\n,\n{"c": [1]}\n]\n')
    expected = [(2, {"a": 1}), (5, {"b": "\n"}), (5, {}), (7, {"c": [1]})]
    assert list(reading.json_list_of(path)) == expected
    path.write_text("[{},\n3]")
    with pytest.raises(ValueError, match=r"a.json:2: not a JSON object: '3'"):
        list(reading.json_list_of(path))
    path.write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"a.json: not a JSON list"):
        list(reading.json_list_of(path))


def test_quaero_loads(shared):
    for name, counts in (("emea", (11, 12, 15)), ("medline", (833, 832, 833))):
        loaded = load(TASKS[name], shared / "data")
        assert tuple(map(len, loaded.splits.values())) == counts
        assert any("discontinuous" in warning for warning in loaded.warnings)
