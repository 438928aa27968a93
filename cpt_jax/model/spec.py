"""The size and shape of one ModernBERT, and Hugging Face's config.json both ways.

transformers wrote two generations of this file. v4 (4.48 to 4.57) says
`global_attn_every_n_layers`, `global_rope_theta`, `local_rope_theta`; v5 says `layer_types` and
`rope_parameters`. A reader of one generation ignores the other's keys in silence and takes its
defaults instead, so both are read here, compared where a file carries both, and both are written.

Sources: transformers 5.24 `configuration_modernbert.py`; transformers 4.57
`modeling_modernbert.py` for what a null `local_rope_theta` means (local layers then use the
global theta).
"""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin

from cpt_jax.model.activations import ACTIVATIONS

FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT_EVERY, DEFAULT_THETA = 3, {FULL: 160000.0, SLIDING: 10000.0}

# Keys of config.json that say nothing about what the model computes from ids in evaluation mode.
_IGNORED = frozenset(
    """model_type architectures transformers_version dtype torch_dtype id2label label2id num_labels
    problem_type finetuning_task task_specific_params sentence_transformers reference_compile
    repad_logits_with_grad deterministic_flash_attn sparse_prediction sparse_pred_ignore_index
    gradient_checkpointing layer_norm_eps position_embedding_type return_dict
    output_hidden_states output_attentions use_cache tokenizer_class temperature top_k top_p
    typical_p num_beams num_beam_groups num_return_sequences max_length length_penalty
    repetition_penalty diversity_penalty""".split()  # noqa: SIM905 (a list would be a page)
)
# Keys read below by hand; the rest of what is read are the names of ModelSpec's fields.
_ROPE = ("rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor")
_SPECIAL = frozenset({*_ROPE, "global_attn_every_n_layers", "head_dim", "sliding_window"})


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """One model, in Hugging Face's names; the defaults are ModernBERT-base's. Hashable.

    `layer_types` left empty becomes full attention at every third layer. `attention_dropout` is
    the dropout of the attention probabilities and `attention_out_dropout` that of the attention
    block's output: two knobs of the upstream research code, of which Hugging Face's config has
    one for both. `causal_window` is how many keys before a query a sliding layer sees under a
    causal mask; None is `local_attention // 2`, as without the mask. transformers'
    `ModernBertDecoder` sees one fewer. Hugging Face's encoder config knows no such key and
    ignores it.

    Raises: ValueError listing every field with a value outside what is allowed.
    """

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    layer_types: tuple[str, ...] = ()
    local_attention: int = 128
    causal_window: int | None = None
    global_rope_theta: float = DEFAULT_THETA[FULL]
    local_rope_theta: float = DEFAULT_THETA[SLIDING]
    max_position_embeddings: int = 8192
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    decoder_bias: bool = True
    classifier_bias: bool = False
    hidden_activation: str = "gelu"
    classifier_activation: str = "gelu"
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_out_dropout: float = 0.0
    mlp_dropout: float = 0.0
    classifier_dropout: float = 0.0
    classifier_pooling: str = "cls"
    initializer_range: float = 0.02
    initializer_cutoff_factor: float = 2.0
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 50283
    cls_token_id: int | None = 50281
    sep_token_id: int | None = 50282
    bos_token_id: int | None = 50281
    eos_token_id: int | None = 50282

    def __post_init__(self):
        if not self.layer_types:
            pattern = _alternating(self.num_hidden_layers, DEFAULT_EVERY)
            object.__setattr__(self, "layer_types", pattern)
        if faults := _value_faults(self):
            raise ValueError("a model that cannot be built:\n  " + "\n  ".join(faults))

    @property
    def head_size(self) -> int:
        """K, channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def window(self) -> int:
        """Keys a sliding layer sees on each side of a query (64 for `local_attention` 128)."""
        return self.local_attention // 2

    def reach(self, layer_type: str, mask_mode: str) -> int | None:
        """Keys before a query that such a layer sees under such a mask; None is all."""
        if layer_type == FULL:
            return None
        narrower = mask_mode == "causal" and self.causal_window is not None
        return self.causal_window if narrower else self.window

    @property
    def num_params(self) -> int:
        """Number of parameters, a tied decoder counted once."""
        return sum(math.prod(shape) for shape in self.param_shapes().values())

    def override(self, values: Mapping[str, Any], where: str) -> "ModelSpec":
        """This model with other values of some fields, those of a config or a command line.

        A new `num_hidden_layers` brings the usual pattern of layers, unless `layer_types` is given.

        Raises: ValueError listing every unknown field (with the nearest), wrong type and impossible
        value, under the path `where`.FIELD.
        """
        names = [field.name for field in dataclasses.fields(self)]
        faults = [
            f"{name}: unknown field; did you mean {where}.{_nearest(name, names)}?"
            for name in values
            if name not in names
        ]
        new = {name: value for name, value in values.items() if name in names}
        if "num_hidden_layers" in new:
            new = {"layer_types": (), **new}
        if isinstance(new.get("layer_types"), list):
            new["layer_types"] = tuple(new["layer_types"])
        new = _typed(dataclasses.asdict(self) | new, faults)
        if not faults:
            try:
                return type(self)(**new)
            except ValueError as error:
                faults = str(error).splitlines()[1:]
        raise ValueError("\n".join(f"{where}.{fault.strip()}" for fault in faults))

    def param_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's path and shape, in our layout (a kernel is [inputs, outputs])."""
        d, f, v = self.hidden_size, self.intermediate_size, self.vocab_size
        shapes: dict[str, tuple[int, ...]] = {"model.embeddings.tok_embeddings.embedding": (v, d)}

        def norm(path: str):
            shapes[f"{path}.scale"] = (d,)
            if self.norm_bias:
                shapes[f"{path}.bias"] = (d,)

        def linear(path: str, inputs: int, outputs: int, bias: bool):
            shapes[f"{path}.kernel"] = (inputs, outputs)
            if bias:
                shapes[f"{path}.bias"] = (outputs,)

        norm("model.embeddings.norm")
        for i in range(self.num_hidden_layers):
            layer = f"model.layers.{i}"
            if i > 0:  # the first layer's input is normalised by the embeddings already
                norm(f"{layer}.attn_norm")
            linear(f"{layer}.attn.Wqkv", d, 3 * d, self.attention_bias)
            linear(f"{layer}.attn.Wo", d, d, self.attention_bias)
            norm(f"{layer}.mlp_norm")
            linear(f"{layer}.mlp.Wi", d, 2 * f, self.mlp_bias)
            linear(f"{layer}.mlp.Wo", f, d, self.mlp_bias)
        norm("model.final_norm")
        linear("head.dense", d, d, self.classifier_bias)
        norm("head.norm")
        if not self.tie_word_embeddings:
            shapes["decoder.kernel"] = (d, v)
        if self.decoder_bias:
            shapes["decoder.bias"] = (v,)
        return shapes

    @classmethod
    def from_hf(cls, config: dict[str, Any], source: str = "config.json") -> "ModelSpec":
        """The model that a Hugging Face config.json (v4 form, v5 form, or both) describes.

        Raises: ValueError that lists every fault of the file: another architecture, a value that
        is not supported, v4 and v5 keys that disagree, an active key that is neither read nor
        known to be harmless.
        """
        faults: list[str] = []
        if config.get("model_type") != "modernbert":
            faults.append(f"model_type is {config.get('model_type')!r}, allowed: 'modernbert'")
        names = {field.name for field in dataclasses.fields(cls)}
        # A null, false, zero or empty value of an unknown key is a feature switched off.
        unknown = (
            key
            for key, value in config.items()
            if value and not key.startswith("_") and key not in names | _IGNORED | _SPECIAL
        )
        faults += [
            f"{key} is {config[key]!r}: not a field of ModernBERT "
            "(delete the key if it changes nothing)"
            for key in unknown
        ]
        values = {key: value for key, value in config.items() if key in names}
        layers = values.setdefault("num_hidden_layers", cls.num_hidden_layers)
        if type(layers) is not int:
            faults.append(f"num_hidden_layers is {layers!r}, allowed: a positive integer")
            layers = 0
        values["layer_types"] = _read_layer_types(config, layers, faults)
        values |= _read_thetas(config, values["layer_types"], faults)
        if values.get("initializer_cutoff_factor", 0) is None:
            values["initializer_cutoff_factor"] = 3.0  # transformers' reading of null
        values.setdefault("attention_out_dropout", values.get("attention_dropout", 0.0))
        values = _typed(values, faults)
        if not faults:
            try:
                spec = cls(**values)
            except ValueError as error:
                faults += str(error).splitlines()[1:]
            else:
                faults += _redundant_faults(spec, config)
                if not faults:
                    return spec
        raise ValueError(f"{source}:\n  " + "\n  ".join(fault.strip() for fault in faults))

    def to_hf(self, dtype: str = "float32") -> dict[str, Any]:
        """The config.json of this model, carrying v4 and v5 keys; `dtype` is that of its weights.

        A layer pattern that v4 cannot express gets `global_attn_every_n_layers: null`: v5 ignores
        it, and v4 stops with a TypeError, where an absent key would make it take every third layer
        in silence.
        """
        config = dataclasses.asdict(self)
        if self.attention_out_dropout == self.attention_dropout:
            del config["attention_out_dropout"]
        if self.causal_window is None:
            del config["causal_window"]
        thetas = {FULL: self.global_rope_theta, SLIDING: self.local_rope_theta}
        config |= {
            "architectures": ["ModernBertForMaskedLM"],
            "model_type": "modernbert",
            "dtype": dtype,
            "torch_dtype": dtype,  # the name before transformers 4.56
            "layer_types": list(self.layer_types),
            "global_attn_every_n_layers": _every(self.layer_types),
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in thetas.items()
            },
        }
        return dict(sorted(config.items()))


def _nearest(name: str, names: list[str]) -> str:
    return difflib.get_close_matches(name, names, n=1, cutoff=0)[0]


def _alternating(layers: int, every: int) -> tuple[str, ...]:
    return tuple(SLIDING if i % every else FULL for i in range(layers))


def _every(layer_types: tuple[str, ...]) -> int | None:
    """The smallest `global_attn_every_n_layers` that gives this pattern, None without one."""
    layers = len(layer_types)
    fits = (n for n in range(1, layers + 1) if _alternating(layers, n) == layer_types)
    return next(fits, None)


def _read_layer_types(config: dict[str, Any], layers: int, faults: list[str]) -> tuple[str, ...]:
    types, every = config.get("layer_types"), config.get("global_attn_every_n_layers")
    if every is not None and (type(every) is not int or every < 1):
        faults.append(f"global_attn_every_n_layers is {every!r}, allowed: a positive integer")
        return ()
    if types is None:
        return _alternating(layers, DEFAULT_EVERY if every is None else every)
    if not isinstance(types, list | tuple):
        faults.append(f"layer_types is {types!r}, allowed: a list")
        return ()
    if every is not None and _alternating(len(types), every) != tuple(types):
        faults.append(
            f"layer_types is {list(types)} but global_attn_every_n_layers is {every}: "
            "the v5 and v4 keys describe different models"
        )
    return tuple(types)


def _read_thetas(
    config: dict[str, Any], layer_types: tuple[str, ...], faults: list[str]
) -> dict[str, Any]:
    """`global_rope_theta` and `local_rope_theta` from the v4 and v5 keys."""
    nested = config.get("rope_parameters") or {}
    flat = {key: config.get(key) for key in _ROPE if key != "rope_parameters"}
    scaling = flat.pop("rope_scaling") or {}
    if set(scaling.values()) - {"default"} or set(scaling) - {"rope_type", "type"}:
        faults.append(f"rope_scaling is {scaling!r}, allowed: null or rope_type 'default'")
    faults += [
        f"{key} is {value!r}: ModernBERT has one theta for each layer type and rotates whole heads"
        for key, value in flat.items()
        if value is not None
    ]
    if not isinstance(nested, dict) or set(nested) - {FULL, SLIDING}:
        faults.append(f"rope_parameters is {nested!r}, allowed keys: {FULL}, {SLIDING}")
        nested = {}
    thetas = {}
    for kind, key in ((FULL, "global_rope_theta"), (SLIDING, "local_rope_theta")):
        given = nested.get(kind) or {}
        rope_type = given.get("rope_type", given.get("type", "default"))
        if rope_type != "default" or set(given) - {"rope_type", "type", "rope_theta"}:
            faults.append(f"rope_parameters.{kind} is {given!r}, allowed: rope_type 'default'")
        old, new = config.get(key), given.get("rope_theta")
        if old is None and key in config:
            if kind == FULL:
                faults.append(f"{key} is null, allowed: a positive number")
            old = thetas.get(FULL)  # in v4 a null local theta means the global one
        if old is not None and new is not None and old != new and kind in layer_types:
            faults.append(
                f"rope_parameters.{kind}.rope_theta is {new} but {key} is {old}: "
                "the v5 and v4 keys describe different models"
            )
        thetas[kind] = next(v for v in (new, old, DEFAULT_THETA[kind]) if v is not None)
    return {"global_rope_theta": thetas[FULL], "local_rope_theta": thetas[SLIDING]}


def _redundant_faults(spec: ModelSpec, config: dict[str, Any]) -> list[str]:
    """Keys that repeat what others say, where they say something else."""
    implied = {"head_dim": spec.head_size, "sliding_window": spec.window}
    return [
        f"{key} is {config[key]!r}, but the other fields make it {value}"
        for key, value in implied.items()
        if config.get(key) is not None and config[key] != value
    ]


def _typed(values: dict[str, Any], faults: list[str]) -> dict[str, Any]:
    """The values with whole numbers made floats where a float is meant; JSON has one kind."""
    values = dict(values)
    for field in dataclasses.fields(ModelSpec):
        value, hint = values.get(field.name, field.default), field.type
        kinds = get_args(hint) if isinstance(hint, UnionType) else (get_origin(hint) or hint,)
        if float in kinds and type(value) is int:
            values[field.name] = float(value)
        elif type(value) not in kinds:  # not isinstance: True is no size
            allowed = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
            faults.append(f"{field.name} is {value!r}, allowed: {allowed}")
    return values


def _value_faults(spec: ModelSpec) -> list[str]:
    faults: list[str] = []

    def need(ok: bool, name: str, allowed: str):
        if not ok:
            faults.append(f"{name} is {getattr(spec, name)!r}, allowed: {allowed}")

    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.name.endswith("_dropout"):
            need(0 <= value < 1, field.name, "a rate in [0, 1)")
        elif field.name.endswith("_activation"):
            need(value in ACTIVATIONS, field.name, ", ".join(ACTIVATIONS))
        elif field.type in (int, float):
            need(value > 0 and math.isfinite(value), field.name, "a positive number")
    narrow = spec.causal_window
    need(narrow is None or 0 <= narrow <= spec.window, "causal_window", f"0 to {spec.window}")
    need(spec.classifier_pooling in ("cls", "mean"), "classifier_pooling", "cls, mean")
    need(set(spec.layer_types) <= {FULL, SLIDING}, "layer_types", f"{FULL}, {SLIDING}")
    layers, heads = spec.num_hidden_layers, spec.num_attention_heads
    each = f"one for each of num_hidden_layers={layers} layers"
    need(len(spec.layer_types) == layers, "layer_types", each)
    whole = heads > 0 and spec.hidden_size % (2 * heads) == 0
    need(whole, "hidden_size", f"an even multiple of num_attention_heads={heads}")
    return faults


# answerdotai/ModernBERT-base and -large: 149,655,232 and 395,881,664 parameters.
SIZES = {
    "base": ModelSpec(classifier_pooling="mean"),
    "large": ModelSpec(
        hidden_size=1024,
        intermediate_size=2624,
        num_hidden_layers=28,
        num_attention_heads=16,
        classifier_pooling="mean",
    ),
}
