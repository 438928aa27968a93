"""Hugging Face's loss on corrupted rows, for a check of ours."""

from pathlib import Path

import numpy as np

from convert.verify import torch_model

IGNORE = -100


def torch_loss(directory: Path, rows: Path) -> float:
    """Returns the mean loss (nats) over all targets, by transformers, every document alone.

    Args:
      directory: a Hugging Face model.
      rows: an .npz of ``input_ids`` and ``segment_ids`` [B, L], ``positions`` and ``labels``
        [B, C]; a label of -100 is none.
    """
    import torch

    model = torch_model(directory)
    with np.load(rows) as file:
        arrays = [file[name] for name in ("input_ids", "segment_ids", "positions", "labels")]
    total = count = 0
    for ids, segments, positions, labels in zip(*arrays, strict=True):
        whole = np.full(len(ids), IGNORE)
        whole[positions[labels != IGNORE]] = labels[labels != IGNORE]
        for document in range(1, segments.max() + 1):
            inside = segments == document
            wanted = torch.from_numpy(whole[inside].astype(np.int64))
            with torch.no_grad():
                logits = model(torch.from_numpy(ids[inside].astype(np.int64))[None]).logits[0]
            loss = torch.nn.functional.cross_entropy(
                logits, wanted, ignore_index=IGNORE, reduction="sum"
            )
            total += float(loss)
            count += int((wanted != IGNORE).sum())
    return total / max(count, 1)
