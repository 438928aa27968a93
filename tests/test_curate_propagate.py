"""A small grader that learns grades, and gives them to a corpus."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_run

from cpt_jax.curate import grader, propagate
from cpt_jax.curate.grades import CONTENTS, DOMAINS, Grade
from cpt_jax.curate.propagate import main
from cpt_jax.model import hub
from cpt_jax.model.modernbert import init_params
from cpt_jax.model.spec import SIZES

SETTINGS = ("-s", "learning_rate=0.01", "-s", "epochs=6", "-s", "max_length=32", "-s", "batch=16")


def record(i: int, rng: np.random.Generator, article: int) -> dict:
    """A text whose first word tells the value, whose second the content, whose third the domain."""
    value, content, domain = int(rng.integers(1, 6)), int(rng.integers(4)), int(rng.integers(3))
    words = [f"w{value}", f"w{10 + content}", f"w{20 + domain}"]
    words += [f"w{number}" for number in rng.integers(30, 120, rng.integers(2, 20))]
    grades = {"educational": value, "content": CONTENTS[content], "domain": DOMAINS[domain]}
    metadata = {"source": "made", "article": f"a{article}", **grades}
    return {"text": " ".join(words), "id": f"a{article}/{i}", "metadata": metadata}


def write(path: Path, records) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """An encoder, graded records, and a grader trained on them."""
    root = tmp_path_factory.mktemp("propagate")
    tokenizer = tiny_run.tokenizer(root / "tokenizer")
    sizes = {"vocab_size": len(tiny_run.SPECIAL + tiny_run.WORDS), **tiny_run.MODEL}
    special = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
    spec = SIZES["base"].override({**sizes, **special}, "model")
    hub.save(root / "model", spec, init_params(spec, jax.random.key(3)), tokenizer_dir=tokenizer)
    rng = np.random.default_rng(0)
    records = [record(i, rng, i // 4) for i in range(480)]
    write(root / "graded" / "0.jsonl", records[:240])
    write(root / "graded" / "sub" / "1.jsonl.gz", records[240:])
    arguments = ("--grades", str(root / "graded"), "--model", str(root / "model"))
    assert main(["train", *arguments, "--out", str(root / "grader"), *SETTINGS]) == 0
    return root


def scored(root: Path, out: Path, records: str = "corpus", *more: str) -> int:
    paths = ("--grader", str(root / "grader"), "--records", str(root / records))
    return main(["score", *paths, "--out", str(out), *more])


def lines(path: Path) -> list[dict]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.splitlines()]


def test_a_grader_learns_what_words_tell(root):
    """Held out; chance is 0 for kappas and correlation."""
    about = json.loads((root / "grader" / "grader.json").read_text())
    assert about["held_out"]["correlation"] > 0.8
    assert about["held_out"]["content"]["kappa"] > 0.8
    assert about["held_out"]["domain"]["kappa"] > 0.8
    assert about["max_length"] == 32
    assert sum(about["settings"]["sizes"].values()) == 480
    assert "records that were not trained on" in (root / "grader" / "agreement.md").read_text()


def test_paragraphs_of_an_article_are_in_one_split():
    splits = [propagate.split_of(f"a{i}", 0) for i in range(2000)]
    assert splits == [propagate.split_of(f"a{i}", 0) for i in range(2000)]
    shares = [splits.count(split) / 2000 for split in ("train", "dev", "test")]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.03)  # 4 standard deviations
    assert splits != [propagate.split_of(f"a{i}", 1) for i in range(2000)]


def test_the_loss_is_squared_error_and_two_cross_entropies():
    """In numpy; a row of weight 0 counts for nothing."""
    rng = np.random.default_rng(1)
    scores = {
        "educational": rng.normal(3, 1, 5),
        "content": rng.normal(size=(5, 4)),
        "domain": rng.normal(size=(5, 3)),
    }
    batch = {
        "educational": rng.integers(1, 6, 5).astype(np.float32),
        "content": rng.integers(0, 4, 5),
        "domain": rng.integers(0, 3, 5),
        "weight": np.array([1, 1, 0, 1, 1], np.float32),
    }
    expected = 0.0
    for i in (0, 1, 3, 4):
        expected += (scores["educational"][i] - batch["educational"][i]) ** 2
        for name in ("content", "domain"):
            logits = scores[name][i]
            expected += np.log(np.exp(logits).sum()) - logits[batch[name][i]]
    spec = SIZES["base"].override(tiny_run.MODEL, "model")
    head = grader.GraderHead(spec, rngs=grader.nnx.Rngs(0))
    as_jax = [
        {name: jax.numpy.asarray(a) for name, a in group.items()} for group in (scores, batch)
    ]
    total, weight = head.loss(*as_jax)
    assert (float(total), float(weight)) == (pytest.approx(expected, rel=1e-5), 4)


def test_a_corpus_is_graded_record_by_record(root, tmp_path, capsys):
    """In its order, with what it had; what cannot be graded is set aside; all are counted."""
    rng = np.random.default_rng(5)
    records = [record(i, rng, 1000 + i) for i in range(50)]
    expected = [r["metadata"].pop("content") for r in records]
    faulty = [
        "{",
        '{"id": "x"}',
        '{"text": " ", "id": "y"}',
        '{"text": "w1", "metadata": 3}',
        "[1]",
    ]
    write(root / "corpus" / "a.jsonl", [*records[:20], *faulty, *records[20:30]])
    write(root / "corpus" / "deep" / "b.jsonl.gz", records[30:])
    assert scored(root, tmp_path / "out") == 0
    assert "55 read, 50 written, 5 aside" in capsys.readouterr().out
    first = lines(tmp_path / "out" / "a.jsonl")
    found = first + lines(tmp_path / "out" / "deep" / "b.jsonl.gz")
    assert [r["id"] for r in found] == [r["id"] for r in records]
    assert [r["text"] for r in found] == [r["text"] for r in records]
    assert all(r["metadata"]["source"] == "made" for r in found)
    right = [r["metadata"]["content"] == one for r, one in zip(found, expected, strict=True)]
    assert np.mean(right) > 0.85
    assert all(1 <= r["metadata"]["educational"] <= 5 for r in found)
    aside = lines(tmp_path / "out" / "aside" / "a.jsonl")
    assert [(one["line"], one["reason"]) for one in aside] == [
        (21, "not JSON"),
        (22, "no record: an object with a text is wanted"),
        (23, "empty text"),
        (24, "metadata: not an object"),
        (25, "no record: an object with a text is wanted"),
    ]
    assert [one["raw"].strip() for one in aside] == faulty


def test_what_is_graded_is_not_graded_again(root, tmp_path, monkeypatch):
    rng = np.random.default_rng(6)
    for name in ("x", "y"):
        write(root / "again" / f"{name}.jsonl", [record(i, rng, i) for i in range(5)])
    assert scored(root, tmp_path / "out", "again") == 0
    before = (tmp_path / "out" / "x.jsonl").read_bytes()
    whole = (tmp_path / "out" / "y.jsonl").read_bytes()
    (tmp_path / "out" / "y.jsonl").unlink()
    asked = []
    grade = grader.Grader.grade
    monkeypatch.setattr(
        grader.Grader, "grade", lambda one, texts: asked.append(len(texts)) or grade(one, texts)
    )
    assert scored(root, tmp_path / "out", "again") == 0
    assert asked == [5]
    assert (tmp_path / "out" / "x.jsonl").read_bytes() == before
    assert (tmp_path / "out" / "y.jsonl").read_bytes() == whole


def test_grades_do_not_depend_on_batches_or_devices(root):
    """To 3 decimals, as they are written; labels alike."""
    rng = np.random.default_rng(7)
    texts = [record(i, rng, i)["text"] for i in range(21)]
    few = grader.Grader(root / "grader", 4, jax.devices()[:1]).grade(texts)
    spread = grader.Grader(root / "grader", 16, jax.devices()[:8]).grade(texts)
    for one, other in zip(few, spread, strict=True):
        assert one[1:] == other[1:]
        assert one.educational == pytest.approx(other.educational, abs=2e-3)
    assert len({grade.educational for grade in few}) > 5


def test_a_text_longer_than_is_read_is_cut(root):
    one = grader.Grader(root / "grader", 8)
    short, long = ("w1 w10 w20 " + "w30 " * n for n in (27, 400))  # 30 tokens and two special ones
    assert one.grade([short])[0] == one.grade([long])[0]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (["{"], "graded/0.jsonl:1: not JSON"),
        ([{"text": "w1", "id": "a"}], "graded/0.jsonl:1: no educational, content, domain: not gra"),
        (
            [{"text": "w1", "id": "a", "metadata": {"educational": 9, "content": 1, "domain": 2}}],
            "graded/0.jsonl:1: educational: 9 is not from 1 to 5",
        ),
    ],
)
def test_graded_records_that_are_none_are_refused(root, tmp_path, capsys, records, said):
    write(tmp_path / "graded" / "0.jsonl", records)
    arguments = ("--grades", str(tmp_path / "graded"), "--model", str(root / "model"))
    assert main(["train", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_meant_is_refused_before_training(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(propagate.fit, "Group", None)  # nothing is trained
    graded, model = ("--grades", str(root / "graded")), ("--model", str(root / "model"))
    out = ("--out", str(tmp_path / "out"))
    for arguments, said in (
        ((*graded, *model, "--out", str(root / "model")), "exists and is not empty"),
        ((*graded, *model, *out, "-s", "max_length=65"), "65 is not from 3 to the model's 64"),
        ((*graded, *model, *out, "-s", "batch=0"), "settings.batch: 0 is not 1 or more"),
        ((*graded, "--model", str(tmp_path / "no"), *out), f"{tmp_path}/no"),
        (("--grades", str(tmp_path / "no"), *model, *out), "no such directory"),
        (("--grades", str(root / "model"), *model, *out), "no file .jsonl or .jsonl.gz under it"),
    ):
        assert main(["train", *arguments]) == 2
        assert said in capsys.readouterr().err
    rng = np.random.default_rng(0)
    write(tmp_path / "few" / "0.jsonl", [record(0, rng, 0)])
    assert main(["train", "--grades", str(tmp_path / "few"), *model, *out]) == 2
    assert "1 records of 1 articles: none for " in capsys.readouterr().err


def test_scoring_is_refused_where_it_would_mix_things(root, tmp_path, capsys):
    rng = np.random.default_rng(8)
    write(root / "mixed" / "0.jsonl", [record(0, rng, 0)])
    assert scored(root, root / "mixed" / "out", "mixed") == 2
    assert "its files would be read as records" in capsys.readouterr().err
    assert scored(root, tmp_path / "out", "mixed", "--batch", "3") == 2
    assert "batch: 3 is no multiple of 8 devices" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "grader.json").write_text('{"grader": "another"}')
    assert scored(root, tmp_path / "out", "mixed") == 2
    assert "scored by another grader; give another --out" in capsys.readouterr().err


def test_grades_are_clipped_and_rounded():
    row = {"content": np.array([0.1, 0.2, 0.6, 0.1]), "domain": np.array([0.2, 0.5, 0.3])}
    grades = grader.grades_of([{"educational": np.array(v), **row} for v in (0.2, 3.14159, 6.0)])
    assert grades == [Grade(v, "review", "biomedical") for v in (1.0, 3.142, 5.0)]


RECIPE = """
from cpt_jax.curate.recipe import Recipe, Source
from cpt_jax.curate.rules import Rules


def get_recipe():
    source = Source("made", "jsonl", ("*.jsonl",), 1.0, rules=Rules(least=3.0))
    more = dict(seq_len=32, heldout_fraction=0.1, near=None, decontaminate=())
    return Recipe("r", 1e4, (source,), **more)
"""


def test_a_mixture_waits_for_the_grader_and_takes_what_it_likes(root, tmp_path):
    rng = np.random.default_rng(9)
    wanted = {}
    raw = tmp_path / "raw"
    bare = []
    for i in range(80):
        one = record(i, rng, i)
        wanted[one["id"]] = one["metadata"]["educational"]
        bare.append({"text": one["text"], "id": one["id"], "article": one["metadata"]["article"]})
    write(raw / "a.jsonl", bare)
    (tmp_path / "recipe.py").write_text(RECIPE)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "cpt_jax.curate.build", "--recipe", tmp_path / "recipe.py"]
    command += ["--raw", raw, "--out", out, "--tokenizer", root / "model", "-s", "tasks=1"]
    first = subprocess.run(command, capture_output=True, text=True)
    assert first.returncode == 1, first.stderr
    assert "Rules of made judge by grades" in first.stdout
    done = subprocess.run([*command, "--grader", root / "grader"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (out / "work/selected/made").rglob("*.jsonl.gz")
    taken = {one["id"]: one["metadata"]["educational"] for one in lines(path)}
    assert min(taken.values()) >= 3
    # What the texts say by their first word: few are graded on the other side of 3.
    right = {name for name, value in wanted.items() if value >= 3}
    assert len(right ^ set(taken)) <= 8
    assert (out / "made" / "manifest.json").exists()
