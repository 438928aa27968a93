import dataclasses
import json
import math
import re

import pytest

from cpt_jax.model.spec import FULL, SIZES, SLIDING, ModelSpec

F, S = FULL, SLIDING
THETAS = [(160000.0, 10000.0), (160000.0, 160000.0), (80000.0, 10000.0)]


def v4(layers=4, every=2, **more):
    """A config.json as transformers 4 wrote it."""
    return {
        "model_type": "modernbert",
        "num_hidden_layers": layers,
        "global_attn_every_n_layers": every,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        **more,
    }


def v5(layer_types=(F, S, F, S), thetas=(160000.0, 10000.0), **more):
    """A config.json as transformers 5 writes it."""
    return {
        "model_type": "modernbert",
        "num_hidden_layers": len(layer_types),
        "layer_types": list(layer_types),
        "rope_parameters": {
            F: {"rope_theta": thetas[0], "rope_type": "default"},
            S: {"rope_theta": thetas[1], "rope_type": "default"},
        },
        **more,
    }


@pytest.mark.parametrize("thetas", THETAS)
def test_both_generations_of_config_describe_the_same_model(thetas):
    old = v4(global_rope_theta=thetas[0], local_rope_theta=thetas[1])
    new = v5(thetas=thetas)
    specs = {ModelSpec.from_hf(config) for config in (old, new, old | new)}
    assert len(specs) == 1
    spec = specs.pop()
    assert (spec.global_rope_theta, spec.local_rope_theta) == thetas
    assert spec.layer_types == (F, S, F, S)


def test_defaults_are_those_of_transformers():
    spec = ModelSpec.from_hf({"model_type": "modernbert"})
    assert spec == ModelSpec()
    assert (spec.global_rope_theta, spec.local_rope_theta) == (160000.0, 10000.0)
    assert spec.layer_types[:5] == (F, S, S, F, S)


def test_null_local_theta_means_the_global_one():
    spec = ModelSpec.from_hf(v4(global_rope_theta=80000, local_rope_theta=None))
    assert (spec.global_rope_theta, spec.local_rope_theta) == (80000.0, 80000.0)


def test_theta_missing_in_the_v5_dictionary_comes_from_the_v4_key():
    config = v5(local_rope_theta=20000.0)
    del config["rope_parameters"][S]["rope_theta"]
    assert ModelSpec.from_hf(config).local_rope_theta == 20000.0


@pytest.mark.parametrize(
    ("config", "both"),
    [
        (v5(local_rope_theta=5000.0), ("10000.0", "5000.0")),
        (v5(global_rope_theta=5000.0), ("160000.0", "5000.0")),
        (v5(local_rope_theta=None), ("10000.0", "160000.0")),
        (v5(global_attn_every_n_layers=3), (S, "global_attn_every_n_layers is 3")),
    ],
)
def test_generations_that_disagree_are_refused_with_both_values(config, both):
    config.setdefault("global_rope_theta", 160000.0)
    with pytest.raises(ValueError, match="describe different models") as error:
        ModelSpec.from_hf(config)
    assert all(value in str(error.value) for value in both)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "modernbert-decoder"}, "model_type is 'modernbert-decoder'"),
        ({"hidden_activation": "mish"}, "hidden_activation is 'mish', allowed: gelu"),
        ({"classifier_activation": "tanh"}, "classifier_activation is 'tanh'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
        ({"rope_parameters": {F: {"rope_type": "yarn", "factor": 4.0}}}, "rope_type 'default'"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "allowed keys: full_attention"),
        ({"rope_theta": 10000.0}, "one theta for each layer type"),
        ({"partial_rotary_factor": 0.5}, "rotates whole heads"),
        ({"global_rope_theta": None}, "global_rope_theta is null"),
        ({"global_attn_every_n_layers": 0}, "allowed: a positive integer"),
        ({"layer_types": [F, S]}, "one for each of num_hidden_layers=4"),
        ({"layer_types": [F, "chunked", F, F]}, "layer_types"),
        ({"head_dim": 32}, "head_dim is 32, but the other fields make it 64"),
        ({"sliding_window": 128}, "sliding_window is 128, but the other fields make it 64"),
        ({"num_attention_heads": 7}, "even multiple of num_attention_heads=7"),
        ({"hidden_size": "768"}, "hidden_size is '768', allowed: int"),
        ({"norm_bias": 1}, "norm_bias is 1, allowed: bool"),
        ({"vocab_size": True}, "vocab_size is True, allowed: int"),
        ({"norm_eps": math.nan}, "norm_eps is nan"),
        ({"mlp_dropout": 1.5}, r"mlp_dropout is 1.5, allowed: a rate in \[0, 1\)"),
        ({"classifier_pooling": "max"}, "allowed: cls, mean"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0: not a field"),
        ({"auto_map": {"AutoModel": "modeling.Other"}}, "auto_map"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_would_change_the_computation_is_read_or_refused(change, message):
    config = v4() if "layer_types" not in change else v5()
    with pytest.raises(ValueError, match=message):
        ModelSpec.from_hf(config | change, "somewhere/config.json")


def test_all_faults_are_listed_together_under_the_file_name():
    config = v4(model_type="bert", rope_theta=1.0, window_kind="odd")
    with pytest.raises(ValueError, match=r"^somewhere/config.json:\n") as error:
        ModelSpec.from_hf(config, "somewhere/config.json")
    assert len(str(error.value).splitlines()) == 4


def test_switched_off_and_harmless_keys_are_accepted():
    harmless = {
        "_name_or_path": "x", "architectures": ["ModernBertModel"], "reference_compile": True,
        "deterministic_flash_attn": True, "layer_norm_eps": 1e-12, "torch_dtype": "bfloat16",
        "id2label": {"0": "A"}, "position_embedding_type": "absolute", "is_decoder": False,
        "pruned_heads": {}, "rope_scaling": None, "quantization_config": None,
    }  # fmt: skip
    assert ModelSpec.from_hf(v4() | harmless) == ModelSpec.from_hf(v4())


def test_null_cutoff_factor_is_three():
    assert ModelSpec.from_hf(v4(initializer_cutoff_factor=None)).initializer_cutoff_factor == 3.0


def test_one_dropout_key_of_hugging_face_is_two_of_ours():
    spec = ModelSpec.from_hf(v4(attention_dropout=0.1))
    assert (spec.attention_dropout, spec.attention_out_dropout) == (0.1, 0.1)
    apart = dataclasses.replace(spec, attention_dropout=0.0)
    assert ModelSpec.from_hf(spec.to_hf()) == spec
    assert ModelSpec.from_hf(apart.to_hf()) == apart
    assert "attention_out_dropout" not in spec.to_hf()


@pytest.mark.parametrize(
    ("pattern", "every"),
    [
        ((F, S, S, F, S, S, F), 3),
        ((F, F, F), 1),
        ((F,), 1),
        ((F, S, S), 3),
        ((S, S, F), None),
        ((F, F, S), None),
    ],
)
def test_every_pattern_survives_the_round_trip(pattern, every):
    spec = ModelSpec(num_hidden_layers=len(pattern), layer_types=pattern, local_rope_theta=80000.0)
    config = json.loads(json.dumps(spec.to_hf("bfloat16")))
    # Null where v4 has no word for the pattern: v4's `layer % None` stops, an absent key would not.
    assert config["global_attn_every_n_layers"] == every
    assert (config["dtype"], config["torch_dtype"]) == ("bfloat16", "bfloat16")
    assert ModelSpec.from_hf(config) == spec


def test_changed_fields_all_survive_the_round_trip():
    spec = ModelSpec(
        vocab_size=96, hidden_size=24, intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=3, layer_types=(F, F, F), local_attention=10, global_rope_theta=5e3,
        local_rope_theta=7e3, max_position_embeddings=77, norm_eps=1e-6, norm_bias=True,
        attention_bias=True, mlp_bias=True, decoder_bias=False, classifier_bias=True,
        hidden_activation="silu", classifier_activation="relu", embedding_dropout=0.1,
        attention_dropout=0.2, attention_out_dropout=0.3, mlp_dropout=0.4, classifier_dropout=0.5,
        classifier_pooling="mean", initializer_range=0.01, initializer_cutoff_factor=1.5,
        tie_word_embeddings=False, pad_token_id=1, cls_token_id=2, sep_token_id=3,
        bos_token_id=4, eos_token_id=None, causal_window=4,
    )  # fmt: skip
    default = ModelSpec()
    for field in dataclasses.fields(spec):  # a field left out above would not be tested
        assert getattr(spec, field.name) != getattr(default, field.name), field.name
    assert ModelSpec.from_hf(json.loads(json.dumps(spec.to_hf()))) == spec


def test_published_sizes(shared):
    for size, params in (("base", 149_655_232), ("large", 395_881_664)):
        assert SIZES[size].num_params == params
        file = shared / "data" / "tokenizers" / f"modernbert-{size}" / "config.json"
        assert ModelSpec.from_hf(json.loads(file.read_text())) == SIZES[size]


@pytest.mark.torch
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"norm_bias": True, "mlp_bias": True, "attention_bias": True, "classifier_bias": True},
        {"decoder_bias": False, "tie_word_embeddings": False},
    ],
)
def test_parameters_are_those_of_transformers(change):
    import torch
    import transformers

    spec = ModelSpec(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=2, pad_token_id=0, **change,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**spec.to_hf()))
    theirs = {name: tuple(p.shape) for name, p in model.named_parameters()}
    ours = {}
    for path, shape in spec.param_shapes().items():
        name = re.sub(r"\.(kernel|scale|embedding)$", ".weight", path)
        ours[name] = shape[::-1] if path.endswith(".kernel") else shape
    assert ours == theirs
    assert spec.num_params == sum(p.numel() for p in model.parameters())


def test_geometry():
    spec = SIZES["base"]
    assert (spec.head_size, spec.window) == (64, 64)
    assert dataclasses.replace(spec, local_attention=9).window == 4
    assert len({spec, SIZES["large"], dataclasses.replace(spec)}) == 2


def test_overrides_take_values_of_the_fields_own_types():
    spec = SIZES["base"].override({"norm_eps": 1, "pad_token_id": None}, "there")
    assert (spec.norm_eps, type(spec.norm_eps), spec.pad_token_id) == (1.0, float, None)
    fewer = SIZES["base"].override({"num_hidden_layers": 4}, "there")
    assert fewer.layer_types == (F, S, S, F)
    given = SIZES["base"].override({"num_hidden_layers": 1, "layer_types": [S]}, "there")
    assert given.layer_types == (S,)


def test_every_fault_of_overrides_is_listed_by_its_path():
    with pytest.raises(ValueError) as raised:
        SIZES["base"].override({"hidden_siz": 3, "vocab_size": "many", "norm_bias": 1}, "a.b")
    assert str(raised.value).splitlines() == [
        "a.b.hidden_siz: unknown field; did you mean a.b.hidden_size?",
        "a.b.vocab_size is 'many', allowed: int",
        "a.b.norm_bias is 1, allowed: bool",
    ]
    with pytest.raises(ValueError, match=r"^a\.b\.hidden_size is 100, allowed: an even"):
        SIZES["base"].override({"hidden_size": 100}, "a.b")
