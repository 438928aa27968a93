"""Tasks whose data is at hand, all of it: sizes as their sources or `grep` tell them."""

import json
import re
from collections import Counter

import pytest

from cpt_jax.finetune.examples import SPLITS, Annotated, Span, Text, Words
from cpt_jax.finetune.tasks import TASKS, conll, custom
from cpt_jax.finetune.tasks.loading import files_of, load

# Examples of train, dev and test; of tasks with entities also theirs, by `grep -c B-`.
SIZES = {
    "ncbi_disease": ((5424, 923, 940), (5134, 787, 960)),
    "bc5cdr": ((4560, 4581, 4797), (5203 + 4182, 5347 + 4246, 5385 + 4424)),
    "anatem": ((5861, 2118, 3830), (6946, 2139, 4616)),
    "jnlpba_untyped": ((16807, 1739, 3856), (46750, 4551, 8662)),
    "chemprot_scibert": ((4169, 2427, 3469), None),
    "gad": ((4261, 535, 534), None),
    "hoc": ((1295, 186, 371), None),
    "pubmedqa": ((450, 50, 500), None),
    "csabstruct": ((11333, 2026, 1349), None),
    "personal_data": ((1050, 150, 300), None),
}


def entities(example) -> int:
    if isinstance(example, Words):
        return sum(tag.startswith("B-") for tag in example.tags)
    return len(example.spans)


@pytest.mark.parametrize("name", SIZES)
def test_sizes(shared, name):
    loaded = load(TASKS[name], shared / "data")
    sizes, counts = SIZES[name]
    assert tuple(len(loaded.splits[split]) for split in SPLITS) == sizes
    if counts is not None:
        found = [sum(map(entities, loaded.splits[split])) for split in SPLITS]
        assert tuple(found) == counts


def test_hallmarks_of_documents(shared):
    """The training documents of each hallmark, counted by awk over the sentences' flags."""
    loaded = load(TASKS["hoc"], shared / "data")
    rows = (shared / "data/restricted/en_tasks/HoC/train.tsv").read_text().splitlines()[1:]
    expected: Counter[int] = Counter()
    seen = set()
    for row in rows:
        flags, _, index = row.split("\t")
        for number, flag in enumerate(flags.split(",")):
            key = index.split("_s")[0], number
            if flag.endswith("_1") and key not in seen:
                seen.add(key)
                expected[number] += 1
    counts = Counter(
        label for e in loaded.splits["train"] if isinstance(e, Text) for label in e.labels
    )
    assert [counts[label] for label in loaded.labels] == [expected[n] for n in range(10)]
    assert not any("_s" in example.id for example in loaded.splits["train"])


def test_relations_have_their_markers(shared):
    loaded = load(TASKS["chemprot_scibert"], shared / "data")
    for example in loaded.splits["train"]:
        assert isinstance(example, Text)
        assert example.markers is not None
        first, second = example.markers
        assert (example.text[first : first + 3], example.text[second : second + 3]) == (
            "<< ",
            "[[ ",
        )
    assert "chemprot_scibert: no AGONIST-INHIBITOR in dev" in loaded.warnings


def test_personal_data_stands_where_it_is_said_to(shared):
    path = shared / "data/en_tasks/presidio_synth_pii/synth_dataset_v2.json"
    records = json.loads(path.read_text(encoding="utf-8-sig"))
    loaded = load(TASKS["personal_data"], shared / "data")
    read = {e.id: e for examples in loaded.splits.values() for e in examples}
    with_newline = 0
    for number, record in enumerate(records):
        example = read[f"{path.name}:{number}"]
        assert isinstance(example, Annotated)
        values = Counter((span["entity_type"], span["entity_value"]) for span in record["spans"])
        assert Counter((s.label, example.text[s.start : s.end]) for s in example.spans) == values
        with_newline += any("\n" in value for _, value in values)
    assert with_newline > 100


def test_typed_jnlpba(shared):
    """Entities of the test split as in Kim et al. 2004, table 2."""
    sentences = conll.read([shared / "data/en_tasks/JNLPBA/test.typed.tsv"])
    tags = Counter(tag for s in sentences if isinstance(s, Words) for tag in s.tags)
    counts = {label: tags[f"B-{label}"] for label in TASKS["jnlpba"].labels or ()}
    expected = {"protein": 5067, "DNA": 1056, "RNA": 118, "cell_type": 1921, "cell_line": 500}
    assert counts == expected
    assert len(sentences) == 3856


def test_a_declared_task_reads_the_same(shared, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\nkind: classification\nformat: table\n"
        "options: {text: sentence, label: label, id: index}\n"
        f"folder: {shared / 'data/restricted/en_tasks/GAD'}\n"
        "files: {train: train.tsv, dev: dev.tsv, test: test.tsv}\n"
    )
    ours, theirs = (load(task, shared / "data") for task in (custom.read(path), TASKS["gad"]))
    assert ours.splits == theirs.splits
    assert ours.labels == theirs.labels


def test_spans_are_within_their_texts(shared):
    loaded = load(TASKS["personal_data"], shared / "data")
    examples = [e for split in SPLITS for e in loaded.splits[split]]
    (example,) = (e for e in examples if e.id.endswith(":0"))
    assert isinstance(example, Annotated)
    assert example.spans == (Span(15, 22, "ORGANIZATION"), Span(26, 83, "STREET_ADDRESS"))


CONLL = {
    "a column is missing": (r"\tO\n", "\n", r"\.tsv:\d+: no columns 0 and -1 in "),
    "a label is unknown": (r"\tO\n", "\tB-Gene\n", "label 'Gene' is none of "),
    "a word is empty": (r"^\w+", "", r"\.tsv:\d+: empty word in "),
}
# What is replaced first in the file of the test split, by what, and what is said of it.
WRONG = {
    "ncbi_disease": ("test.tsv", CONLL),
    "bc5cdr": ("test.tsv", CONLL),
    "anatem": ("test.tsv", CONLL),
    "gad": (
        "test.tsv",
        {
            "a column is missing": (
                r"\tlabel",
                "",
                r"\.tsv:1: no column 'label' among index, sent",
            ),
            "a label is unknown": (r"\t1\n", "\t2\n", "label '2' is none of 0, 1"),
            "a text is empty": (r"^(\d+)\t[^\t]+", r"\1\t", r"\.tsv:2: sentence: empty"),
            "a field is missing": (r"\t1\n", "\n", r"\.tsv:2: 2 fields where the header has 3"),
        },
    ),
    "hoc": (
        "test.tsv",
        {
            "a column is missing": (
                r"\tindex",
                "",
                r"\.tsv:1: no column 'index' among labels, sent",
            ),
            "a label is unknown": (
                ",9_0",
                ",9_0,10_1",
                "labels: '10_1' is neither 10_0 nor|11 flags",
            ),
            "a text is empty": (r"(9_0)\t[^\t]+", r"\1\t", r"\.tsv:2: sentence: empty"),
        },
    ),
    "chemprot_scibert": (
        "test.txt",
        {
            "a field is missing": (
                '"label": "[A-Z-]+", ',
                "",
                r"\.txt:1: no field 'label' among text",
            ),
            "a label is unknown": (
                '"label": "[A-Z-]+"',
                '"label": "NEAR"',
                "label 'NEAR' is none of",
            ),
            "a text is empty": ('"text": "[^"]+"', '"text": ""', r"\.txt:1: text: empty"),
            "a marker is missing": ("<< ", "", r"\.txt:1: 0 times '<< ', not once"),
        },
    ),
    "morfitt": (
        "test.tsv",
        {
            "a column is missing": (
                r"\tspecialities",
                "",
                r"\.tsv:1: no column 'specialities' among",
            ),
            "a label is unknown": (
                r"(\n\w{64}\t[^\t]+\t)[^\n]+",
                r"\1magic",
                "specialities: 'magic' is none of",
            ),
            "a text is empty": (r"^(\w{64})\t[^\t]+", r"\1\t", r"\.tsv:2: abstract: empty"),
        },
    ),
    "emea": (
        "corpus/test/EMEA/196_1.ann",
        {
            "a column is missing": (r"^(T\d+)\t", r"\1 ", r"\.ann:1: "),
            "a label is unknown": (r"^(T\d+\t)[A-Z]+ ", r"\1GENE ", "label 'GENE' is none of"),
            "offsets are beyond the text": (
                r"^(T\d+\t[A-Z]+) \d+ \d+",
                r"\1 999990 999999",
                r"999990.*of a text of|\.ann:1: ",
            ),
        },
    ),
}


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, (_, faults) in WRONG.items() for fault in faults]
)
def test_a_copy_of_the_wrong_format_is_told(shared, tmp_path, name, fault):
    """In the real files, a single place of them spoilt."""
    task, (wrong, faults) = TASKS[name], WRONG[name]
    old, new, said = faults[fault]
    for path in {path for paths in files_of(task, shared / "data").values() for path in paths}:
        folder = next(parent for parent in path.parents if parent.name in task.folder)
        for beside in path.parent.glob(f"{path.stem}.*") if name == "emea" else (path,):
            copy = tmp_path / folder.name / beside.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(beside.read_bytes())
    (file,) = tmp_path.glob(f"*/{wrong}")
    text = file.read_bytes().decode()
    spoilt = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert spoilt != text
    file.write_bytes(spoilt.encode())
    with pytest.raises(ValueError, match=said) as caught:
        load(task, tmp_path)
    assert str(file.with_suffix("")) in str(caught.value)
