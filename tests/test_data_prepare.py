"""From text files to rows, and back: the tokenizers library, called here, is the oracle."""

import gzip
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_corpus
import zstandard
from tokenizers import Tokenizer

from cpt_jax.data import tokenise
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import Source, open_source


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tiny_corpus.write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tok")


def encode(tokenizer: Path, text: str) -> list[int]:
    codec = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    ids = codec.encode(text, add_special_tokens=False).ids
    before, after = codec.token_to_id("[CLS]"), codec.token_to_id("[SEP]")
    assert before is not None
    assert after is not None
    return [before, *ids, after]


def segments(source: Source) -> list[list[list[int]]]:
    """The token lists of each row's segments, after the checks that hold for any row."""
    rows = []
    for index in range(len(source)):
        row = source[index]
        ids, segment_ids = row["input_ids"], row["segment_ids"]
        assert row["row"] == index
        assert ids.dtype == segment_ids.dtype == np.int32
        assert ids.shape == segment_ids.shape == (source.seq_len,)
        assert np.all(ids[segment_ids == 0] == source.tokenizer["pad_id"])
        steps = np.diff(segment_ids[segment_ids > 0])
        assert segment_ids[0] == 1
        assert set(steps.tolist()) <= {0, 1}
        assert np.all(segment_ids[: len(steps) + 1] > 0), "padding before the end"
        rows.append([ids[segment_ids == s].tolist() for s in range(1, segment_ids.max() + 1)])
    return rows


def check_rows_against_texts(directory: Path, tokenizer: Path, documents: list[str]) -> None:
    """Every piece is the slice of its document that the plan says, and all tokens are there."""
    expected = [encode(tokenizer, text) for text in documents]
    source = open_source(directory)
    pieces = np.load(directory / "train.pieces.npy").tolist()
    found = [segment for row in segments(source) for segment in row]
    assert found == [expected[d][start : start + n] for d, start, n in pieces]
    assert sum(map(len, found)) == sum(map(len, expected)) == source.tokens


def test_round_trip(tmp_path, tokenizer):
    documents = tiny_corpus.texts(120, longest=60, seed=0)
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, documents, shard_tokens=700)
    assert len(list((directory / "shards").iterdir())) > 3
    check_rows_against_texts(directory, tokenizer, documents)


def test_documents_of_0_1_L_plus_1_and_a_million_tokens(tmp_path, tokenizer):
    """Empty ones are counted and dropped; long ones go on in the next rows, without a [CLS]."""
    # "!" is never merged: n of them are n tokens, and the template adds two.
    documents = ["", "!", "!" * (8193 - 2), "!" * 999_998, " \n\t "]
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, documents, seq_len=8192)
    source = open_source(directory)
    assert source.manifest["empty"] == 2
    assert np.load(directory / "documents.npy")["length"].tolist() == [3, 8193, 1_000_000]
    found = segments(source)
    assert len(found) == -(-1_008_196 // 8192)
    assert all(sum(map(len, row)) == 8192 for row in found[:-1])
    cls = source.tokenizer["cls_id"]
    assert sum(ids.count(cls) for row in found for ids in row) == 3
    assert all(cls not in ids[1:] for row in found for ids in row)


FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def write_as(path: Path, records: list[dict]) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines[:50]) + gzip.compress(lines[50:]))  # two members
    elif path.name.endswith(".zst"):
        path.write_bytes(zstandard.compress(lines))
    elif path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=7)
    else:
        path.write_bytes(lines)


def test_every_format_gives_the_same_documents(tmp_path, tokenizer):
    documents = tiny_corpus.texts(30, longest=20, seed=1) + ["épée ‰ \U0001f9ea"]
    records = [{"text": text, "id": f"d{i}", "x": 1} for i, text in enumerate(documents)]
    corpora = []
    for suffix in FORMATS:
        write_as(tmp_path / f"a.{suffix}", records)
        out = tmp_path / f"from_{suffix}"
        prepare([str(tmp_path / f"a.{suffix}")], tokenizer, out, seq_len=64, heldout_fraction=0)
        corpora.append(files_of(out, but=("manifest.json",)))
    assert all(found == corpora[0] for found in corpora)

    folder = tmp_path / "txt"
    folder.mkdir()
    for i, text in enumerate(documents):
        (folder / f"{i:02d}.txt").write_text(text)
    out = tmp_path / "from_txt"
    prepare([str(folder / "*.txt")], tokenizer, out, seq_len=64, heldout_fraction=0)
    check_rows_against_texts(out, tokenizer, documents)


def files_of(directory: Path, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in but]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_the_number_of_workers_changes_no_byte(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenise, "TASK_BYTES", 2000)
    for i in range(6):
        records = [{"text": text} for text in tiny_corpus.texts(15 * i, longest=30, seed=i)]
        tiny_corpus.write_jsonl(tmp_path / f"{i}.jsonl", records)
    outs = [tmp_path / "one", tmp_path / "two"]
    for out, workers in zip(outs, (1, 2), strict=True):
        options = {"seq_len": 64, "workers": workers, "heldout_fraction": 0.1}
        prepare([str(tmp_path / "*.jsonl")], tokenizer, out, **options)
    one, two = map(files_of, outs)
    assert len([name for name in one if name.endswith(".array_record")]) > 2
    assert one == two


def test_manifest(tmp_path, tokenizer):
    documents = [*tiny_corpus.texts(50, longest=30, seed=2), "ba", "ba", ""]
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, documents, shard_tokens=500)
    manifest = json.loads((directory / "manifest.json").read_text())
    lengths = [len(encode(tokenizer, text)) for text in documents if text]
    assert manifest["documents"] == 52
    assert manifest["empty"] == 1
    assert manifest["duplicates"] == 1
    assert manifest["tokens"] == sum(lengths) == sum(s["tokens"] for s in manifest["shards"])
    assert sum(shard["records"] for shard in manifest["shards"]) == 52
    for file, sha in [
        *((shard["file"], shard["sha256"]) for shard in manifest["shards"]),
        *manifest["files"].items(),
        ("tokenizer.json", manifest["tokenizer"]["sha256"]),
    ]:
        assert hashlib.sha256((directory / file).read_bytes()).hexdigest() == sha
    edges, counts = manifest["length_histogram"].values()
    assert counts[edges.index(8)] == sum(8 <= length < 16 for length in lengths)
    assert sum(counts) == 52
    codec = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert manifest["tokenizer"]["special_ids"] == list(range(5))
    assert manifest["tokenizer"]["mask_id"] == codec.token_to_id("[MASK]")
    assert manifest["tokenizer"]["vocab_size"] == codec.get_vocab_size()
    assert (directory / "tokenizer_config.json").is_file()
    size = (tmp_path / "c.jsonl").stat().st_size
    assert manifest["inputs"] == [{"name": "c.jsonl", "bytes": size, "documents": 53}]
    assert str(tmp_path) not in json.dumps(manifest)


@pytest.mark.parametrize("repeat", [3, 0.5])
def test_held_out_by_the_hash_of_the_text_and_before_repeats(tmp_path, tokenizer, repeat):
    documents = tiny_corpus.texts(400, longest=20, seed=3) * 2
    settings = {"repeat": repeat, "heldout_fraction": 0.2, "seed": 9}
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, documents, **settings)
    index = np.load(directory / "documents.npy")
    hashes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in documents]
    expected = [int.from_bytes(digest, "little") < 0.2 * 2**64 for digest in hashes]
    assert index["heldout"].tolist() == expected
    assert 0.1 < np.mean(expected) < 0.3
    for split, allowed in (("train", {np.floor(repeat), np.ceil(repeat)}), ("heldout", {1})):
        pieces = np.load(directory / f"{split}.pieces.npy")
        tokens = np.bincount(pieces[:, 0], pieces[:, 2], minlength=len(documents))
        mine = index["heldout"] == (split == "heldout")
        assert set((tokens / index["length"])[mine]) == allowed
        assert not tokens[~mine].any()
        counts = open_source(directory, split).manifest["splits"][split]
        assert counts["documents"] == mine.sum()
        assert counts["tokens"] == index["length"][mine].sum()
        assert counts["row_tokens"] == tokens.sum()


def test_factors_come_from_the_repeat_field(tmp_path, tokenizer):
    texts = tiny_corpus.texts(4, longest=10, seed=4)
    factors = [0, 1, 2, 34.5]
    records = [{"body": t, "times": f} for t, f in zip(texts, factors, strict=True)]
    source = tiny_corpus.write_jsonl(tmp_path / "a.jsonl", records)
    options = {"text_field": "body", "repeat_field": "times", "heldout_fraction": 0}
    prepare([str(source)], tokenizer, tmp_path / "c", seq_len=256, **options)
    pieces = np.load(tmp_path / "c" / "train.pieces.npy")
    copies = np.bincount(pieces[pieces[:, 1] == 0, 0], minlength=4)
    assert copies[:3].tolist() == [0, 1, 2]
    assert copies[3] in (34, 35)


def test_special_tokens_in_a_text_are_text(tmp_path, tokenizer):
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, ["ba [SEP] do [MASK] [CLS]"])
    source = open_source(directory)
    ids = source[0]["input_ids"].tolist()
    info = source.tokenizer
    assert ids[0] == info["cls_id"]
    assert (ids.count(info["cls_id"]), ids.count(info["sep_id"]), ids.count(info["mask_id"])) == (
        (1, 1, 0)
    )


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        ("text", [], []),
        ("text [SEP]", [], ["[SEP]"]),
        ("[CLS] [MASK] text", ["[CLS]", "[MASK]"], []),
    ],
)
def test_templates(tmp_path, tokenizer, template, before, after):
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, ["ba do"], template=template)
    codec = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    text = codec.encode("ba do").tokens
    row = open_source(directory)[0]
    ids = row["input_ids"][row["segment_ids"] > 0].tolist()
    assert [codec.id_to_token(i) for i in ids] == before + text + after


GOOD = b'{"text": "ba do"}\n'


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", GOOD + b"\n" + b'{"text": "ba\n', "a.jsonl, line 3: "),
        ("a.jsonl", GOOD + b'{"text": "\xff"}\n', "a.jsonl, line 2: .*utf-8"),
        ("a.jsonl", GOOD + b'{"text": "\\ud800"}\n', "a.jsonl, line 2: .*surrogates"),
        ("a.jsonl", GOOD + b'{"title": "ba"}\n', "a.jsonl, line 2: no field 'text'.*'title'"),
        ("a.jsonl", GOOD + b'{"text": 3}\n', "a.jsonl, line 2: .*a string"),
        ("a.jsonl", GOOD + b'["text"]\n', "a.jsonl, line 2: a JSON list"),
        ("a.jsonl.gz", gzip.compress(GOOD * 5000)[:-20], "a.jsonl.gz, line .*[Tt]runcated"),
        ("a.jsonl.zst", GOOD, "a.jsonl.zst, line 1: "),
        ("a.parquet", GOOD, "a.parquet, line 1: "),
        ("a.txt", b"\xff", "a.txt, line 1: .*utf-8"),
        ("a.csv", GOOD, "a.csv: unknown format; allowed: .jsonl"),
        ("a.jsonl", b"\n\n", "no document to train on"),
        ("a.jsonl", b"", "no document to train on"),
        ("a.jsonl", b'{"text": "  "}\n', "no document to train on"),
    ],
)
def test_bad_inputs_are_named_and_leave_nothing(tmp_path, tokenizer, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        prepare([str(tmp_path / name)], tokenizer, tmp_path / "out")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("factor", [-1, "two", None, float("nan"), float("inf")])
def test_bad_factors(tmp_path, tokenizer, factor):
    record = {"text": "ba", "times": factor}
    source = tiny_corpus.write_jsonl(tmp_path / "a.jsonl", [{"text": "ba", "times": 1}, record])
    with pytest.raises(ValueError, match=r"a.jsonl, line 2: .*times"):
        prepare([str(source)], tokenizer, tmp_path / "out", repeat_field="times")


def test_refusals(tmp_path, tokenizer):
    source = str(tiny_corpus.write_jsonl(tmp_path / "a.jsonl", [{"text": "ba"}]))
    out = tmp_path / "out"
    for template in ("[CLS] [SEP]", "text text", "[NO] text", "ba text"):
        with pytest.raises(ValueError, match="template"):
            prepare([source], tokenizer, out, template=template)
    with pytest.raises(FileNotFoundError, match=r"nothing\*.jsonl"):
        prepare([source, str(tmp_path / "nothing*.jsonl")], tokenizer, out)
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json"):
        prepare([source], tmp_path, out)
    with pytest.raises(ValueError, match="heldout_fraction"):
        prepare([source], tokenizer, out, heldout_fraction=1.0)
    out.mkdir()
    with pytest.raises(FileExistsError, match="out exists"):
        prepare([source], tokenizer, out)


def test_opening_what_is_no_corpus(tmp_path, tokenizer):
    command = rf"python -m cpt_jax.data.prepare --input .* --out {tmp_path}/no --seq-len"
    with pytest.raises(FileNotFoundError, match=command):
        open_source(tmp_path / "no")
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, ["ba do"])
    with pytest.raises(ValueError, match="allowed: train, heldout"):
        open_source(directory, "test")
    with pytest.raises(ValueError, match=r"no document is held out.*larger --heldout-fraction"):
        open_source(directory, "heldout")
    (shard,) = (directory / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{shard}.*bytes"):
        open_source(directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps(manifest | {"version": 0}))
    with pytest.raises(ValueError, match="version 0"):
        open_source(directory)


def test_a_source_pickles_by_its_path(tmp_path, tokenizer):
    documents = tiny_corpus.texts(200, longest=60, seed=5)
    source = open_source(tiny_corpus.corpus(tmp_path / "c", tokenizer, documents))
    copy = pickle.loads(pickle.dumps(source))
    assert len(pickle.dumps(source)) < 1000
    assert copy.fingerprint == source.fingerprint
    np.testing.assert_array_equal(copy[3]["input_ids"], source[3]["input_ids"])
    with pytest.raises(IndexError):
        source[len(source)]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cpt_jax.data.prepare", *map(str, arguments)]


def test_command_line(tmp_path, tokenizer, repo):
    """Two spawned workers on files of their own; a failure in one is the command's."""
    filler = "x" * (tokenise.TASK_BYTES // 2)
    for name in ("a", "b"):
        records = [{"text": f"ba {name}", "filler": filler}, {"text": f"do {name}"}]
        tiny_corpus.write_jsonl(tmp_path / f"{name}.jsonl", records)
    inputs = ("--input", tmp_path / "a.jsonl", "--input", tmp_path / "b.jsonl")
    arguments = (*inputs, "--tokenizer", tokenizer, "--workers", 2, "--seq-len", 512, "--out")
    run = {"cwd": repo, "capture_output": True, "text": True}
    done = subprocess.run(command(*arguments, tmp_path / "out"), **run)
    assert done.returncode == 0, done.stderr
    assert "4 documents, " in done.stderr
    assert [shard["records"] for shard in open_source(tmp_path / "out").manifest["shards"]] == [
        2,
        2,
    ]

    with (tmp_path / "b.jsonl").open("a") as file:
        file.write("oops")
    done = subprocess.run(command(*arguments, tmp_path / "other"), **run)
    assert done.returncode == 1
    assert re.search(r"error: .*b.jsonl, line 3: ", done.stderr)
    assert not list(tmp_path.glob("*other*"))


def test_a_killed_prepare_leaves_nothing_that_opens(tmp_path, tokenizer, repo):
    tiny_corpus.write_jsonl(tmp_path / "a.jsonl", [{"text": "ba do " * 1000}] * 3000)
    arguments = ("--input", tmp_path / "a.jsonl", "--tokenizer", tokenizer, "--out")
    process = subprocess.Popen(command(*arguments, tmp_path / "out"), cwd=repo)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*.partial/shards/*")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    with pytest.raises(FileNotFoundError):
        open_source(next(tmp_path.glob(".out.*.partial")))


def test_real_articles(tmp_path, shared):
    """Full articles, longer than a row, with the tokenizer of ModernBERT-base."""
    tokenizer = shared / "data/tokenizers/modernbert-base"
    lines = (shared / "data/en_bio/craft_fulltext.jsonl").read_text().splitlines()[:6]
    (tmp_path / "craft.jsonl").write_text("\n".join(lines))
    inputs = [str(tmp_path / "craft.jsonl")]
    manifest = prepare(inputs, tokenizer, tmp_path / "c", seq_len=2048, heldout_fraction=0)
    ids = {name: manifest["tokenizer"][f"{name}_id"] for name in ("cls", "sep", "pad", "mask")}
    assert ids == {"cls": 50281, "sep": 50282, "pad": 50283, "mask": 50284}
    assert manifest["tokenizer"]["vocab_size"] == 50368
    check_rows_against_texts(
        tmp_path / "c", tokenizer, [json.loads(line)["text"] for line in lines]
    )
