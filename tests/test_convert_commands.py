"""The commands of `convert`, as a user calls them."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_hub
import tiny_run
import torch
import transformers
from safetensors.torch import load_file

from convert import verify
from convert.__main__ import main
from cpt_jax import checkpoint, saving
from cpt_jax import config as config_lib
from cpt_jax.model import hub
from cpt_jax.model.spec import ModelSpec

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model():
    return tiny_hub.reference()


@pytest.fixture
def source(tmp_path, model):
    return tiny_hub.write(tmp_path / "source", tiny_hub.v4(model), tiny_hub.tensors(model))


def convert(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def pickled(directory: Path, model, *shards: dict) -> Path:
    """A directory with pytorch_model.bin, or its shards, as transformers 4 wrote them."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(tiny_hub.v4(model)))
    if len(shards) == 1:
        torch.save(shards[0], directory / "pytorch_model.bin")
        return directory
    names = {f"pytorch_model-{i:05d}-of-00002.bin": shard for i, shard in enumerate(shards)}
    for name, shard in names.items():
        torch.save(shard, directory / name)
    index = {"weight_map": {key: name for name, shard in names.items() for key in shard}}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return directory


def test_from_hf_makes_any_form_the_same(tmp_path, source, model, capsys):
    state = tiny_hub.tensors(model)
    full = state | {"decoder.weight": state["model.embeddings.tok_embeddings.weight"]}
    names = sorted(full)
    halves = [{n: full[n] for n in part} for part in (names[:9], names[9:])]
    forms = (source, pickled(tmp_path / "a", model, full), pickled(tmp_path / "b", model, *halves))
    written = []
    for i, form in enumerate(forms):
        out = tmp_path / f"out{i}"
        assert convert("from-hf", form, out) == 0
        written.append((out / hub.WEIGHTS).read_bytes() + (out / hub.CONFIG).read_bytes())
    assert written[0] == written[1] == written[2]
    said = capsys.readouterr().out
    assert f"{hub.load_spec(source).num_params:,} parameters in float32" in said
    assert "no tokenizer written" in said


def test_from_hf_writes_bfloat16_on_request(tmp_path, source, model):
    assert convert("from-hf", source, tmp_path / "out", "--dtype", "bfloat16") == 0
    for name, tensor in load_file(tmp_path / "out" / hub.WEIGHTS).items():
        assert torch.equal(tensor, model.state_dict()[name].to(torch.bfloat16)), name


class Malicious:
    """Unpickled, it would create a file."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, model, capsys):
    trace = tmp_path / "was-here"
    state = tiny_hub.tensors(model) | {"model.final_norm.weight": Malicious(trace)}
    directory = pickled(tmp_path / "evil", model, state)
    assert convert("from-hf", directory, tmp_path / "out") == 2
    assert not trace.exists()
    assert not (tmp_path / "out").exists()
    assert "pytorch_model.bin: not a file of tensors alone" in capsys.readouterr().err
    torch.load(directory / "pytorch_model.bin", weights_only=False)
    assert trace.exists()  # it was dangerous indeed


def test_what_is_not_a_dictionary_of_tensors_is_refused(tmp_path, model, capsys):
    directory = pickled(tmp_path / "nested", model, {"state": tiny_hub.tensors(model)})
    assert convert("from-hf", directory, tmp_path / "out") == 2
    assert "not a flat dictionary of tensors" in capsys.readouterr().err


def test_from_hf_draws_the_head_that_an_encoder_lacks(tmp_path, model, capsys):
    model.model.save_pretrained(tmp_path / "encoder")
    assert convert("from-hf", tmp_path / "encoder", tmp_path / "out") == 2
    assert "--new-head SEED" in capsys.readouterr().err
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert convert("from-hf", tmp_path / "encoder", tmp_path / out, "--new-head", seed) == 0
    a, b, c = ((tmp_path / out / hub.WEIGHTS).read_bytes() for out in "abc")
    assert a == b != c


# --- verify ---


def test_verify_agrees_with_transformers(source, capsys):
    assert convert("verify", source, "--reference", "torch", "--tokens", 230) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:-1]] == [
        "embeddings", "layers.0", "layers.1", "layers.2", "layers.3", "logits"
    ]  # fmt: skip
    assert said.splitlines()[-1].startswith("equal within 0.0001")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model.layers.2.mlp.Wo.weight", "layers.2"),
        ("head.norm.weight", "logits"),
    ],
)
def test_verify_says_where_two_models_part(tmp_path, source, model, name, place, capsys):
    state = tiny_hub.tensors(model)
    state[name] = state[name] * 1.01 + 0.01
    other = tiny_hub.write(tmp_path / "other", tiny_hub.v5(model), state)
    assert convert("verify", source, other, "--tokens", 230) == 1
    assert f"they first part at {place}:" in capsys.readouterr().out


def test_verify_names_the_fields_that_differ(tmp_path, source, model, capsys):
    config = tiny_hub.v4(model) | {"local_rope_theta": 160000.0}
    other = tiny_hub.write(tmp_path / "other", config, tiny_hub.tensors(model))
    assert convert("verify", source, other, "--tokens", 230) == 1
    said = capsys.readouterr().out
    assert "local_rope_theta: 10000.0 in A, 160000.0 in B" in said
    assert "they first part at layers.1" in said  # layer 0 is global
    assert convert("verify", source, other, "--tokens", 230, "--tolerance", 10) == 0


def test_verify_takes_not_a_number_for_a_difference(tmp_path, source, model):
    state = tiny_hub.tensors(model)
    state["decoder.bias"] = torch.full((120,), torch.nan)
    other = tiny_hub.write(tmp_path / "other", tiny_hub.v5(model), state)
    assert convert("verify", source, other, "--tokens", 20) == 1


def test_verify_refuses_what_it_cannot_compare(tmp_path, source, capsys):
    wide = tiny_hub.reference(hidden_size=48)
    other = tiny_hub.write(tmp_path / "wide", tiny_hub.v5(wide), tiny_hub.tensors(wide))
    assert convert("verify", source, other, "--tokens", 20) == 2
    assert convert("verify", source) == 2
    assert convert("verify", source, source) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "different numbers of layers or sizes" in errors[0]
    assert "two models, or one with --reference torch" in errors[1]
    assert "no tokenizer.json" in errors[2]


def test_differences_by_hand():
    a = [np.array([[1.0, -4.0]]), np.array([[2.0, 2.0]]), np.array([[8.0]])]
    b = [np.array([[1.0, -3.0]]), np.array([[2.0, 2.0]]), np.array([[6.0]])]
    found = verify.differences(a, b)
    assert [(d.name, d.absolute, d.relative) for d in found] == [
        ("embeddings", 1.0, 0.25),
        ("layers.0", 0.0, 0.0),
        ("logits", 2.0, 0.25),
    ]


def test_built_in_text_reaches_beyond_the_local_window(shared):
    directory = shared / "data" / "tokenizers" / "modernbert-base"
    ids = verify.encode(verify.SENTENCES, [directory], 512)
    assert 300 < len(ids) <= 512
    assert len(verify.encode(verify.SENTENCES, [directory], 100)) == 100


def test_verify_on_real_weights_and_text(shared, tmp_path):
    source = shared / "models" / "mini-base"
    text = tmp_path / "note.txt"
    text.write_text("Œdème aigu du poumon. " * 60)
    assert convert("verify", source, "--reference", "torch", "--text", text) == 0


# --- to-hf ---


@pytest.fixture(scope="module")
def run(tmp_path_factory, model):
    """A run directory of phases of two steps and one, with a checkpoint at the end of each."""
    root = tmp_path_factory.mktemp("to-hf")
    config = config_lib.parse(tiny_run.raw_config(root, clm_steps=2, decay_steps=1))
    tiny_run.tokenizer(root / "a")  # in place of the corpus, which has a tokenizer.json too
    (root / "a" / "tokenizer_config.json").unlink()
    spec = ModelSpec.from_hf(tiny_hub.v4(model) | {"vocab_size": 128})
    description = {"config": config_lib.to_dict(config), "model": spec.to_hf()}
    checkpoint.open_run(root / "run", description)
    checkpoints = saving.Checkpoints(root / "run", keep=2)
    for step in (2, 3):
        params = {p: jnp.full(shape, step + 1e-3) for p, shape in spec.param_shapes().items()}
        checkpoints.save(step, params, {"count": jnp.zeros(())}, checkpoint.Origin())
    checkpoints.close()
    return root / "run"


@pytest.mark.parametrize(("at", "step"), [("", 3), ("@clm", 2), ("@2", 2), ("@decay", 3)])
def test_to_hf_writes_the_checkpoint_asked_for(run, tmp_path, at, step, capsys):
    assert convert("to-hf", f"{run}{at}", tmp_path / "out", "--dtype", "bfloat16") == 0
    assert f"checkpoint of step {step}" in capsys.readouterr().out
    loaded, report = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(report.values()), report
    expected = torch.tensor(step + 1e-3).to(torch.bfloat16)
    assert all((parameter == expected).all() for parameter in loaded.parameters())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("w1 w2")["input_ids"] == [6, 7]
    assert tokenizer.model_max_length == 512


def test_to_hf_names_what_there_is(run, tmp_path, capsys):
    assert convert("to-hf", f"{run}@mlm", tmp_path / "out") == 2
    assert "clm, decay" in capsys.readouterr().err
    assert convert("to-hf", tmp_path, tmp_path / "out") == 2
