"""What `prepare` reads besides files here: object stores, data sets by name, Hub tokenizers."""

import gzip
import io
import json
import sys
import tomllib
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_corpus
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem
from tokenizers import Tokenizer

from cpt_jax.addresses import without_keys
from cpt_jax.data.inputs import EXTRAS, Input, find_inputs, format_of, public_names
from cpt_jax.data.prepare import main, prepare

TEXTS = tiny_corpus.texts(40, longest=20, seed=1) + ["épée ‰ \U0001f9ea"]
RECORDS = [{"text": text, "id": f"d{i}", "times": 1 + i % 2} for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tiny_corpus.write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tok")


@pytest.fixture
def jsonl(tmp_path) -> Path:
    return tiny_corpus.write_jsonl(tmp_path / "a.jsonl", RECORDS)


def prepared(spec: str, tokenizer: Path, out: Path) -> tuple[dict, dict[str, bytes]]:
    """The manifest, and all other files."""
    options = {"seq_len": 64, "repeat_field": "times", "heldout_fraction": 0.2}
    manifest = prepare([spec], tokenizer, out, **options)
    files = {str(f.relative_to(out)): f.read_bytes() for f in out.rglob("*") if f.is_file()}
    del files["manifest.json"]
    return manifest, files


def test_an_object_store_gives_what_the_files_in_it_would(tmp_path, tokenizer, jsonl):
    _, expected = prepared(str(jsonl), tokenizer, tmp_path / "local")
    store = fsspec.filesystem("memory")
    half = len(RECORDS) // 2
    lines = jsonl.read_bytes().splitlines(keepends=True)
    store.pipe("/notes/1.jsonl.gz", gzip.compress(b"".join(lines[:half])))
    with store.open("/notes/2.parquet", "wb") as file:
        pq.write_table(pa.Table.from_pylist(RECORDS[half:]), file)
    try:
        manifest, found = prepared("memory://notes/*", tokenizer, tmp_path / "remote")
        assert found == expected
        assert manifest["inputs"] == [
            {"name": f"memory://{name}", "bytes": store.size(name), "documents": count}
            for name, count in (("/notes/1.jsonl.gz", half), ("/notes/2.parquet", half + 1))
        ]
        store.pipe("/notes/1.jsonl.gz", b"no gzip")
        with pytest.raises(ValueError, match=r"memory://notes/1.jsonl.gz, line 1: "):
            prepared("memory://notes/1.jsonl.gz", tokenizer, tmp_path / "c")
        with pytest.raises(FileNotFoundError, match=r"memory://notes/3.jsonl: no such file"):
            find_inputs(["memory://notes/3.jsonl"])
    finally:
        store.rm("/notes", recursive=True)


def test_a_data_set_of_hugging_face(tmp_path, tokenizer, jsonl):
    pytest.importorskip("datasets", reason="an extra: pip install '.[datasets]'")
    _, expected = prepared(str(jsonl), tokenizer, tmp_path / "local")
    spec = f"datasets:json,data_files={jsonl}"
    manifest, found = prepared(spec, tokenizer, tmp_path / "c")
    assert found == expected
    assert manifest["inputs"] == [
        {"name": "datasets:json,data_files=a.jsonl", "bytes": None, "documents": len(TEXTS)}
    ]
    with pytest.raises(ValueError, match=r"split=foo, line 1: ValueError: Bad split: foo"):
        prepared(f"{spec},split=foo", tokenizer, tmp_path / "d")
    with pytest.raises(ValueError, match=r"datasets:no/such, line 1: .*Hub"):
        prepared("datasets:no/such", tokenizer, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.filterwarnings("ignore")  # of the library and of what it stands on
def test_a_data_set_of_tensorflow_datasets(tmp_path, tokenizer, jsonl):
    tfds = pytest.importorskip("tensorflow_datasets", reason="an extra: pip install '.[tfds]'")

    class TinyNotes(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            text = tfds.features.Text()
            features = {"text": text, "id": text, "times": tfds.features.Scalar(np.int64)}
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield from enumerate(RECORDS)

    TinyNotes(data_dir=tmp_path / "tfds", file_format="array_record").download_and_prepare()
    spec = f"tfds:tiny_notes:1.0.0,data_dir={tmp_path / 'tfds'}"
    manifest, found = prepared(spec, tokenizer, tmp_path / "c")
    # The library shuffles once, when it writes: the same documents, in an order of its own.
    rows = tfds.data_source("tiny_notes", split="train", data_dir=tmp_path / "tfds")
    order = [record["id"].decode() for record in rows]
    records = sorted(RECORDS, key=lambda record: order.index(record["id"]))
    jsonl = tiny_corpus.write_jsonl(tmp_path / "b.jsonl", records)
    assert found == prepared(str(jsonl), tokenizer, tmp_path / "local")[1]
    name = "tfds:tiny_notes:1.0.0,data_dir=tfds"
    assert manifest["inputs"] == [{"name": name, "bytes": None, "documents": len(TEXTS)}]


@pytest.mark.parametrize("kind", ["datasets", "tfds"])
def test_a_library_that_is_not_installed(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, {"tfds": "tensorflow_datasets"}.get(kind, kind), None)
    with pytest.raises(ValueError, match=rf"pip install -e '.\[{kind}\]'$"):
        find_inputs([f"{kind}:notes"])


def test_extras_are_those_of_the_package(repo):
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("datasets:x,splt=train", r"'splt=train'; allowed after the name: split=\.\.\., config"),
        ("tfds:x,train", r"'train'; allowed after the name: split=\.\.\., data_dir=\.\.\.$"),
        ("datasets:,split=train", "no name; write datasets:NAME,split=train"),
        ("nostore://x/a.jsonl", "nostore://x/a.jsonl: .*[Pp]rotocol"),
    ],
)
def test_bad_names(spec, words):
    with pytest.raises((ValueError, OSError), match=words):
        find_inputs([spec])


class Failing(MemoryFileSystem):
    """A store that is asked for a file and fails, as those on a network do."""

    protocol = "failing"
    error: Exception
    whole = 0  # bytes before the fault

    def exists(self, path, **kwargs):
        if not self.whole:
            raise self.error
        return True

    def size(self, path):
        return 1 << 20

    def _open(self, path, mode="rb", **kwargs):
        store = self

        class File(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if self.tell() >= store.whole:
                    raise store.error
                return super().read(size)

        return File(b'{"text": "ba"}\n' * (self.whole // 15))


@pytest.fixture
def failing(monkeypatch) -> type[Failing]:
    fsspec.register_implementation("failing", Failing, clobber=True)
    return Failing


def test_a_store_that_is_silent(failing, monkeypatch):
    for error, words in (
        (FSTimeoutError(), "FSTimeoutError: no answer in time"),
        (RuntimeError(), "RuntimeError: no reason given"),
    ):
        monkeypatch.setattr(failing, "error", error, raising=False)
        with pytest.raises(OSError, match=rf"^--input failing://a.jsonl: {words}$"):
            find_inputs(["failing://a.jsonl"])


def test_a_connection_that_drops(failing, tmp_path, tokenizer, monkeypatch):
    """Its library's own exception, of no class that Python knows, with the address it asked."""

    class ClientPayloadError(Exception):
        pass

    # As a library may write it: not as it was typed.
    error = ClientPayloadError("cut off: 'https://host/a.jsonl?sig=planted%20too'\nand more")
    monkeypatch.setattr(failing, "error", error, raising=False)
    monkeypatch.setattr(failing, "whole", 15 * 10000)
    with pytest.raises(ValueError, match="line 10001: ClientPayloadError: cut off: ") as caught:
        prepare(["failing://someone:planted@a.jsonl"], tokenizer, tmp_path / "new" / "out")
    assert str(caught.value).endswith("cut off: 'https://host/a.jsonl'")
    assert "planted" not in str(caught.value)
    assert not (tmp_path / "new").exists()


SECRET = "https://someone:planted@host/notes/a.jsonl?signature=planted#planted"


@pytest.mark.parametrize(
    ("name", "public"),
    [
        (SECRET, "https://host/notes/a.jsonl"),
        (f"simplecache::{SECRET}", "simplecache::https://host/notes/a.jsonl"),
        (f"zip://a?.txt::{SECRET}", "zip://a?.txt::https://host/notes/a.jsonl"),
        (
            f"datasets:json,data_files={SECRET},split=test",
            "datasets:json,data_files=https://host/notes/a.jsonl,split=test",
        ),
        ("webhdfs://host/a.txt?delegation=planted", "webhdfs://host/a.txt"),
        ("s3://name:planted/+planted@bucket/a?/c.txt", "s3://bucket/a?/c.txt"),
        ("https://host:80/a@b/c.txt?token=planted@planted", "https://host:80/a@b/c.txt"),
        ("hf://datasets/owner/name@main/a.txt", "hf://datasets/owner/name@main/a.txt"),
    ],
)
def test_keys_in_a_url_are_not_written_down(tmp_path, name, public):
    inputs = [Input(name, 3), Input(str(tmp_path / "x" / "a.txt"), 1), Input("b/c.txt", 1)]
    assert public_names(inputs)[0] == public
    if "::" in name or name == SECRET:
        assert format_of(name) == Path(public).suffix
    for argument in (name, f"--config.data.sources[0].raw={name}", f"['{name}', 'a b']"):
        assert without_keys(argument) == argument.replace(name, public)


def test_keys_in_a_url_are_not_shown():
    for name in (
        "nostore://someone:planted@host/a.jsonl",
        f"simplecache::nostore::{SECRET}",
        f"datasets:json,file={SECRET}",
    ):
        with pytest.raises((ValueError, OSError)) as error:
            find_inputs([name])
        assert "planted" not in str(error.value)


def test_the_text_of_a_bad_factor_is_not_quoted(tmp_path, tokenizer):
    record = {"text": "ba", "times": "planted sentence"}
    path = tiny_corpus.write_jsonl(tmp_path / "a.jsonl", [record])
    with pytest.raises(ValueError, match="line 1: field 'times' is str; allowed") as error:
        prepare([str(path)], tokenizer, tmp_path / "out", repeat_field="times")
    assert "planted" not in str(error.value)


def test_tokenizers_that_cannot_serve(tmp_path, tokenizer, jsonl):
    full = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    content = json.loads(full.to_str())
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    for token in ("[MASK]", "[PAD]"):
        content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != token]
        content["model"]["vocab"].pop(token)
    (lacking / "tokenizer.json").write_text(json.dumps(content))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "tokenizer.json").write_text("{")
    odd = tmp_path / "odd"
    odd.mkdir()
    full.save(str(odd / "tokenizer.json"))
    (odd / "tokenizer_config.json").write_text("{")
    for place, words in (
        (lacking, r'lacking/tokenizer.json: .* no \[MASK\], \[PAD\]; .*"mask_token", "pad_token"'),
        (damaged, r"damaged/tokenizer.json: not readable as a tokenizer"),
        (odd, r"odd/tokenizer_config.json: not readable as JSON"),
        (tmp_path, r"tokenizer.json: no tokenizer; allowed: a tokenizer.json or its directory$"),
        (
            tmp_path / "none",
            r"none: no such file or directory, and not a Hub id such as answer",
        ),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            prepare([str(jsonl)], place, tmp_path / "out")
    # The part of [MASK] played by a token of another name.
    content["added_tokens"] = json.loads(full.to_str())["added_tokens"]
    content["model"]["vocab"] |= {"<hole>": full.token_to_id("[MASK]"), "[PAD]": 3}
    for token in content["added_tokens"]:
        token["content"] = token["content"].replace("[MASK]", "<hole>")
    (lacking / "tokenizer.json").write_text(json.dumps(content))
    (lacking / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<hole>"}))
    manifest = prepare([str(jsonl)], lacking, tmp_path / "out", seq_len=64)
    assert manifest["tokenizer"]["mask_id"] == full.token_to_id("[MASK]")


def test_nothing_held_out_is_said(tmp_path, tokenizer, jsonl, monkeypatch, capsys):
    arguments = ["--input", str(jsonl), "--tokenizer", str(tokenizer), "--out"]
    for fraction, warns in (("0", True), ("0.2", False)):
        out = str(tmp_path / f"c{fraction}")
        rest = [out, "--heldout-fraction", fraction, "--workers", "1"]
        monkeypatch.setattr(sys, "argv", ["prepare", *arguments, *rest])
        main()
        said = capsys.readouterr().err
        assert (f"warning: {out}: no document is held out" in said) == warns
        assert ("larger --heldout-fraction, such as 0.05" in said) == warns
