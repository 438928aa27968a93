"""Tiny ModernBERT checkpoints as transformers writes them, for the tests of hub and convert."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (gives numpy bfloat16)
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

SIZES: dict[str, Any] = {
    "vocab_size": 120, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 4,
    "num_attention_heads": 2, "local_attention": 16, "max_position_embeddings": 512,
    "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def reference(**changes) -> transformers.ModernBertForMaskedLM:
    """A model whose weights are far from their initial values, where errors would hide."""
    torch.manual_seed(0)
    fields: dict[str, Any] = SIZES | changes
    model = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**fields))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(1.5 * torch.randn_like(parameter) / parameter.shape[1] ** 0.5)
            elif name.endswith("bias"):
                parameter.copy_(0.5 * torch.randn_like(parameter))
            else:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
    return model.eval()


def tensors(model: transformers.ModernBertForMaskedLM) -> dict[str, torch.Tensor]:
    """What transformers saves of a tied model: no decoder.weight."""
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["decoder.weight"]
    return state


def v5(model: transformers.ModernBertForMaskedLM) -> dict:
    """The config.json that transformers 5 writes."""
    return json.loads(model.config.to_json_string())


def v4(model: transformers.ModernBertForMaskedLM, every: int = 3) -> dict:
    """The same model as transformers 4 wrote it."""
    config = v5(model)
    del config["layer_types"]
    rope = config.pop("rope_parameters")
    return config | {
        "global_attn_every_n_layers": every,
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
        "transformers_version": "4.56.1",
    }


def write(directory: Path, config: dict, state: dict[str, torch.Tensor]) -> Path:
    """A directory of config.json and model.safetensors."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def logits(model: transformers.ModernBertForMaskedLM, ids: np.ndarray) -> np.ndarray:
    """transformers' logits of the ids [B, L]."""
    with torch.no_grad():
        return model(torch.from_numpy(ids.astype(np.int64))).logits.numpy()
