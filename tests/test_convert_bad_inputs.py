"""Whatever is wrong with a model directory: one message, exit code 2, nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_hub
import tiny_run
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from convert.__main__ import main
from cpt_jax.model import hub

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model():
    return tiny_hub.reference(num_hidden_layers=1, vocab_size=128)  # its tokenizer has 125 words


@pytest.fixture
def source(tmp_path, model):
    tiny_run.tokenizer(tmp_path / "model")
    return tiny_hub.write(tmp_path / "model", tiny_hub.v5(model), tiny_hub.tensors(model))


def config_with(**fields):
    def change(directory: Path):
        file = directory / hub.CONFIG
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return change


def truncate(directory: Path):
    file = directory / hub.WEIGHTS
    file.write_bytes(file.read_bytes()[:-100])


def empty(directory: Path):
    for file in directory.iterdir():
        file.unlink()


def sharded(index: str):
    def change(directory: Path):
        (directory / hub.WEIGHTS).unlink()
        (directory / hub.INDEX).write_text(index)

    return change


def text_in(name: str, text: bytes):
    return lambda directory: (directory / name).write_bytes(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (empty, "config.json: no such file"),
        (truncate, "model.safetensors: not readable as safetensors"),
        (text_in(hub.WEIGHTS, b""), "model.safetensors: not readable as safetensors"),
        (text_in(hub.CONFIG, b"{"), "config.json: damaged, not JSON"),
        (text_in(hub.CONFIG, b"\xff{}"), "config.json: damaged, not JSON"),
        (text_in(hub.CONFIG, b"[]"), "config.json: holds a list, not an object"),
        (config_with(auto_map={"AutoModel": "modeling.Evil"}), "auto_map is {'AutoModel'"),
        (config_with(model_type="bert"), "model_type is 'bert', allowed: 'modernbert'"),
        (sharded("{"), "index.json: damaged, not JSON"),
        (sharded('{"weight_map": 3}'), "index.json: has no weight_map"),
        (sharded('{"weight_map": {"a": "../b"}}'), "names a shard that is not there: ../b"),
        (text_in("tokenizer.json", b"{"), "tokenizer.json: damaged, not JSON"),
        (text_in("tokenizer.json", b"{}"), "tokenizer.json: not readable as a tokenizer"),
    ],
)
def test_a_damaged_directory_is_one_message(source, tmp_path, capsys, damage, message):
    damage(source)
    assert main(["from-hf", str(source), str(tmp_path / "new" / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(source) in error
    assert "Traceback" not in error
    assert not (tmp_path / "new").exists()


def test_all_tensors_that_do_not_fit_are_listed_at_once(tmp_path, model, capsys):
    state = tiny_hub.tensors(model)
    del state["head.norm.weight"]
    state["lm.weight"] = torch.zeros(1)
    # A vocabulary resized without the decoder's bias.
    table = "model.embeddings.tok_embeddings.weight"
    state[table] = torch.cat([state[table], torch.zeros(8, 32)])
    source = tiny_hub.write(tmp_path / "model", tiny_hub.v5(model) | {"vocab_size": 136}, state)
    assert main(["from-hf", str(source), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    for fault in ("missing", "head.norm.weight", "unknown:\n    lm.weight"):
        assert fault in error
    assert "decoder.bias is (128,), expected (136,)" in error
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_more_entries_than_the_model_is_refused(source, tmp_path, capsys):
    smaller = tiny_hub.reference(num_hidden_layers=1, vocab_size=120)
    tiny_hub.write(source, tiny_hub.v5(smaller), tiny_hub.tensors(smaller))
    assert main(["from-hf", str(source), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "tokenizer.json: has ids up to 124 and the model only 120 words" in error
    assert not (tmp_path / "out").exists()


def test_code_of_a_model_directory_is_neither_run_nor_copied(source, tmp_path):
    trace = tmp_path / "was-here"
    for name in ("modeling_evil.py", "tokenization_evil.py"):
        (source / name).write_text(f"open({str(trace)!r}, 'w')\n")
    words = {"auto_map": {"AutoTokenizer": ["tokenization_evil.Evil", None]}}
    (source / "tokenizer_config.json").write_text(json.dumps(words))
    out = tmp_path / "out"
    assert main(["from-hf", str(source), str(out)]) == 0
    assert main(["verify", str(source), "--reference", "torch", "--tokens", "9"]) == 0
    assert not trace.exists()
    assert not list(out.glob("*.py"))
    assert all("auto_map" not in file.read_text() for file in out.glob("*.json"))


def test_verify_says_that_tokenizers_differ(source, tmp_path, capsys):
    other = tmp_path / "other"
    assert main(["from-hf", str(source), str(other)]) == 0
    assert main(["verify", str(source), str(other), "--tokens", "9"]) == 0
    changed = json.loads((other / "tokenizer.json").read_text())
    words = changed["model"]["vocab"]
    words["w1"], words["w2"] = words["w2"], words["w1"]
    (other / "tokenizer.json").write_text(json.dumps(changed))
    assert main(["verify", str(source), str(other), "--tokens", "9"]) == 1
    assert "their tokenizers differ: 2 entries, such as 'w1', 'w2'" in capsys.readouterr().out


@pytest.mark.parametrize("tokens", [[], ["--tokens", "9"]])
def test_verify_names_a_damaged_tokenizer(source, tmp_path, capsys, tokens):
    assert main(["from-hf", str(source), str(tmp_path / "other")]) == 0
    file = source / "tokenizer.json"
    file.write_text("{")
    assert main(["verify", str(source), str(tmp_path / "other"), *tokens]) == 2
    assert f"error: {file}: not readable as a tokenizer: " in capsys.readouterr().err


def test_verify_needs_tokens(source, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("")
    arguments = ["verify", str(source), str(source), "--text", str(tmp_path / "empty.txt")]
    assert main(arguments) == 2  # its tokenizer adds nothing
    assert "no tokens in it" in capsys.readouterr().err
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    tokenizer.save(str(source / "tokenizer.json"))
    assert main(arguments) == 0
    assert "2 tokens" in capsys.readouterr().out
    for count in ("0", "-3", "many"):
        with pytest.raises(SystemExit) as stopped:
            main(["verify", str(source), str(source), "--tokens", count])
        assert stopped.value.code == 2
        assert "is not a whole number above 0" in capsys.readouterr().err


def test_a_batch_of_no_rows_gives_no_logits(source):
    built = hub.from_pretrained(source)
    out = built(np.zeros((0, 8), np.int32))
    assert out.logits.shape == (0, 8, 128)
    with pytest.raises(ValueError, match=r"input_ids: \[2, 0\] holds no token"):
        built(np.zeros((2, 0), np.int32))
