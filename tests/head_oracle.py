"""transformers' ModernBERT with weights worth comparing on, in PyTorch's names and in ours."""

import numpy as np
import torch

from cpt_jax.model.spec import ModelSpec


def enlarge(model: torch.nn.Module) -> None:
    """Weights so large that an error shows: as initialised, a layer adds next to nothing."""
    torch.manual_seed(0)
    with torch.no_grad():
        for path, x in model.named_parameters():
            if x.ndim == 2:
                x.mul_(4)
            elif path.endswith("bias"):
                x.copy_(0.5 * torch.randn_like(x))
            else:
                x.copy_(1 + 0.3 * torch.randn_like(x))


def in_our_names(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Parameters or gradients of transformers' model, by our paths and in our orientation."""
    ours = {}
    for path, x in tensors.items():
        module, _, leaf = path.rpartition(".")
        if leaf == "weight":
            is_table = module.endswith("tok_embeddings")
            leaf = "embedding" if is_table else "kernel" if x.ndim == 2 else "scale"
            x = x if is_table or x.ndim == 1 else x.T
        ours[f"{module}.{leaf}"] = x.detach().numpy().copy()
    return ours


def config_of(spec: ModelSpec, labels: int, **more) -> dict:
    """transformers' config of a model with so many labels."""
    names = {str(i): f"label {i}" for i in range(labels)}
    return spec.to_hf() | {"id2label": names, **more}
