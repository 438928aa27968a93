"""Test examples planted in a corpus are found, and nothing is where none is."""

import json
import random
from pathlib import Path

import pytest

from cpt_jax.curate import decontaminate
from cpt_jax.curate.decontaminate import Index, main, words_of

LETTERS = "abcdefghijklmnop"


def sentence(rng: random.Random, count: int) -> str:
    return " ".join("".join(rng.choices(LETTERS, k=6)) for _ in range(count))


def put(path: Path, texts, start: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        {"text": t, "id": f"r{start + i}", "metadata": {"k": i}} for i, t in enumerate(texts)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.fixture
def secret(tmp_path) -> list[str]:
    """The test examples, a line each, of 5 to 40 words."""
    rng = random.Random(1)
    examples = [sentence(rng, count) for count in (20, 13, 12, 6, 5, 40)]
    (tmp_path / "secret.txt").write_text("\n".join(examples) + "\n")
    return examples


def run(root: Path, *more: str) -> int:
    return main(["--records", str(root / "raw"), "--texts", str(root / "secret.txt"), *more])


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_planted_examples_are_found_and_taken_out(tmp_path, secret, capsys):
    """Whole, 13 words of it, in other case and punctuation; not 12 of 20 words, nor all of 5."""
    rng = random.Random(2)
    around = [sentence(rng, 30) for _ in range(20)]
    twenty, thirteen, twelve, six, five, forty = secret
    shouted = ", ".join(word.upper() for word in twelve.split())
    planted = {
        "whole": f"{around[0]} {twenty} {around[1]}",
        "alone": thirteen,
        "shouted": f"{around[2]}: {shouted}.",
        "six": f"{around[3]} {six}",
        "part": f"{' '.join(forty.split()[20:33])} {around[4]}",
    }
    missed = [f"{around[5]} {' '.join(twenty.split()[:12])}", f"{five} {around[6]}"]
    put(tmp_path / "raw" / "a.jsonl", [*around[7:], *planted.values(), *missed])
    assert run(tmp_path, "--out", str(tmp_path / "out")) == 0
    kept = read(tmp_path / "out" / "a.jsonl")
    assert [r["text"] for r in kept] == [*around[7:], *missed]
    aside = read(tmp_path / "out" / "aside" / "a.jsonl")
    assert [json.loads(one["raw"])["text"] for one in aside] == list(planted.values())
    assert {one["reason"] for one in aside} == {f"overlaps the test split of {tmp_path}/secret.txt"}
    said = capsys.readouterr().out
    assert "20 read, 15 clean, 5 overlapping, 0 faulty" in said
    assert "| 5 | 1 | 0 | 5 | 5 |" in said  # five are looked for, one is too short
    report = (tmp_path / "out" / "decontamination.md").read_text()
    assert not any(word in report for word in (*twenty.split(), *six.split()))


def test_clean_text_has_none(tmp_path, secret, capsys):
    rng = random.Random(3)
    put(tmp_path / "raw" / "a.jsonl", [sentence(rng, 200) for _ in range(50)])
    assert run(tmp_path) == 0
    assert "50 read, 50 clean, 0 overlapping, 0 faulty" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "secret.txt"]


def test_overlaps_are_those_of_comparing_everything():
    """Against sets of word tuples, on text of two words, where nearly all repeats."""
    rng = random.Random(4)
    texts = [" ".join(rng.choices("ab", k=rng.randint(3, 9))) for _ in range(12)]
    index = Index({"t": texts}, n=6, least=4)
    assert index.short["t"] == sum(len(text.split()) < 4 for text in texts)
    for _ in range(200):
        document = rng.choices("ab", k=rng.randint(1, 15))

        def rows(words, size):
            return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}

        expected = [
            i
            for i, example in enumerate(index.examples)
            if rows(example.words, size := min(6, len(example.words))) & rows(document, size)
        ]
        assert index.found_in(" ".join(document)) == expected


def test_what_the_training_split_says_too_is_no_leak():
    """Of words in a row that both splits have nothing is told; of others of the example all is."""
    rng = random.Random(6)
    notice, own, short = (sentence(rng, count) for count in (10, 20, 7))
    texts = {"t": [notice, f"{own} {notice}", notice, short]}
    index = Index(texts, known={"t": [f"{sentence(rng, 9)} {notice} {sentence(rng, 9)}"]})
    assert index.common == {"t": 2}
    assert [example.number for example in index.examples] == [1, 3]
    assert index.found_in(f"{sentence(rng, 30)} {notice} {sentence(rng, 30)}") == []
    assert index.found_in(f"{sentence(rng, 30)} {own}") == [0]
    assert index.found_in(short) == [1]
    # Its 13 words in a row are the notice's ten and three of its own: nobody else has them.
    assert index.found_in(" ".join(own.split()[-3:]) + f" {notice}") == [0]
    assert Index(texts).found_in(notice) == [0, 2]


def test_equal_hashes_are_not_equal_words(monkeypatch):
    monkeypatch.setattr(decontaminate, "_hashes", lambda words, size: _same(len(words) - size + 1))
    index = Index({"t": ["one two three four"]}, n=4, least=2)
    assert index.found_in("five six seven eight nine") == []
    assert index.found_in("zero one two three four") == [0]


def _same(count: int):
    return decontaminate.np.zeros(count, decontaminate.np.uint64)


def test_words_are_compared_without_case_marks_and_ligatures():
    assert words_of("Ｔhe ﬁrst—1,5_mg/L Œdème!") == ["the", "first", "1", "5", "mg", "l", "œdème"]


def test_tasks_on_disk_are_looked_for(shared, tmp_path, capsys):
    """A sentence of NCBI-disease's test split, planted, is its own."""
    data = shared / "data"
    texts = decontaminate.texts_of_tasks(["ncbi_disease"], data)[0]["ncbi_disease"]
    longest = max(texts, key=len)
    put(
        tmp_path / "raw" / "a.jsonl",
        [f"As they say: {longest}", "Nothing of the kind here at all."],
    )
    command = ["--records", str(tmp_path / "raw"), "--data", str(data), "--tasks", "ncbi_disease"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "2 read, 1 clean, 1 overlapping" in said
    assert "| r0 | ncbi_disease |" in said


def test_lines_that_are_no_records_are_set_aside(tmp_path, secret, capsys):
    file = put(tmp_path / "raw" / "a.jsonl", ["w " * 20])
    file.write_bytes(file.read_bytes() + b'{"text": "\xff"}\n[]\n')
    assert run(tmp_path, "--out", str(tmp_path / "out")) == 0
    assert "3 read, 1 clean, 0 overlapping, 2 faulty" in capsys.readouterr().out
    aside = read(tmp_path / "out" / "aside" / "a.jsonl")
    assert [one["reason"] for one in aside] == [
        "not UTF-8",
        "no record: an object with a text is wanted",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--least", "14"), "least: 14 is not from 1 to n, 13"),
        (("--least", "0"), "least: 0 is not from 1 to n, 13"),
        (("--n", "60", "--least", "50"), "no test example of 50 words or more"),
        (("--out", "{root}/raw"), "exists and is not empty; it is not overwritten"),
        (("--out", "{root}/raw/out"), "what is written would be read"),
        (("--data", "{root}/none"), "{root}/none: no task is there"),
        (("--data", "{root}", "--tasks", "gad"), "gad: no folder GAD under {root}"),
        (("--texts", "{root}/*.none"), "{root}/*.none: no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, secret, capsys, more, said):
    put(tmp_path / "raw" / "a.jsonl", ["w " * 20])
    assert run(tmp_path, *(one.format(root=tmp_path) for one in more)) == 2
    assert said.format(root=tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "raw" / "out").exists()


def test_something_must_be_looked_for(tmp_path, capsys):
    put(tmp_path / "raw" / "a.jsonl", ["w"])
    assert main(["--records", str(tmp_path / "raw")]) == 2
    assert "--data or --texts: what is to be looked for?" in capsys.readouterr().err
