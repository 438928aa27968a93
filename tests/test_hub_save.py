"""What the hub writes: read alike by transformers 4 and 5, bit for bit, whole or not at all."""

import hashlib
import json
import resource
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_hub
import torch
import transformers
from safetensors.torch import load_file

from cpt_jax.model import hub

pytestmark = pytest.mark.torch
IDS = np.random.default_rng(1).integers(3, 120, (2, 230))


@pytest.fixture(scope="module")
def model():
    return tiny_hub.reference()


@pytest.fixture
def source(tmp_path, model):
    return tiny_hub.write(tmp_path / "source", tiny_hub.v5(model), tiny_hub.tensors(model))


def convert(source: Path, target: Path, dtype: str = "float32", tokenizer_dir=None) -> Path:
    spec = hub.load_spec(source)
    hub.save(target, spec, hub.load_params(source, spec), dtype, tokenizer_dir)
    return target


def header(file: Path) -> dict:
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length])


def assert_same_tensors(our_file: Path, their_file: Path):
    ours, theirs = load_file(our_file), load_file(their_file)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"norm_bias": True, "mlp_bias": True, "attention_bias": True, "classifier_bias": True},
        {"decoder_bias": False, "tie_word_embeddings": False},
    ],
)
def test_round_trip_is_bit_exact(tmp_path, change):
    model = tiny_hub.reference(**change)
    source = tiny_hub.write(tmp_path / "in", tiny_hub.v5(model), tiny_hub.tensors(model))
    once = convert(source, tmp_path / "once")
    assert_same_tensors(once / hub.WEIGHTS, source / hub.WEIGHTS)
    twice = convert(once, tmp_path / "twice")
    for name in ("config.json", hub.WEIGHTS):
        assert (twice / name).read_bytes() == (once / name).read_bytes()


def test_round_trip_of_really_trained_weights(tmp_path, shared):
    source = shared / "models" / "mini-base"
    assert_same_tensors(convert(source, tmp_path / "out") / hub.WEIGHTS, source / hub.WEIGHTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_loads_the_export_with_nothing_missing_or_unexpected(
    tmp_path, source, model, dtype
):
    out = convert(source, tmp_path / "out", str(dtype).removeprefix("torch."))
    loaded, report = transformers.AutoModelForMaskedLM.from_pretrained(
        out, output_loading_info=True
    )
    assert not any(report.values()), report
    assert loaded.dtype == dtype
    assert loaded.decoder.weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()
    if dtype == torch.float32:
        np.testing.assert_array_equal(tiny_hub.logits(loaded, IDS), tiny_hub.logits(model, IDS))


def test_rounded_export_is_bit_for_bit_what_torch_rounds(tmp_path, source, model):
    out = convert(source, tmp_path / "out", "bfloat16")
    parts = header(out / hub.WEIGHTS)
    assert parts.pop("__metadata__") == {"format": "pt"}
    assert "decoder.weight" not in parts
    assert {part["dtype"] for part in parts.values()} == {"BF16"}
    for name, tensor in load_file(out / hub.WEIGHTS).items():
        expected = model.state_dict()[name].to(torch.bfloat16)
        assert torch.equal(tensor.view(torch.int16), expected.view(torch.int16)), name


def test_parameters_of_jax_in_bfloat16_are_exported_too(tmp_path, source):
    spec = hub.load_spec(source)
    params = hub.load_params(source, spec)
    hub.save(tmp_path / "a", spec, params, "bfloat16")
    halves = {path: jnp.asarray(array, jnp.bfloat16) for path, array in params.items()}
    hub.save(tmp_path / "b", spec, halves, "bfloat16")
    assert_same_tensors(tmp_path / "a" / hub.WEIGHTS, tmp_path / "b" / hub.WEIGHTS)


def read_as_v4(config: dict) -> list[tuple[int | None, float]]:
    """Each layer's window and theta as transformers 4.48 to 4.57 took them from a config.

    `ModernBertAttention.__init__` there: layer i is local where i % every != 0, sees
    local_attention // 2 keys on each side, and turns by local_rope_theta unless that is None.
    """
    config = {"global_attn_every_n_layers": 3, "local_attention": 128} | config
    config = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0} | config
    layers = []
    for i in range(config["num_hidden_layers"]):
        if i % config["global_attn_every_n_layers"] != 0:
            theta = config["local_rope_theta"]
            theta = config["global_rope_theta"] if theta is None else theta
            layers.append((config["local_attention"] // 2, theta))
        else:
            layers.append((None, config["global_rope_theta"]))
    return layers


def read_as_v5(config: dict) -> list[tuple[int | None, float]]:
    """The same as transformers 5 understands it, from the modules it builds."""
    model: Any = transformers.ModernBertModel(transformers.ModernBertConfig(**config))
    layers = []
    for layer in model.layers:
        window = layer.attn.sliding_window  # one more than the keys on each side
        theta = model.config.rope_parameters[layer.attention_type]["rope_theta"]
        layers.append((None if window is None else window - 1, theta))
    return layers


@pytest.mark.parametrize(
    ("every", "thetas"),
    [(1, (80000.0, 10000.0)), (2, (160000.0, 160000.0)), (4, (160000.0, 10000.0))],
)
def test_both_generations_read_the_same_model_from_the_export(tmp_path, every, thetas):
    kinds = ("full_attention", "sliding_attention")
    rope = {
        k: {"rope_type": "default", "rope_theta": t} for k, t in zip(kinds, thetas, strict=True)
    }
    pattern = [kinds[bool(i % every)] for i in range(4)]
    model = tiny_hub.reference(layer_types=pattern, rope_parameters=rope)
    source = tiny_hub.write(tmp_path / "in", tiny_hub.v5(model), tiny_hub.tensors(model))
    out = convert(source, tmp_path / "out")
    config = json.loads((out / "config.json").read_text())

    v4_only = {k: v for k, v in config.items() if k not in ("layer_types", "rope_parameters")}
    names = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    v5_only = {k: v for k, v in config.items() if k not in names}
    truth = [(8 if i % every else None, thetas[bool(i % every)]) for i in range(4)]
    assert read_as_v4(v4_only) == read_as_v5(v5_only) == read_as_v5(config) == truth

    expected = tiny_hub.logits(model, IDS)
    for name, form in {"v4": v4_only, "v5": v5_only}.items():
        directory = tiny_hub.write(tmp_path / name, form, load_file(out / hub.WEIGHTS))
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(directory)
        np.testing.assert_array_equal(tiny_hub.logits(loaded, IDS), expected, err_msg=name)


def test_a_pattern_that_v4_cannot_express_stops_v4_and_not_v5(tmp_path):
    pattern = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    model = tiny_hub.reference(layer_types=pattern)
    source = tiny_hub.write(tmp_path / "in", tiny_hub.v5(model), tiny_hub.tensors(model))
    config = json.loads((convert(source, tmp_path / "out") / "config.json").read_text())
    assert [window for window, _ in read_as_v5(config)] == [8, None, None, 8]
    with pytest.raises(TypeError):
        read_as_v4(config)


# --- the tokenizer ---


def write_tokenizer(directory: Path, config: dict | None, mask_lstrip: bool = True) -> Path:
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "Ġthe", "the", "heart", "Ġheart", "Ġ"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(words[:4])
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=mask_lstrip, normalized=False)])
    special = [("[CLS]", 1), ("[SEP]", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=special
    )
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    if config is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "mask", "unk")}


@pytest.mark.parametrize(
    "config",
    [
        TOKENS | {"model_max_length": 10**30, "tokenizer_class": "PreTrainedTokenizerFast"},
        TOKENS | {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"},
        None,  # a prepared corpus carries tokenizer.json alone
    ],
)
def test_exported_tokenizer_honours_the_length_limit_of_the_model(tmp_path, source, config):
    made = write_tokenizer(tmp_path / "tokenizer", config)
    out = convert(source, tmp_path / "out", tokenizer_dir=made)
    written = json.loads((out / "tokenizer_config.json").read_text())
    assert written["model_max_length"] == 512
    assert written["tokenizer_class"] == "PreTrainedTokenizerFast"  # known to v4 and v5
    assert (out / "tokenizer.json").read_bytes() == (made / "tokenizer.json").read_bytes()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    batch = tokenizer(["the heart " * 600, "the"], truncation=True, padding=True)
    assert len(batch["input_ids"][0]) == 512
    assert batch["input_ids"][1][:4] == [1, 6, 2, 0]
    assert set(batch) == {"input_ids", "attention_mask"}  # the model takes no token_type_ids
    assert (tokenizer.mask_token_id, tokenizer.unk_token_id) == (4, 3)


def test_exported_mask_token_swallows_the_space_before_it(tmp_path, source):
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    mask = {"__type": "AddedToken", "content": "[MASK]", "special": True, **flags}
    made = write_tokenizer(tmp_path / "tokenizer", TOKENS | {"mask_token": mask}, mask_lstrip=False)
    (made / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask}))
    before = transformers.AutoTokenizer.from_pretrained(made)
    assert before("the [MASK]")["input_ids"] == [1, 6, 9, 4, 2]  # a lone space, 9
    out = convert(source, tmp_path / "out", tokenizer_dir=made)
    after = transformers.AutoTokenizer.from_pretrained(out)
    assert after("the [MASK]")["input_ids"] == [1, 6, 4, 2]


def test_exported_tokenizer_gives_the_published_ids(tmp_path, shared):
    made = shared / "data" / "tokenizers" / "modernbert-base"
    wide = tiny_hub.reference(num_hidden_layers=1, vocab_size=50368)
    source = tiny_hub.write(tmp_path / "source", tiny_hub.v5(wide), tiny_hub.tensors(wide))
    out = convert(source, tmp_path / "out", tokenizer_dir=made)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    cases = json.loads((made / "reference_ids.json").read_text())["cases"]
    assert len(cases) == 14
    for case in cases:
        assert tokenizer(case["text"])["input_ids"] == case["ids"], case["text"]


# --- whole or not at all ---


def test_nothing_is_overwritten(tmp_path, source):
    before = hashlib.sha256((source / hub.WEIGHTS).read_bytes()).hexdigest()
    with pytest.raises(FileExistsError, match="not empty"):
        convert(source, source)
    assert hashlib.sha256((source / hub.WEIGHTS).read_bytes()).hexdigest() == before
    (tmp_path / "empty").mkdir()
    convert(source, tmp_path / "empty")
    assert (tmp_path / "empty" / hub.WEIGHTS).is_file()


def test_a_failed_export_leaves_nothing_behind(tmp_path, source):
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json: no such file"):
        convert(source, tmp_path / "deep" / "out", tokenizer_dir=tmp_path)
    assert not (tmp_path / "deep").exists()
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out"
    with pytest.raises(OSError, match=f"{out}: not written, and nothing left behind: "):
        convert(source, out)


def test_a_full_disk_is_said(tmp_path, source):
    """safetensors has an exception of its own for it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "deep" / "out"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        with pytest.raises(OSError, match=f"{out}: not written, .*: File too large") as caught:
            convert(source, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "deep").exists()


def test_parameters_that_do_not_fit_are_refused_before_writing(tmp_path, source):
    spec = hub.load_spec(source)
    params = hub.load_params(source, spec)
    params["decoder.kernel"] = params.pop("decoder.bias")
    params["head.norm.scale"] = params["head.norm.scale"][:-1]
    with pytest.raises(ValueError, match="params: tensors that do not fit") as error:
        hub.save(tmp_path / "out", spec, params)
    for fault in ("missing:\n    decoder.bias", "unknown:\n    decoder.kernel", "(31,)"):
        assert fault in str(error.value)
    with pytest.raises(ValueError, match="dtype is 'fp8'"):
        hub.save(tmp_path / "out", spec, params, "fp8")
    assert not (tmp_path / "out").exists()
