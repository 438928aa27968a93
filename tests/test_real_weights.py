"""A checkpoint that was really trained, on real text: what it predicts here and in transformers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from cpt_jax.model import hub, modernbert
from cpt_jax.training import objectives
from cpt_jax.training.step import make_eval_step

LENGTH = 128


@pytest.fixture(scope="module")
def exported(shared, tmp_path_factory):
    """The checkpoint, read and written again."""
    source = shared / "models" / "mini-base"
    spec = hub.load_spec(source)
    out = tmp_path_factory.mktemp("model") / "export"
    hub.save(out, spec, hub.load_params(source, spec), tokenizer_dir=source)
    return out


@pytest.fixture(scope="module")
def batch(shared, exported):
    """Sixteen texts, one a row, cut or padded to one length."""
    tokenizer = Tokenizer.from_file(str(exported / "tokenizer.json"))
    ids = np.zeros((16, LENGTH), np.int32)
    segments = np.zeros_like(ids)
    with (shared / "data" / "en_bio" / "medquad.jsonl").open() as lines:
        for row, line in zip(range(len(ids)), lines, strict=False):
            tokens = tokenizer.encode(json.loads(line)["text"]).ids[: LENGTH - 8 * (row % 4)]
            ids[row, : len(tokens)] = tokens
            segments[row, : len(tokens)] = 1
    return {
        "input_ids": jnp.asarray(ids),
        "segment_ids": jnp.asarray(segments),
        "ordinals": jnp.arange(len(ids), dtype=jnp.uint32),
    }


@pytest.mark.torch
def test_masked_token_loss_and_accuracy_equal_transformers(exported, batch, monkeypatch):
    """On the same masks: the evaluation of a run is what a colleague would measure."""
    spec = hub.load_spec(exported)
    params = {k: jnp.asarray(v) for k, v in hub.load_params(exported, spec).items()}
    vocabulary = objectives.Vocabulary(spec.vocab_size, mask_id=4, special_ids=(0, 1, 2, 3, 4))
    # The targets of the evaluation, as it makes them itself.
    made = []
    masked_token = objectives.masked_token

    def recording(*args, **kwargs):
        made.append(masked_token(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(objectives, "masked_token", recording)
    evaluate = make_eval_step(modernbert.structure(spec), 0.15, vocabulary)
    sums, targets = jax.device_get(jax.jit(lambda b: (evaluate(params, b), made[-1]))(batch))

    model = transformers.AutoModelForMaskedLM.from_pretrained(exported).eval()
    attention = torch.from_numpy(np.asarray(batch["segment_ids"]).astype(np.int64))
    ids = torch.from_numpy(targets.input_ids.astype(np.int64))
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=attention).logits
    positions = torch.from_numpy(targets.positions.astype(np.int64))
    labels = torch.from_numpy(targets.labels.astype(np.int64))
    chosen = logits[torch.arange(len(ids))[:, None], positions]
    used = labels != objectives.IGNORE
    nll = torch.nn.functional.cross_entropy(chosen[used], labels[used], reduction="sum").item()
    correct = (chosen[used].argmax(-1) == labels[used]).sum().item()

    assert sums["mlm"].count == used.sum().item() > 100
    assert sums["mlm"].nll == pytest.approx(nll, rel=1e-5)
    assert abs(sums["mlm"].correct - correct) / sums["mlm"].count <= 1e-3
    assert sums["mlm"].nll / sums["mlm"].count < 7  # of 9.0 for a guess: it is a trained model


@pytest.mark.torch
@pytest.mark.parametrize(
    ("sentence", "answer"),
    [
        ("He was born in the United [MASK] of America.", "States"),
        ("She graduated from the University [MASK] California.", "of"),
    ],
)
def test_an_exported_model_fills_masks(exported, sentence, answer):
    """A mask token that leaves a lone space before it gives nonsense here."""
    fill = transformers.pipeline("fill-mask", model=str(exported), top_k=3)
    answers = [found["token_str"].strip() for found in fill(sentence)]
    assert answer in answers
