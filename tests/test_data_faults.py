"""Disks that fail and corpora that were damaged: one message each, and nothing left behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_corpus

from cpt_jax.data import verify
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import open_source


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tiny_corpus.write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tok")


@pytest.fixture(scope="module")
def sound(tmp_path_factory, tokenizer) -> Path:
    texts = tiny_corpus.texts(120, longest=60, seed=0)
    path = tmp_path_factory.mktemp("sound") / "c"
    return tiny_corpus.corpus(path, tokenizer, texts, shard_tokens=1500, heldout_fraction=0.2)


@pytest.fixture
def corpus(tmp_path, sound) -> Path:
    return shutil.copytree(sound, tmp_path / "c")


FULL = """
import resource, sys
from cpt_jax.data.prepare import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))  # no file beyond 16 kB
main()
"""


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, tokenizer, repo):
    records = [{"text": text} for text in tiny_corpus.texts(400, longest=200, seed=1)]
    tiny_corpus.write_jsonl(tmp_path / "a.jsonl", records)
    out = tmp_path / "new" / "folder" / "out"
    arguments = ["--input", tmp_path / "a.jsonl", "--tokenizer", tokenizer, "--out", out]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *map(str, arguments), "--workers", "1"],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {out}: not written, and nothing left behind: ")
    assert "File too large" in last
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc, which nobody can write to")
def test_a_place_that_cannot_be_written_to(tmp_path, tokenizer):
    path = tiny_corpus.write_jsonl(tmp_path / "a.jsonl", [{"text": "ba"}])
    for out in ("/proc/corpus", path / "corpus"):
        with pytest.raises(OSError, match=f"{out}: not written, and nothing left behind: "):
            prepare([str(path)], tokenizer, out)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def shard_of(corpus: Path) -> Path:
    return sorted((corpus / "shards").iterdir())[1]


def test_a_sound_corpus(sound, capsys):
    assert list(verify.faults(sound)) == []
    assert verify.main([str(sound)]) == 0
    said = capsys.readouterr()
    assert open_source(sound).fingerprint in said.out
    assert "120 documents" in said.out
    assert not said.err


def test_verify_names_every_file_that_changed(corpus, sound, capsys):
    missing, changed = sorted((corpus / "shards").iterdir())[:2]
    missing.unlink()
    flip(changed)
    flip(corpus / "documents.npy")
    (corpus / "tokenizer.json").write_text("{}")
    found = list(verify.faults(corpus))
    names = [missing, changed, corpus / "documents.npy", corpus / "tokenizer.json"]
    assert [fault.split(":")[0] for fault in found] == [str(name) for name in names]
    assert verify.main([str(corpus), str(sound), str(corpus / "no")]) == 1
    said = capsys.readouterr()
    assert said.err.count("error: ") == 5
    assert str(sound) in said.out
    with pytest.raises(FileNotFoundError, match=missing.name):
        open_source(corpus)


def test_another_tokenizer_beside_the_data_is_refused(corpus):
    """It is what the exported model gets, and of the same size."""
    file = corpus / "tokenizer.json"
    whole = json.loads(file.read_text())
    vocabulary = whole["model"]["vocab"]
    one, other = [word for word in vocabulary if word.isalpha()][:2]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    file.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"tokenizer\.json: not the one that the text was"):
        open_source(corpus)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: truncate(shard_of(c)), r"00000-001.array_record: \d+ bytes; the manifest says"),
        (lambda c: shard_of(c).write_bytes(bytes(shard_of(c).stat().st_size)), "00000-001.*not re"),
        (lambda c: truncate(c / "train.pieces.npy"), "train.pieces.npy: not readable"),
        (
            lambda c: np.save(c / "train.pieces.npy", np.zeros((3, 3), np.uint32)),
            "train has",
        ),
        (lambda c: (c / "train.row_offsets.npy").write_bytes(b""), "row_offsets.npy: not readable"),
    ],
)
def test_a_damaged_file_is_found_when_the_corpus_is_opened(corpus, damage, words):
    damage(corpus)
    with pytest.raises(ValueError, match=words):
        open_source(corpus)
    assert len(list(verify.faults(corpus))) == 1


def test_a_shard_of_another_number_of_records(corpus):
    """Two shards of one size: only what is in them tells which is which."""
    manifest = json.loads((corpus / "manifest.json").read_text())
    manifest["shards"][1]["records"] += 1
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"00000-001.array_record: \d+ records; the manifest says"):
        open_source(corpus)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "manifest.json: damaged .*prepare the corpus again"),
        ("[]", "manifest.json: damaged .*prepare the corpus again"),
        ("{}", "manifest.json: damaged .*version"),
        ('{"version": 1}', "manifest.json: damaged .no template, seq_len"),
        ('{"version": 99}', "layout version 99; this code reads 1: prepare the corpus again"),
    ],
)
def test_damaged_manifests(corpus, content, words):
    (corpus / "manifest.json").write_text(content)
    for check in (open_source, lambda path: list(verify.faults(path))):
        with pytest.raises(ValueError, match=words):
            check(corpus)


def test_the_fingerprint_tells_template_tokenizer_and_text(tmp_path, tokenizer):
    other = tiny_corpus.write_tokenizer(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace("[UNK]", "[ONK]"))
    texts = tiny_corpus.texts(9, longest=20, seed=2)
    changes = [{}, {"template": "text [SEP]"}, {"seq_len": 32}, {"seed": 1}]
    corpora = [
        tiny_corpus.corpus(tmp_path / f"c{i}", tokenizer, texts, **change)
        for i, change in enumerate(changes)
    ]
    corpora.append(tiny_corpus.corpus(tmp_path / "t", other, texts))
    corpora.append(tiny_corpus.corpus(tmp_path / "u", tokenizer, [*texts[:-1], "no"]))
    prints = [open_source(path).fingerprint for path in corpora]
    assert len(set(prints)) == len(prints)
    again = tmp_path / "again" / "c0"
    again.parent.mkdir()
    assert open_source(tiny_corpus.corpus(again, tokenizer, texts)).fingerprint == prints[0]
