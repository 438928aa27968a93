"""Hugging Face model directories in and out, through safetensors and without torch.

The table of names is `ModelSpec.param_shapes`: our paths are Hugging Face's, except that a leaf
carries Flax's name. `hf_name` translates the leaf and `_oriented` transposes a kernel (Flax
[inputs, outputs], torch [outputs, inputs]); both serve loading and saving.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from cpt_jax.data.tokenizer import open_tokenizer
from cpt_jax.directories import whole_directory
from cpt_jax.model.modernbert import ModernBert, init_params, merge, structure
from cpt_jax.model.spec import ModelSpec
from cpt_jax.repositories import fetch

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# What is fetched from a repository: data only, never code and never pickles.
PATTERNS = (CONFIG, WEIGHTS, INDEX, "model-?????-of-?????.safetensors", *TOKENIZER)
_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


def hf_name(path: str) -> str:
    """Hugging Face's name of the parameter at one of our paths."""
    parent, leaf = path.rsplit(".", 1)
    return f"{parent}.{_LEAVES[leaf]}"


def _oriented(path: str, array: np.ndarray) -> np.ndarray:
    """From torch's layout to ours or back; the transpose is its own inverse."""
    return np.ascontiguousarray(array.T) if path.endswith(".kernel") else array


def resolve(source: str | os.PathLike, patterns: tuple[str, ...] = PATTERNS) -> Path:
    """The local directory of a model: `source` itself, its `export/` where it is a run of ours,
    or the snapshot of the Hub repository `owner/name` or `owner/name@revision`.

    Only files that match `patterns` are fetched; HF_ENDPOINT and HF_HUB_OFFLINE are honoured.
    Raises: FileNotFoundError saying what was looked for.
    """
    directory = Path(source)
    if (directory / "export").is_dir():
        return directory / "export"
    if (directory / "checkpoints").is_dir():
        raise FileNotFoundError(
            f"{directory}: a run without export/ (not finished?); "
            f"`python -m convert to-hf {directory} OUT` writes a model from its checkpoints"
        )
    if directory.is_dir():
        return directory
    return fetch(os.fspath(source), patterns)


def load_spec(source: str | os.PathLike) -> ModelSpec:
    """The size and shape of the model at `source` (see `resolve`).

    Raises: FileNotFoundError; ValueError listing what its config.json says that is not supported.
    """
    return read_spec(resolve(source) / CONFIG)


def read_spec(file: Path) -> ModelSpec:
    """The model that one config.json describes; raises like `load_spec`."""
    return ModelSpec.from_hf(read_json(file), os.fspath(file))


def read_json(file: Path) -> dict[str, Any]:
    """Returns the object in a JSON file; ValueError or FileNotFoundError names the file."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:  # of JSON, or of UTF-8
        raise ValueError(f"{file}: damaged, not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: holds a {type(content).__name__}, not an object of fields")
    return content


def load_params(
    source: str | os.PathLike, spec: ModelSpec, *, head_key: jax.Array | None = None
) -> dict[str, np.ndarray]:
    """Parameters of the model at `source` in fp32, as numpy arrays in the order of the spec.

    Reads model.safetensors, or its shards, in fp32, bf16 or fp16. `head_key` is for files that
    hold the encoder alone: where it is given, what is missing of the prediction head and the
    decoder is drawn anew with it.

    Raises: FileNotFoundError without weights; ValueError listing every fault of the tensors.
    """
    directory = resolve(source)
    tensors = _read_tensors(directory)
    return from_tensors(tensors, spec, os.fspath(directory), head_key=head_key)


def from_tensors(
    tensors: Mapping[str, np.ndarray],
    spec: ModelSpec,
    source: str,
    *,
    head_key: jax.Array | None = None,
) -> dict[str, np.ndarray]:
    """Parameters in our paths and layout, fp32, from tensors in Hugging Face's.

    An encoder saved alone (without the prefix `model.`) is accepted, and so is the `decoder.weight`
    of a tied model if it equals the embeddings. Raises: ValueError listing every fault.
    """
    if not any(name.startswith("model.") for name in tensors):
        inner = re.compile(r"(embeddings|layers|final_norm)\.")
        tensors = {f"model.{n}" if inner.match(n) else n: a for n, a in tensors.items()}
    shapes, params = spec.param_shapes(), {}
    missing, misshapen, untyped, untied = [], [], [], []
    for path, shape in shapes.items():
        array = tensors.get(hf_name(path))
        if array is None:
            missing.append(path)
            continue
        expected = shape[::-1] if path.endswith(".kernel") else shape
        if array.shape != expected:
            misshapen.append(f"{hf_name(path)} is {array.shape}, expected {expected}")
        elif array.dtype not in DTYPES.values():
            untyped.append(f"{hf_name(path)} is {array.dtype}, allowed: {', '.join(DTYPES)}")
        else:
            params[path] = _oriented(path, array).astype(np.float32)
    unknown = set(tensors) - {hf_name(path) for path in shapes}
    if spec.tie_word_embeddings and "decoder.weight" in unknown:
        unknown.remove("decoder.weight")
        embedding = tensors.get("model.embeddings.tok_embeddings.weight")
        if embedding is not None and not np.array_equal(tensors["decoder.weight"], embedding):
            untied.append(
                "decoder.weight (untied: set tie_word_embeddings to false in config.json)"
            )
    if head_key is not None and any(path.startswith(("head.", "decoder.")) for path in missing):
        drawn = init_params(spec, head_key)
        params |= {p: np.asarray(drawn[p]) for p in missing if not p.startswith("model.")}
        missing = [path for path in missing if path.startswith("model.")]
    hint = ""
    if missing and not any(path.startswith("model.") for path in missing):
        hint = (
            " (an encoder without its head; `python -m convert from-hf --new-head SEED` draws one)"
        )
    faults = {
        f"missing{hint}": [hf_name(path) for path in missing],
        "unknown": sorted(unknown),
        "of another shape": misshapen,
        "of another type": untyped,
        "not equal to the embeddings": untied,
    }
    _raise_faults(source, faults)
    return {path: params[path] for path in shapes}


def check_params(source: str, spec: ModelSpec, params: Mapping[str, Any]) -> None:
    """Raises ValueError, with all of them, for parameters that are missing, unknown or misshapen.

    `source` is what the message calls them.
    """
    shapes = spec.param_shapes()
    faults = {
        "missing": sorted(shapes.keys() - params.keys()),
        "unknown": sorted(params.keys() - shapes.keys()),
        "of another shape": [
            f"{path} is {params[path].shape}, expected {shape}"
            for path, shape in shapes.items()
            if path in params and params[path].shape != shape
        ],
    }
    _raise_faults(source, faults)


def _raise_faults(source: str, faults: Mapping[str, list[str]]):
    found = {kind: names for kind, names in faults.items() if names}
    if found:
        lines = [f"  {kind}:\n    " + "\n    ".join(names) for kind, names in found.items()]
        raise ValueError(f"{source}: tensors that do not fit the model\n" + "\n".join(lines))


def weight_files(directory: Path, whole: str, index: str) -> list[Path]:
    """The file named `whole`, or the shards that the file named `index` lists; none without both.

    Raises: FileNotFoundError for a shard that is not in the directory; ValueError for an index that
    is not one.
    """
    if (directory / whole).is_file():
        return [directory / whole]
    if not (directory / index).is_file():
        return []
    table = read_json(directory / index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise ValueError(f"{directory / index}: has no weight_map from tensors to files")
    names = sorted(set(table.values()))
    for name in names:
        if Path(name).name != name or not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / index} names a shard that is not there: {name}")
    return [directory / name for name in names]


def _read_tensors(directory: Path) -> dict[str, np.ndarray]:
    files = weight_files(directory, WEIGHTS, INDEX)
    if not files:
        raise FileNotFoundError(
            f"{directory}: neither {WEIGHTS} nor {INDEX}; "
            "`python -m convert from-hf` reads the older pytorch_model.bin"
        )
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        try:
            with safe_open(file, framework="np") as reader:
                shard = {key: reader.get_tensor(key) for key in reader.keys()}  # noqa: SIM118
        except (SafetensorError, TypeError) as error:  # TypeError: a type numpy does not have
            raise ValueError(f"{file}: not readable as safetensors: {error}") from error
        if twice := sorted(shard.keys() & tensors.keys()):
            raise ValueError(f"{file}: tensors that another shard holds too: {', '.join(twice)}")
        tensors |= shard
    return tensors


def save(
    directory: str | os.PathLike,
    spec: ModelSpec,
    params: Mapping[str, Any],
    dtype: str = "float32",
    tokenizer_dir: str | os.PathLike | None = None,
    card: str | None = None,
):
    """Write a Hugging Face directory that `AutoModelForMaskedLM` of transformers 4 and 5 loads.

    config.json, model.safetensors (`dtype`: float32, bfloat16 or float16, rounded to nearest even;
    a tied decoder not repeated), from `tokenizer_dir` the tokenizer with the model's length limit,
    and `card` as README.md. The directory appears complete or not at all.

    Raises: FileExistsError where `directory` holds something; ValueError listing parameters that
    are missing, unknown or misshapen, or for a tokenizer that is damaged or has ids beyond the
    model's vocabulary; OSError where it cannot be written (a full disk), naming `directory`.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, allowed: {', '.join(DTYPES)}")
    check_params("params", spec, params)
    tokenizer = {} if tokenizer_dir is None else _tokenizer_files(Path(tokenizer_dir), spec)
    with whole_directory(Path(directory)) as partial:
        tensors = {
            hf_name(path): _oriented(path, np.asarray(params[path]).astype(DTYPES[dtype]))
            for path in spec.param_shapes()
        }
        try:
            save_file(tensors, partial / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:  # what the library makes of a full disk
            raise OSError(str(error)) from error
        (partial / CONFIG).write_bytes(_json_bytes(spec.to_hf(dtype)))
        shutil.copymode(partial / CONFIG, partial / WEIGHTS)  # safetensors': the owner's alone
        for name, content in tokenizer.items():
            (partial / name).write_bytes(content)
        if card is not None:
            (partial / "README.md").write_text(card, "utf-8")


def _tokenizer_files(source: Path, spec: ModelSpec) -> dict[str, bytes]:
    """Each file of a tokenizer, fit for the model; byte by byte the same where it already is."""
    names = [name for name in TOKENIZER if (source / name).is_file() or name == TOKENIZER[0]]
    files = {name: read_json(source / name) for name in names}
    last = max(open_tokenizer(source / "tokenizer.json").get_vocab().values())
    if last >= spec.vocab_size:
        raise ValueError(
            f"{source / 'tokenizer.json'}: has ids up to {last} and the model only "
            f"{spec.vocab_size} words (vocab_size): they do not belong together"
        )
    if "tokenizer_config.json" not in files:
        files["tokenizer_config.json"] = _tokenizer_config(files["tokenizer.json"], spec)
    config = files["tokenizer_config.json"]
    config.pop("auto_map", None)  # names Python files, which are not exported
    config["model_max_length"] = spec.max_position_embeddings
    config.setdefault("model_input_names", ["input_ids", "attention_mask"])
    if config.get("tokenizer_class") in (None, "TokenizersBackend"):  # v4 does not know this name
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    mask = config.get("mask_token")
    mask = mask["content"] if isinstance(mask, dict) else mask
    return {
        name: _json_bytes(content)
        if _strip_left(content, mask) or name == "tokenizer_config.json"
        else (source / name).read_bytes()
        for name, content in files.items()
    }


def _tokenizer_config(tokenizer: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """For a tokenizer that comes as tokenizer.json alone: its special tokens, by id and name."""
    added = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    ids = {"cls": spec.cls_token_id, "sep": spec.sep_token_id, "pad": spec.pad_token_id}
    config = {f"{name}_token": added[i] for name, i in ids.items() if i in added}
    named = {"mask_token": "[MASK]", "unk_token": "[UNK]"}
    return config | {key: token for key, token in named.items() if token in added.values()}


def _strip_left(content: Any, mask: str | None) -> bool:
    """Let the mask token swallow the space before it; True if that changed `content`.

    Training puts [MASK] where "word with its space" was; without lstrip "a [MASK]" gives a space
    token before the mask, which the model never saw.
    """
    changed = False
    if isinstance(content, dict):
        if content.get("content") == mask and content.get("lstrip") is False:
            content["lstrip"] = changed = True
        content = list(content.values())
    if isinstance(content, list):
        for item in content:
            changed |= _strip_left(item, mask)
    return changed


def _json_bytes(content: Any) -> bytes:
    return f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode()


def from_pretrained(
    source: str | os.PathLike, dtype: Any = jnp.float32, *, head_key: jax.Array | None = None
) -> ModernBert:
    """The model at `source` (a Hugging Face directory or id, or a run of ours), ready to call.

    `model(input_ids)` gives logits [B, L, V], last_hidden_state [B, L, D] and, on request,
    hidden_states. Parameters are fp32; `dtype` is that of the computation. `head_key` and what is
    raised: see `load_params`.
    """
    spec = load_spec(source)
    params = load_params(source, spec, head_key=head_key)
    arrays = {path: jnp.asarray(array) for path, array in params.items()}
    return merge(structure(spec, dtype=dtype), arrays)
