"""Two models on the same tokens, compared after every layer."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cpt_jax.data.tokenizer import open_tokenizer, other_words
from cpt_jax.model import hub

# Long enough that tokens fall outside each other's local window, in both languages of the paper.
SENTENCES = """\
The patient, a 67-year-old man with type 2 diabetes, was admitted with chest pain and dyspnoea.
Le patient, âgé de 67 ans et diabétique de type 2, est hospitalisé pour douleur thoracique.
An electrocardiogram showed ST-segment elevation in leads II, III and aVF.
L'électrocardiogramme montre un sus-décalage du segment ST en inférieur.
He was given aspirin 300 mg and ticagrelor 180 mg, and taken to the catheterisation laboratory.
Il reçoit 300 mg d'aspirine et 180 mg de ticagrélor avant la coronarographie.
Troponin I rose from 0.04 to 12.7 ng/mL within six hours; creatinine was 1.1 mg/dL.
La troponine I passe de 0,04 à 12,7 ng/mL en six heures ; la créatinine est à 97 µmol/L.
Metformin was stopped for 48 hours because of the contrast agent, then restarted.
La metformine est arrêtée pendant 48 heures en raison du produit de contraste, puis reprise.
No family history of sudden death; the mother has hypertension, the brother had a stroke at 59.
Pas de mort subite dans la famille ; mère hypertendue, frère victime d'un AVC à 59 ans.
The left ventricular ejection fraction was 45 % on day three, without pericardial effusion.
La fraction d'éjection du ventricule gauche est à 45 % au troisième jour, sans épanchement.
"""


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far two models are apart in one place; `relative` to the largest value of the first."""

    name: str
    absolute: float
    relative: float


def encode(text: str, directories: Sequence[Path], max_tokens: int) -> np.ndarray:
    """Token ids [L] of a text by the first tokenizer.json in the directories.

    Raises: FileNotFoundError where there is none; ValueError for one that is damaged.
    """
    for directory in directories:
        if (directory / "tokenizer.json").is_file():
            tokenizer = open_tokenizer(directory / "tokenizer.json")
            tokenizer.enable_truncation(max_tokens)
            return np.array(tokenizer.encode(text).ids, np.int32)
    raise FileNotFoundError(
        f"no tokenizer.json in {', '.join(map(str, directories))}: use --tokens"
    )


def tokenizer_difference(a: Path, b: Path) -> str | None:
    """How the vocabularies of two directories differ; None where they do not, or one has none."""
    files = [directory / "tokenizer.json" for directory in (a, b)]
    if not all(file.is_file() for file in files):
        return None
    other = other_words(*files)
    return f"{len(other)} entries, such as {', '.join(map(repr, other[:3]))}" if other else None


def jax_states(directory: Path, ids: np.ndarray) -> list[np.ndarray]:
    """Hidden states [L, D] after the embeddings and each layer, then logits [L, V]; our model."""
    model = hub.from_pretrained(directory)
    with jax.default_matmul_precision("highest"):
        output = model(jnp.asarray(ids, jnp.int32)[None], output_hidden_states=True)
    assert output.hidden_states is not None
    return [np.asarray(state[0]) for state in (*output.hidden_states, output.logits)]


def torch_model(directory: Path) -> Any:
    """transformers' model of a directory, fp32; no code and no pickle of it is run."""
    import torch
    from transformers import AutoModelForMaskedLM

    return AutoModelForMaskedLM.from_pretrained(
        directory, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
    ).eval()


def torch_states(directory: Path, ids: np.ndarray) -> list[np.ndarray]:
    """The same from transformers."""
    import torch

    model = torch_model(directory)
    with torch.no_grad():
        output = model(torch.from_numpy(ids.astype(np.int64))[None], output_hidden_states=True)
    return [state[0].numpy() for state in (*output.hidden_states, output.logits)]


def differences(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> list[Difference]:
    """The difference in each place. Raises: ValueError for models of different shapes."""
    if [state.shape for state in a] != [state.shape for state in b]:
        raise ValueError("A and B have different numbers of layers or sizes: nothing to compare")
    return list(_differences(a, b))


def _differences(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Iterator[Difference]:
    names = ["embeddings", *(f"layers.{i}" for i in range(len(a) - 2)), "logits"]
    for name, ours, theirs in zip(names, a, b, strict=True):
        absolute = float(np.abs(ours - theirs).max())
        yield Difference(name, absolute, absolute / max(float(np.abs(ours).max()), 1e-30))


def table(differences: Sequence[Difference]) -> str:
    """A line for each place; the last layer's state is the one after the final norm."""
    lines = [f"{'':12s}{'max abs':>10s}{'relative':>10s}"]
    lines += [f"{d.name:12s}{d.absolute:10.1e}{d.relative:10.1e}" for d in differences]
    return "\n".join(lines)
