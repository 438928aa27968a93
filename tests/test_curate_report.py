"""The page about a directory of records: its counts, and what it does not show."""

import gzip
import json
from collections import Counter

import pytest
from page_reader import Reader
from tiny_run import tokenizer

from cpt_jax.curate import survey as surveys
from cpt_jax.curate.report import main


def record(i, source="notes", words=3, **more):
    grades = {"educational": 1 + i % 5, "content": "study", "domain": "clinical"}
    about = {"source": source, "licence": "CC0"} | (grades if i % 7 else {})
    text = " ".join(f"w{(i + j) % 100}" for j in range(words))
    return {"text": text, "id": f"a/{i}", "metadata": about} | more


def put(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def rows_of(page, first):
    """The rows of the table whose head begins so."""
    rows = Reader(page).rows
    start = next(i for i, row in enumerate(rows) if row[: len(first)] == first)
    width = len(rows[start])
    heads = ("source", "grade", "records", "licence", "reason")
    found = []
    for row in rows[start + 1 :]:
        if len(row) != width or row[0] in heads:
            break
        found.append(row)
    return found


@pytest.fixture
def directory(tmp_path):
    """Thirty records in two files and two sources, one line that is none, two set aside."""
    root = tmp_path / "records"
    put(root / "0.jsonl", [*(record(i, words=4) for i in range(20)), "{"])
    more = [record(i, "pmc", 10, repeat=2.5) for i in range(9)]
    put(root / "deep" / "1.jsonl.gz", [*more, record(3, words=4)])
    aside = {"text": "hidden", "id": "b", "metadata": {"reason": 'near duplicate of "a/1 hidden"'}}
    line = {"file": "x", "line": 1, "reason": "content: 'hidden' is not one of", "raw": "hidden"}
    put(root / "aside" / "0.jsonl", [aside, line, "[hidden"])
    return root


def test_counts_are_those_of_the_records(directory, capsys):
    assert main([str(directory)]) == 0
    assert capsys.readouterr().out == f"{directory / 'report.html'}\n"
    page = (directory / "report.html").read_text()
    ungraded = sum(i % 7 == 0 for i in (*range(20), *range(9), 3))
    assert f"Records: 31 read, {ungraded} ungraded, 1 faulty, 3 set aside." in page
    # 21 records of 4 words; 9 of 10 words, taken 2.5 times.
    assert rows_of(page, ["source", "records", "words"]) == [
        ["notes", "21", "84", "84", "27.18 %", "1.00"],
        ["pmc", "9", "90", "225", "72.82 %", "2.50"],
    ]
    assert rows_of(page, ["licence"]) == [["CC0", "notes", "21", "84"], ["CC0", "pmc", "9", "90"]]
    grades = rows_of(page, ["grade"])
    assert ["content", "study", str(30 - ungraded)] in grades
    assert ["domain", "biomedical", "0"] in grades
    assert Counter(row[1] for row in rows_of(page, ["reason"])) == {"1": 4}
    assert [row[0] for row in rows_of(page, ["reason"])] == [
        *("here: not JSON", "near duplicate of …", "content: …", "no reason given")
    ]
    assert "Set aside as duplicates: 1. Still here with the text of one before them: 1." in page
    assert "filled" not in page, "nothing is packed without a tokenizer"


def test_the_page_stands_alone_and_shows_no_text(directory):
    assert main([str(directory)]) == 0
    page = (directory / "report.html").read_text()
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids)) > 0
    assert all(reference.startswith("#") for reference in read.references)
    assert "script" not in read.tags
    assert page.count("<figure>") == 3, "lengths of two sources, and values"
    assert "hidden" not in page
    assert "w3 w4" not in page


def test_samples_are_shown_when_asked_for(directory):
    put(directory / "2.jsonl", [record(4, text="<b>bold</b> " + "x" * 2000)])
    assert main([str(directory), "--samples", "100"]) == 0
    page = (directory / "report.html").read_text()
    assert "Samples: study, 5" in page
    assert "&lt;b&gt;bold&lt;/b&gt; " + "x" * 988 + "</li>" in page
    assert "hidden" not in page
    assert main([str(directory), "--samples", "1"]) == 0
    read = surveys.survey(directory, samples=1)
    assert {len(texts) for texts in read.samples.values()} == {1}
    assert len(read.samples) == 6, "five values of one content, and what is not graded"


def test_packing_is_that_of_rows(directory, tmp_path):
    """21 x 6 tokens, and 9 x 12 of which two or three copies each; rows full but each pass's last.

    Passes are shuffled and packed alone: all, then two and more copies, then three.
    """
    options = ["--tokenizer", str(tokenizer(tmp_path / "tok")), "--seq-len", "32"]
    assert main([str(directory), *options]) == 0
    page = (directory / "report.html").read_text()
    ((records, tokens, rows, filled, _, _),) = rows_of(page, ["records", "tokens with repeats"])
    assert records == "30"
    third = (int(tokens) - 21 * 6 - 9 * 2 * 12) // 12
    assert 0 <= third <= 9
    assert int(tokens) == 21 * 6 + 9 * 2 * 12 + third * 12
    passes = (21 * 6 + 9 * 12, 9 * 12, third * 12)
    assert int(rows) == sum(-(-each // 32) for each in passes)
    assert filled == f"{100 * int(tokens) / (int(rows) * 32):.2f} %"
    notes = rows_of(page, ["source", "records", "tokens"])[0]
    assert notes[:3] == ["notes", "21", "126"]


def test_a_sample_of_a_large_corpus_is_packed(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(surveys, "MOST_PACKED", 10)
    options = ["--tokenizer", str(tokenizer(tmp_path / "tok")), "--seq-len", "32"]
    assert main([str(directory), *options]) == 0
    assert "Of 30 records, a sample of 10." in (directory / "report.html").read_text()


def test_a_sample_is_drawn_from_all(monkeypatch):
    """Each of 1,000 records is in a sample of 100 with a chance of a tenth; five deviations."""
    monkeypatch.setattr(surveys, "MOST_PACKED", 100)
    lengths = surveys.Lengths()
    for i in range(1000):
        lengths.add(i, 2.0)
    assert len(set(lengths.tokens)) == 100
    assert abs(sum(lengths.tokens) / 100 - 499.5) < 5 * 1000 / (12 * 100) ** 0.5


@pytest.mark.parametrize("repeat", [-1, "2", True, float("inf"), float("nan"), None])
def test_factors_that_are_none_are_counted(tmp_path, repeat):
    put(tmp_path / "0.jsonl", [record(1, repeat=repeat), record(2)])
    assert main([str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "2 read, 0 ungraded, 1 faulty, 0 set aside" in page
    assert rows_of(page, ["reason"]) == [["here: repeat: not a number, finite and >= 0", "1"]]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seq-len", "1"], "--seq-len 1; allowed: at least 2"),
        (["--samples", "-1"], "--samples -1; allowed: at least 0"),
        (["--tokenizer", "none/here.json"], "none/here.json"),
        (["--out", "."], "--out .: a directory; allowed: a file"),
    ],
)
def test_what_cannot_be_meant_is_refused(directory, capsys, more, said):
    assert main([str(directory), *more]) == 2
    assert said in capsys.readouterr().err
    assert not (directory / "report.html").exists()


def test_a_directory_without_records_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "none: no such directory" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "no file .jsonl or .jsonl.gz under it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
