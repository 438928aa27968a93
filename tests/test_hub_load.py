"""What the hub takes, and what it refuses: every form of a checkpoint and every fault of one."""

import json
import re

import jax
import numpy as np
import pytest
import tiny_hub
import torch
import transformers
from safetensors.torch import save_file

import cpt_jax
from cpt_jax.model import hub, modernbert
from cpt_jax.model import spec as spec_lib
from cpt_jax.model.spec import ModelSpec

pytestmark = pytest.mark.torch
IDS = np.random.default_rng(0).integers(3, 120, (2, 230))  # far longer than the window of +-8


@pytest.fixture(scope="module")
def model():
    return tiny_hub.reference()


@pytest.fixture(scope="module")
def state(model):
    return tiny_hub.tensors(model)


@pytest.fixture
def directory(tmp_path, model, state):
    return tiny_hub.write(tmp_path / "model", tiny_hub.v5(model), state)


def load(directory, **options):
    return hub.load_params(directory, hub.load_spec(directory), **options)


@pytest.mark.parametrize(
    ("form", "thetas"),
    [("v4", (160000.0, 10000.0)), ("v5", (160000.0, 160000.0)), ("both", (80000.0, 10000.0))],
)
def test_logits_are_those_of_transformers_under_every_form_of_config(tmp_path, form, thetas):
    rope = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in zip(("full_attention", "sliding_attention"), thetas, strict=True)
    }
    model = tiny_hub.reference(rope_parameters=rope)
    expected = tiny_hub.logits(model, IDS)
    old, new = tiny_hub.v4(model), tiny_hub.v5(model)
    forms = {"v4": old, "v5": new, "both": old | new}
    assert len({ModelSpec.from_hf(config) for config in forms.values()}) == 1
    directory = tiny_hub.write(tmp_path, forms[form], tiny_hub.tensors(model))
    ours = cpt_jax.from_pretrained(directory)(IDS).logits
    # fp32 on both sides, summed in another order
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_the_theta_of_local_layers_is_seen_in_those_logits():
    """The test above could not fail if thetas hardly mattered at this length."""
    outputs = []
    for theta in (10000.0, 160000.0):
        rope = {"sliding_attention": {"rope_type": "default", "rope_theta": theta}}
        rope["full_attention"] = {"rope_type": "default", "rope_theta": 160000.0}
        outputs.append(tiny_hub.logits(tiny_hub.reference(rope_parameters=rope), IDS))
    assert np.abs(outputs[0] - outputs[1]).max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_element_is_where_it_belongs(tmp_path, model, state, dtype):
    stored = {name: tensor.to(dtype) for name, tensor in state.items()}
    params = load(tiny_hub.write(tmp_path, tiny_hub.v5(model), stored))
    assert len(params) == len(state)
    for path, array in params.items():
        assert array.dtype == np.float32
        tensor = stored[re.sub(r"\.(kernel|scale|embedding)$", ".weight", path)].float().numpy()
        np.testing.assert_array_equal(array, tensor.T if path.endswith("kernel") else tensor)


def test_spec_model_and_file_agree_on_paths_and_activations(directory):
    spec, params = hub.load_spec(directory), load(directory)
    assert list(params) == list(spec.param_shapes())
    drawn = modernbert.init_params(spec, jax.random.key(0))
    assert {path: array.shape for path, array in drawn.items()} == spec.param_shapes()
    assert set(modernbert.ACTIVATIONS) == set(spec_lib.ACTIVATIONS)


def test_pretrained_head_is_loaded_bit_for_bit(directory, state):
    model = cpt_jax.from_pretrained(directory)
    dense = np.asarray(model.head.dense.kernel)
    np.testing.assert_array_equal(dense.T, state["head.dense.weight"].numpy())
    np.testing.assert_array_equal(
        np.asarray(model.head.norm.scale), state["head.norm.weight"].numpy()
    )


def test_sharded_weights(tmp_path, model, state, directory):
    names = sorted(state)
    shards = {
        "model-00001-of-00002.safetensors": names[:7],
        "model-00002-of-00002.safetensors": names[7:],
    }
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    for file, held in shards.items():
        save_file({name: state[name] for name in held}, sharded / file)
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    (sharded / "config.json").write_text(json.dumps(tiny_hub.v5(model)))
    whole = load(directory)
    for path, array in load(sharded).items():
        np.testing.assert_array_equal(array, whole[path])

    save_file({names[0]: state[names[0]]}, sharded / "model-00002-of-00002.safetensors")
    with pytest.raises(ValueError, match=f"another shard holds too: {names[0]}"):
        load(sharded)
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="not there: model-00002"):
        load(sharded)


def test_shards_are_looked_for_in_the_directory_alone(tmp_path, directory, model):
    outside = tmp_path / "index"
    outside.mkdir()
    index = {"weight_map": {"a": "../model/model.safetensors"}}
    (outside / "model.safetensors.index.json").write_text(json.dumps(index))
    (outside / "config.json").write_text(json.dumps(tiny_hub.v5(model)))
    with pytest.raises(FileNotFoundError, match="names a shard that is not there"):
        load(outside)


def test_tied_decoder_weight_may_be_there_if_it_is_the_embeddings(tmp_path, model, state):
    embeddings = state["model.embeddings.tok_embeddings.weight"]
    config = tiny_hub.v5(model)
    same = tiny_hub.write(tmp_path / "a", config, state | {"decoder.weight": embeddings.clone()})
    assert "decoder.kernel" not in load(same)
    other = tiny_hub.write(tmp_path / "b", config, state | {"decoder.weight": embeddings + 1e-3})
    with pytest.raises(ValueError, match="tie_word_embeddings to false"):
        load(other)


def test_untied_decoder(tmp_path):
    model = tiny_hub.reference(tie_word_embeddings=False)
    directory = tiny_hub.write(tmp_path, tiny_hub.v5(model), tiny_hub.tensors(model))
    ours = cpt_jax.from_pretrained(directory)(IDS).logits
    np.testing.assert_allclose(ours, tiny_hub.logits(model, IDS), rtol=2e-4, atol=5e-4)


def test_encoder_without_prefix_needs_a_word_for_its_missing_head(tmp_path, model):
    config = tiny_hub.v5(model) | {"architectures": ["ModernBertModel"]}
    model.model.save_pretrained(tmp_path / "encoder")  # transformers writes no prefix here
    directory = tmp_path / "encoder"
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"an encoder without its head; .*--new-head SEED"
    ) as error:
        load(directory)
    assert "head.dense.weight" in str(error.value)
    assert "unknown" not in str(error.value)

    params = load(directory, head_key=jax.random.key(3))
    again = load(directory, head_key=jax.random.key(3))
    other = load(directory, head_key=jax.random.key(4))
    np.testing.assert_array_equal(params["head.dense.kernel"], again["head.dense.kernel"])
    assert not np.array_equal(params["head.dense.kernel"], other["head.dense.kernel"])
    ours = cpt_jax.from_pretrained(directory, head_key=jax.random.key(3))(IDS).last_hidden_state
    with torch.no_grad():
        theirs = model.model(torch.from_numpy(IDS)).last_hidden_state.numpy()
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-4)


def test_a_new_head_does_not_hide_a_hole_in_the_encoder(tmp_path, model, state):
    lacking = {"model.layers.2.mlp.Wi.weight", "head.dense.weight"}
    state = {name: tensor for name, tensor in state.items() if name not in lacking}
    directory = tiny_hub.write(tmp_path, tiny_hub.v5(model), state)
    with pytest.raises(ValueError, match=r"model.layers.2.mlp.Wi.weight") as error:
        load(directory, head_key=jax.random.key(0))
    assert "head.dense" not in str(error.value)


@pytest.fixture
def broken(tmp_path, model, state):
    """One fault of each kind."""
    state = dict(state)
    del state["model.final_norm.weight"]
    state["model.layers.0.attn_norm.weight"] = torch.ones(32)  # the first layer has none
    state["head.dense.weight"] = torch.ones(32, 16)
    state["decoder.bias"] = torch.ones(120, dtype=torch.int64)
    return tiny_hub.write(tmp_path / "broken", tiny_hub.v5(model), state)


def test_every_fault_is_reported_at_once_and_by_kind(broken):
    with pytest.raises(ValueError, match="tensors that do not fit the model") as error:
        load(broken)
    text = str(error.value)
    assert str(broken) in text
    kinds = dict(re.findall(r"^  (\S.*):\n    (.*)$", text, re.MULTILINE))
    assert kinds == {
        "missing": "model.final_norm.weight",
        "unknown": "model.layers.0.attn_norm.weight",
        "of another shape": "head.dense.weight is (32, 16), expected (32, 32)",
        "of another type": "decoder.bias is int64, allowed: float32, bfloat16, float16",
    }


def test_transposed_rectangles_are_misshapen_not_transposed_again(tmp_path, model, state):
    state = dict(state)
    state["model.layers.1.mlp.Wo.weight"] = state["model.layers.1.mlp.Wo.weight"].T.contiguous()
    directory = tiny_hub.write(tmp_path, tiny_hub.v5(model), state)
    with pytest.raises(ValueError, match=r"Wo.weight is \(24, 32\), expected \(32, 24\)"):
        load(directory)


def test_what_is_not_there_is_named(tmp_path, model):
    with pytest.raises(FileNotFoundError, match="no such file or directory, and not a Hub id"):
        hub.resolve(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"^https://host/model: no such file"):
        hub.resolve("https://user:word@host/model")
    with pytest.raises(FileNotFoundError, match=r"config.json: no such file"):
        hub.load_spec(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="python -m convert from-hf"):
        hub.load_params(tmp_path, ModelSpec())
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(ValueError, match="not readable as safetensors"):
        hub.load_params(tmp_path, ModelSpec())


def test_a_run_is_read_through_its_export(tmp_path, model, state):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text('{"config": {}}')  # the run's own, not a model's
    with pytest.raises(FileNotFoundError, match=r"a run without export/.*convert to-hf"):
        hub.load_spec(run)
    tiny_hub.write(run / "export", tiny_hub.v5(model), state)
    assert hub.load_spec(run).vocab_size == 120


def test_transformers_reads_the_v4_form_alike(model):
    """The v4 configs of these tests are ones that the reference itself understands."""
    again = transformers.ModernBertConfig(**tiny_hub.v4(model))
    assert again.layer_types == model.config.layer_types
    assert again.rope_parameters == model.config.rope_parameters
