"""A small grader: an encoder with a head for each grade, trained on what an LLM graded.

As in Biomed-Enriched (Touchent et al. 2025): the encoder is shared, each grade has one linear layer
on the first token; the educational value is learnt by squared error, the other two by
cross-entropy, and the three are summed.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike
from optax.losses import softmax_cross_entropy_with_integer_labels as cross_entropy
from safetensors.numpy import load_file, save_file

from cpt_jax.curate.grades import CONTENTS, DOMAINS, SCORES, Grade
from cpt_jax.directories import whole_directory
from cpt_jax.finetune.batches import Shapes, in_order
from cpt_jax.finetune.encode import Vocabulary, open_vocabulary
from cpt_jax.finetune.head import Batch, Head, Sums
from cpt_jax.finetune.network import Network
from cpt_jax.finetune.rows import Row
from cpt_jax.model import hub, modernbert
from cpt_jax.model.layers import truncated_normal
from cpt_jax.model.modernbert import Hidden, Key, Params
from cpt_jax.model.spec import ModelSpec
from cpt_jax.parsing import parse_as
from cpt_jax.training.step import compiler_options

ENCODER, HEADS, ABOUT = "encoder", "heads.safetensors", "grader.json"
MIDDLE = 3.0  # of the educational scale: where its layer begins


class GraderHead(Head):
    """A linear layer for each grade, on the first token; fp32."""

    def __init__(self, spec: ModelSpec, *, rngs: nnx.Rngs):
        init = truncated_normal(spec, spec.hidden_size**-0.5)

        def linear(outputs: int) -> nnx.Linear:
            return nnx.Linear(
                spec.hidden_size, outputs, kernel_init=init, dtype=jnp.float32, rngs=rngs
            )

        self.educational = linear(1)
        self.content = linear(len(CONTENTS))
        self.domain = linear(len(DOMAINS))

    def __call__(self, hidden: Hidden, batch: Batch, dropout_key: Key) -> dict[str, Array]:
        """The educational value [B], logits of content [B, 4] and domain [B, 3]."""
        del batch, dropout_key
        first = hidden[:, 0].astype(jnp.float32)
        return {
            "educational": MIDDLE + self.educational(first)[:, 0],
            "content": self.content(first),
            "domain": self.domain(first),
        }

    def loss(self, scores: dict[str, Array], batch: Batch) -> Sums:
        """Squared error and two cross-entropies of each row, summed, and the rows' weight."""
        each = jnp.square(scores["educational"] - batch["educational"])
        for name in ("content", "domain"):
            each += cross_entropy(scores[name], batch[name])
        weight = batch["weight"]
        return jnp.where(weight > 0, weight * each, 0).sum(), weight.sum()

    def predict(self, scores: dict[str, Array], batch: Batch) -> dict[str, Array]:
        """The educational value [B], and probabilities of content [B, 4] and domain [B, 3]."""
        probabilities = {name: jax.nn.softmax(scores[name]) for name in ("content", "domain")}
        return {"educational": scores["educational"], **probabilities}


@dataclasses.dataclass(frozen=True)
class About:
    """What a grader's directory says of it.

    Attributes:
      max_length: tokens of a paragraph that are read; what is longer is cut.
      base: the encoder that was trained.
      settings: how.
      held_out: how well it agrees with the grades of paragraphs that it was not trained on.
    """

    max_length: int
    base: str
    settings: Mapping[str, Any]
    held_out: Mapping[str, Any]


def rows_of(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    max_length: int,
    grades: Sequence[Grade] | None = None,
) -> list[Row]:
    """A row for each text, [CLS] tokens [SEP], cut at ``max_length`` tokens."""
    encodings = vocabulary.tokenizer.encode_batch(list(texts), add_special_tokens=False)
    rows = []
    for place, encoding in enumerate(encodings):
        ids = [vocabulary.cls, *encoding.ids[: max_length - 2], vocabulary.sep]
        targets = {} if grades is None else _targets(grades[place])
        rows.append(Row(place, np.array(ids, np.int32), targets))
    return rows


def _targets(grade: Grade) -> dict[str, np.ndarray]:
    return {
        "educational": np.array(grade.educational, np.float32),
        "content": np.array(CONTENTS.index(grade.content), np.int32),
        "domain": np.array(DOMAINS.index(grade.domain), np.int32),
    }


def make_network(spec: ModelSpec, params: Mapping[str, np.ndarray]) -> Network:
    """The encoder of these parameters with a head; bf16 on accelerators."""
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    graphdef = modernbert.structure(spec, dtype=dtype)
    on_device = {path: jnp.asarray(array) for path, array in params.items()}
    return Network(graphdef, on_device, lambda rngs: GraderHead(spec, rngs=rngs))


def save(directory: Path, model: str, spec: ModelSpec, params: Params, about: About) -> None:
    """Writes a grader, whole or not at all.

    Args:
      directory: where; it must not be there, or be empty.
      model: whose tokenizer it has, and whose parameters those are that grading leaves as they are.
      spec: of the encoder.
      params: what was trained, by path.
      about: what is to be said of it.

    Raises:
      FileExistsError: the directory holds something.
      OSError: it cannot be written; nothing is left behind.
    """
    untrained = hub.load_params(model, spec, head_key=jax.random.key(0))
    encoder = {path: np.asarray(params.get(path, untrained[path])) for path in untrained}
    heads = {path: np.asarray(array) for path, array in params.items() if path not in untrained}
    with whole_directory(directory) as partial:
        hub.save(partial / ENCODER, spec, encoder, tokenizer_dir=hub.resolve(model))
        save_file(heads, partial / HEADS)
        text = json.dumps(dataclasses.asdict(about), indent=2, ensure_ascii=False)
        (partial / ABOUT).write_text(text + "\n", encoding="utf-8")


class Grader:
    """A trained grader, from its directory.

    Args:
      directory: that `save` wrote.
      batch: rows at a time; a multiple of the devices.
      devices: the rows of a batch are spread over them; default: all of this process.

    Raises:
      FileNotFoundError: no such directory, or a file of it is not there.
      ValueError: it is damaged, or the batch cannot be spread.
    """

    def __init__(self, directory: Path, batch: int = 64, devices: Sequence[Any] | None = None):
        devices = devices or jax.local_devices()
        if batch <= 0 or batch % len(devices):
            raise ValueError(f"batch: {batch} is no multiple of {len(devices)} devices")
        self.about = _read_about(directory / ABOUT)
        self._vocabulary = open_vocabulary(directory / ENCODER)
        spec = hub.load_spec(directory / ENCODER)
        network = make_network(spec, hub.load_params(directory / ENCODER, spec))
        heads = load_file(directory / HEADS)
        if heads.keys() != network.new:
            raise ValueError(
                f"{directory / HEADS}: holds {sorted(heads)}, not {sorted(network.new)}"
            )
        self._batch, self._shapes = batch, None
        mesh = Mesh(np.asarray(devices), ("rows",), axis_types=(AxisType.Auto,))
        whole, self._spread = (
            NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("rows",))
        )
        self._params = jax.device_put({**network.pretrained, **heads}, whole)
        self._predict = _spread_over(network.predict, mesh, devices[0].platform)

    def grade(self, texts: Sequence[str]) -> list[Grade]:
        """The grades of some texts, none of them empty; those of a call share their batches.

        The lengths of batches are those that pad the first call's texts least, so that nothing is
        compiled after it; later texts may be longer.
        """
        rows = rows_of(texts, self._vocabulary, self.about.max_length)
        if self._shapes is None:
            longest = Row(0, np.zeros(self.about.max_length, np.int32), {})
            self._shapes = Shapes([*rows, longest], self._batch, pad_id=self._vocabulary.pad)
        grades: list[Grade | None] = [None] * len(rows)
        for places, batch in in_order(rows, self._shapes):
            found = jax.device_get(self._predict(self._params, jax.device_put(batch, self._spread)))
            for i, place in enumerate(places):
                grades[place] = _grade(*(found[name][i] for name in Grade._fields))
        return [grade for grade in grades if grade is not None]


def _grade(educational: ArrayLike, content: np.ndarray, domain: np.ndarray) -> Grade:
    """The value, within the scale and to three decimals; the most probable of the others."""
    value = float(np.clip(educational, SCORES[0], SCORES[-1]))
    return Grade(round(value, 3), CONTENTS[int(content.argmax())], DOMAINS[int(domain.argmax())])


def grades_of(predicted: Sequence[Mapping[str, np.ndarray]]) -> list[Grade]:
    """The grades in what a head predicted of each row."""
    return [_grade(*(row[name] for name in Grade._fields)) for row in predicted]


def _spread_over(predict: Callable[..., Any], mesh: Mesh, platform: str) -> Callable[..., Any]:
    """The function, each device with rows of its own: loops over rows stay within a device."""
    mapped = jax.shard_map(
        predict,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("rows")),
        out_specs=PartitionSpec("rows"),
        check_vma=False,  # as in `model.attention`
    )
    return jax.jit(mapped, compiler_options=compiler_options(platform))


def _read_about(path: Path) -> About:
    faults: list[str] = []
    try:
        about: About = parse_as(About, json.loads(path.read_text("utf-8")), ABOUT, faults)
    except ValueError as error:
        raise ValueError(f"{path}: damaged: {error}") from error
    if faults:
        raise ValueError(f"{path}: no grader: {'; '.join(faults)}")
    return about
