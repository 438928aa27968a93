"""What rules take of graded paragraphs, and how many times."""

import gzip
import json
from pathlib import Path

import pytest
import yaml
from tiny_run import tokenizer

from cpt_jax.curate.rules import ByShare, Repeat, Rules, Share, read_rules
from cpt_jax.curate.select import main
from cpt_jax.data.prepare import prepare

# SPEC section 7: 0 % excluded; 1-25 % x4.3; 26-50 % x8.5; 51-75 % x12.8; 76-99 % x21.3; 100 % x34.1
FRENCH = {
    "good": 4,
    "all": 34.1,
    "between": [
        {"upto": 0.25, "factor": 4.3},
        {"upto": 0.5, "factor": 8.5},
        {"upto": 0.75, "factor": 12.8},
        {"upto": 1, "factor": 21.3},
    ],
}
# SPEC section 4, English base 10B.
ENGLISH = [{"factor": 100, "content": ["clinical_case"]}, {"factor": 10, "domain": ["clinical"]}]


def paragraph(article: str, place: int, value: float, *labels: str, words: int = 5) -> dict:
    content, domain = labels or ("study", "biomedical")
    about = {"source": "made", "article": article, "place": place, "licence": "CC0"}
    grades = {"educational": value, "content": content, "domain": domain}
    text = " ".join(f"w{(place + i) % 100}" for i in range(words))
    return {"text": text, "id": f"{article}/{place}", "metadata": about | grades}


def put(path: Path, records) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def select(root: Path, rules: dict, out: str | None = "out") -> int:
    (root / "rules.yaml").write_text(yaml.safe_dump(rules))
    paths = ["--rules", str(root / "rules.yaml"), "--records", str(root / "records")]
    return main([*paths, *(["--out", str(root / out)] if out else [])])


def taken(root: Path, name: str = "0.jsonl") -> list[dict]:
    raw = (root / "out" / "documents" / name).read_bytes()
    text = gzip.decompress(raw) if name.endswith(".gz") else raw
    return [json.loads(line) for line in text.splitlines()]


def test_paragraphs_are_taken_by_the_first_rule_that_fits(tmp_path, capsys):
    """Cases x100, other clinical ones x10, others once; those below 3 not at all."""
    records = [
        paragraph("a", 0, 3.0, "clinical_case", "clinical"),
        paragraph("a", 1, 4, "study", "clinical"),
        paragraph("b", 0, 5, "review", "biomedical"),
        paragraph("b", 1, 2.999, "clinical_case", "clinical"),
        paragraph("c", 0, 3, "clinical_case", "other"),
    ]
    put(tmp_path / "records" / "0.jsonl", records)
    assert select(tmp_path, {"least": 3.0, "repeats": ENGLISH}) == 0
    found = taken(tmp_path)
    assert [(r["id"], r["repeat"]) for r in found] == [
        *(("a/0", 100), ("a/1", 10), ("b/0", 1), ("c/0", 100))
    ]
    assert found[0] == {**records[0], "repeat": 100}
    said = capsys.readouterr().out
    assert "5 read, 4 taken, 1 left out, 0 set aside" in said
    assert "| made | 5 | 4 | 25 | 20 | 1,055 | 52.75 |" in said
    assert "| 100 | 1,000 | 94.8 % |" in said
    assert said.strip() in (tmp_path / "out" / "selection.md").read_text()


@pytest.mark.parametrize(
    ("good", "of", "factor"),
    [
        *((0, 8, 0), (1, 8, 4.3), (2, 8, 4.3), (3, 8, 8.5), (4, 8, 8.5), (5, 8, 12.8)),
        *((6, 8, 12.8), (7, 8, 21.3), (8, 8, 34.1), (1, 1, 34.1), (0, 1, 0), (1, 3, 8.5)),
    ],
)
def test_articles_are_taken_by_their_share_of_good_paragraphs(tmp_path, good, of, factor):
    values = [4.0] * good + [3.9] * (of - good)
    records = [paragraph("a", place, value) for place, value in enumerate(values)]
    put(tmp_path / "records" / "0.jsonl", [*records, paragraph("b", 0, 5)])
    assert select(tmp_path, {"by_share": FRENCH, "join": True}) == 0
    found = taken(tmp_path)
    assert [r["repeat"] for r in found] == [*([factor] if factor else []), 34.1]
    if factor:
        assert found[0]["text"] == "\n\n".join(r["text"] for r in records)
        assert found[0]["id"] == "a"
        assert found[0]["metadata"]["paragraphs"] == of
        assert found[0]["metadata"]["licence"] == "CC0"
        assert "place" not in found[0]["metadata"] or of == 1


def test_factors_stay_below_the_most(tmp_path):
    put(tmp_path / "records" / "0.jsonl", [paragraph("a", 0, 4, "clinical_case", "clinical")])
    assert select(tmp_path, {"repeats": ENGLISH, "most": 12.5}) == 0
    assert taken(tmp_path)[0]["repeat"] == 12.5


def test_shares_are_of_all_paragraphs_though_some_are_left_out(tmp_path):
    """Of four paragraphs one is good, a quarter, whether or not the bad ones are taken."""
    records = [paragraph("a", place, value) for place, value in enumerate((5, 1, 2, 3))]
    put(tmp_path / "records" / "deep" / "0.jsonl.gz", records)
    assert select(tmp_path, {"least": 3, "by_share": FRENCH}) == 0
    found = taken(tmp_path, "deep/0.jsonl.gz")
    assert [(r["id"], r["repeat"]) for r in found] == [("a/0", 4.3), ("a/3", 4.3)]


def test_what_cannot_be_judged_is_set_aside(tmp_path, capsys):
    ungraded = paragraph("a", 1, 3)
    del ungraded["metadata"]["domain"]
    orphan = paragraph("a", 2, 3)
    del orphan["metadata"]["article"]
    put(tmp_path / "records" / "0.jsonl", ["{", ungraded, orphan, paragraph("a", 3, 5)])
    assert select(tmp_path, {"by_share": FRENCH}) == 0
    assert "4 read, 1 taken, 0 left out, 3 set aside" in capsys.readouterr().out
    kept = [json.loads(line) for line in (tmp_path / "out/aside/0.jsonl").read_text().splitlines()]
    assert [(k["line"], k["reason"]) for k in kept] == [
        *((1, "not JSON"), (2, "no domain: not graded"), (3, "no article"))
    ]
    assert json.loads(kept[1]["raw"]) == ungraded
    assert [r["repeat"] for r in taken(tmp_path)] == [34.1]


def test_the_report_counts_tokens_where_it_can(tmp_path, capsys):
    """A text of w words is w tokens of this tokenizer, and `prepare` puts two around it."""
    put(tmp_path / "records" / "0.jsonl", [paragraph("a", 0, 5, words=7), paragraph("b", 0, 5)])
    (tmp_path / "rules.yaml").write_text("least: 3\n")
    command = ["--rules", str(tmp_path / "rules.yaml"), "--records", str(tmp_path / "records")]
    assert main(command) == 0
    assert "| 2 | 2 | 12 | 12 | 12 | 1.00 |" in capsys.readouterr().out
    assert main([*command, "--tokenizer", str(tokenizer(tmp_path / "tokenizer"))]) == 0
    said = capsys.readouterr().out
    assert "| 2 | 2 | 16 | 16 | 16 | 1.00 |" in said
    assert "| tokens | taken |" in said


def test_without_out_only_the_report_is_made(tmp_path, capsys):
    put(tmp_path / "records" / "0.jsonl", [paragraph("a", 0, 5)])
    before = sorted(tmp_path.rglob("*"))
    assert select(tmp_path, {}, out=None) == 0
    assert "1 read, 1 taken" in capsys.readouterr().out
    assert sorted(set(tmp_path.rglob("*")) - {tmp_path / "rules.yaml"}) == before


def test_prepare_takes_the_factors(tmp_path):
    """Tokens of the training plan: words and two special ones, times the factor."""
    records = [paragraph("a", i, 4, "study", "clinical", words=18) for i in range(10)]
    others = [paragraph("b", i, 4, words=8) for i in range(10)]
    put(tmp_path / "records" / "0.jsonl", [*records, *others])
    assert select(tmp_path, {"repeats": ENGLISH}) == 0
    manifest = prepare(
        [str(tmp_path / "out" / "documents" / "**" / "*.jsonl*")],
        tokenizer(tmp_path / "tokenizer"),
        tmp_path / "data",
        seq_len=32,
        repeat_field="repeat",
        heldout_fraction=0.0,
    )
    assert manifest["splits"]["train"]["row_tokens"] == 10 * 10 * 20 + 10 * 10


GOOD = {"least": 3.0, "repeats": ENGLISH}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"least": 6}, "rules.yaml.least: 6.0 is not from 1 to 5"),
        ({"lest": 3}, "rules.yaml.lest: unknown field; did you mean rules.yaml.least?"),
        ({"repeats": [{"factor": -1}]}, "repeats[0].factor: -1.0 is not from 0 to 10,000"),
        ({"repeats": [{"factor": float("nan")}]}, "repeats[0].factor: nan is not from 0"),
        ({"repeats": [{"factor": 2, "content": ["poem"]}]}, "repeats[0].content: 'poem' is not"),
        ({"repeats": [{"factor": 2, "domain": ["x"]}]}, "repeats[0].domain: 'x' is not one of"),
        ({"repeats": ENGLISH, "by_share": FRENCH}, "repeats, by_share: two rules for one factor"),
        ({"repeats": ENGLISH, "join": True}, "repeats, join: a factor for each paragraph"),
        ({"by_share": {**FRENCH, "between": []}}, "by_share.between: [] do not rise from above 0"),
        (
            {"by_share": {**FRENCH, "between": [{"upto": 0.5, "factor": 1}]}},
            "by_share.between: [0.5] do not rise from above 0 to 1",
        ),
        (
            {"by_share": {**FRENCH, "between": FRENCH["between"][::-1]}},
            "[1.0, 0.75, 0.5, 0.25] do not rise",
        ),
        ({"by_share": {**FRENCH, "good": 7}}, "by_share.good: 7.0 is not from 1 to 5"),
        ({"most": 10**9}, "most: 1000000000.0 is not from 0 to 10,000"),
        ([], "[] is not a group of fields (Rules)"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(tmp_path, capsys, rules, said):
    put(tmp_path / "records" / "0.jsonl", [paragraph("a", 0, 5)])
    assert select(tmp_path, rules) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rules_are_read_as_written(tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({**GOOD, "most": 50}))
    cases, clinical = Repeat(100, ("clinical_case",)), Repeat(10, (), ("clinical",))
    assert read_rules(tmp_path / "rules.yaml") == Rules(3.0, (cases, clinical), most=50)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"by_share": FRENCH, "join": True}))
    shares = tuple(Share(each["upto"], each["factor"]) for each in FRENCH["between"])
    assert read_rules(tmp_path / "rules.yaml") == Rules(
        by_share=ByShare(4, shares, all=34.1), join=True
    )


def test_inputs_that_cannot_be_meant_are_refused(tmp_path, capsys):
    assert select(tmp_path, GOOD) == 2
    assert f"{tmp_path}/records: no such directory" in capsys.readouterr().err
    put(tmp_path / "records" / "0.jsonl", [paragraph("a", 0, 5)])
    assert select(tmp_path, GOOD, out="records") == 2
    assert "exists and is not empty; it is not overwritten" in capsys.readouterr().err
    assert select(tmp_path, GOOD, out="records/out") == 2
    assert "what is written would be read" in capsys.readouterr().err
    (tmp_path / "rules.yaml").write_text("a: [")
    arguments = ["--rules", str(tmp_path / "rules.yaml"), "--records", str(tmp_path / "records")]
    assert main(arguments) == 2
    assert "rules.yaml: not YAML" in capsys.readouterr().err


@pytest.mark.parametrize("files", [("0", "0", "0"), ("0", "0", "1")])
def test_articles_to_be_joined_must_stand_together(tmp_path, capsys, files):
    records = [paragraph("a", 0, 5), paragraph("b", 0, 5), paragraph("a", 1, 5)]
    for name in sorted(set(files)):
        own = [r for r, file in zip(records, files, strict=True) if file == name]
        put(tmp_path / "records" / f"{name}.jsonl", own)
    assert select(tmp_path, {"join": True}) == 0
    assert "3 read, 2 taken, 0 left out, 1 set aside" in capsys.readouterr().out
    names = [file.name for file in (tmp_path / "out" / "documents").iterdir()]
    assert [document["id"] for name in sorted(names) for document in taken(tmp_path, name)] == [
        "a",
        "b",
    ]
    (path,) = (tmp_path / "out" / "aside").iterdir()
    (apart,) = map(json.loads, path.read_text().splitlines())
    assert apart["reason"].startswith("apart from its article's other paragraphs")
    assert json.loads(apart["raw"])["id"] == "a/1"
    assert select(tmp_path, {}, out="all") == 0
    assert "3 read, 3 taken" in capsys.readouterr().out
