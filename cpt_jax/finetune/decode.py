"""From what a head predicts of rows to answers for the examples.

- One label: the most probable, of equals the first.
- Any number of labels: those of a probability above the threshold. None is a prediction like any
  other: nothing is filled in.
- Tags: each word's are taken from the window in which it is further from the edge
  (`windows.owners_of`); then the most probable legal sequence over the whole document
  (`tags.legal_path`). A word without a token of its own is part of the entity that goes on on both
  sides of it.
- Spans: those of a score, in log-odds, above the threshold's, each from the window in which it is
  further from the edge, from the first token of its first word to the first token of its last.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cpt_jax.finetune.checking import name_of
from cpt_jax.finetune.documents import Document, View
from cpt_jax.finetune.encode import Encoded
from cpt_jax.finetune.examples import Annotated, Example, Kind, Span, Words
from cpt_jax.finetune.predictions import Answer, Predictions
from cpt_jax.finetune.tags import Entity, entities_of, legal_path, tag_names, tags_of
from cpt_jax.finetune.windows import owners_of

EVEN = 0.5  # the threshold of a probability, unless it is tuned
# Those it is tuned over, of log-odds -6 to 3; those nearer to one half come first.
THRESHOLDS = tuple(1 / (1 + math.exp(-odds)) for odds in sorted(np.arange(-6, 3.1, 0.5), key=abs))

# What `predict` of a row's head gives, without the batch's dimension; padding may follow it.
Output = Mapping[str, np.ndarray]


def decode(encoded: Encoded, outputs: Sequence[Output], threshold: float = EVEN) -> Predictions:
    """The answers of a split.

    Args:
      encoded: the split.
      outputs: of each of its rows, in their order
        classification, relation, multilabel   probabilities [C]
        tagging   probabilities [L, T], of the tags in the order of `tag_names`
        spans     spans [K, 3]: first word, last word (inclusive), label, all -1 where there is
                  none; scores [K], log-odds
      threshold: of multilabel and spans: what is more probable is predicted.

    Raises:
      ValueError: not an output a row; numbers that are not finite. Names the example.
    """
    if len(outputs) != len(encoded.rows):
        raise ValueError(f"predictions of {len(outputs)} rows; there are {len(encoded.rows)}")
    if encoded.kind in ("tagging", "spans"):
        predicted = list(_of_documents(encoded, outputs, threshold))
    else:
        predicted = [
            _of_text(encoded, place, output, threshold) for place, output in enumerate(outputs)
        ]
    return Predictions(
        encoded.kind,
        encoded.labels,
        tuple(example.id for example in encoded.examples),
        tuple(gold_of(example, encoded.kind, encoded.labels) for example in encoded.examples),
        tuple(predicted),
    )


def gold_of(example: Example, kind: Kind, labels: Sequence[str]) -> Answer:
    """What is annotated, in the form of an answer; spans sorted, none twice."""
    if isinstance(example, Words):
        return tuple(example.tags)
    if isinstance(example, Annotated):
        return tuple(sorted(set(example.spans)))
    found = tuple(label for label in labels if label in example.labels)
    return found if kind == "multilabel" else found[0]


def _of_text(encoded: Encoded, place: int, output: Output, threshold: float) -> Answer:
    probabilities = output["probabilities"]
    _check_finite(encoded, place, probabilities)
    if encoded.kind == "multilabel":
        return tuple(encoded.labels[c] for c in np.flatnonzero(probabilities > threshold))
    return encoded.labels[int(probabilities.argmax())]


def _check_finite(encoded: Encoded, place: int, numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all():
        name = name_of(encoded.examples[place], place)
        raise ValueError(f"{name}: predictions that are not finite: the training has diverged")


def _of_documents(
    encoded: Encoded, outputs: Sequence[Output], threshold: float
) -> Iterator[Answer]:
    least = math.log(threshold / (1 - threshold))
    row = 0
    for place, document in enumerate(encoded.documents):
        views: list[tuple[View, Output]] = []
        while row < len(encoded.rows) and encoded.rows[row].example == place:
            views.append((encoded.views[row], outputs[row]))
            row += 1
        if encoded.kind == "tagging":
            entities = _tagged(encoded, place, document, views)
        else:
            entities = _spans(encoded, place, document, views, least)
        yield _answer(encoded.examples[place], document, entities)


def _tagged(
    encoded: Encoded, place: int, document: Document, views: Sequence[tuple[View, Output]]
) -> list[Entity]:
    names = tag_names(encoded.labels)
    probabilities = np.zeros((len(document.alignment.words), len(names)))
    for view, output in views:
        owned = view.owned
        probabilities[view.words[owned]] = output["probabilities"][view.tokens[owned]]
    _check_finite(encoded, place, probabilities)
    return entities_of([names[tag] for tag in legal_path(probabilities)])


def _spans(
    encoded: Encoded,
    place: int,
    document: Document,
    views: Sequence[tuple[View, Output]],
    least: float,
) -> list[Entity]:
    firsts = document.alignment.firsts
    windows = [view.window for view, _ in views]
    entities = []
    for number, (view, output) in enumerate(views):
        spans, scores = output["spans"], output["scores"]
        listed = spans[:, 0] >= 0
        _check_finite(encoded, place, scores[listed])
        spans = spans[listed & (scores > least)]
        first, last = view.words[spans[:, 0]], view.words[spans[:, 1]]
        owners = owners_of(firsts[first], firsts[last] + 1, windows)
        found = np.stack([first, last, spans[:, 2]], axis=1)[owners == number]
        entities += [Entity(a, b, encoded.labels[label]) for a, b, label in found.tolist()]
    return entities


def _answer(example: Example, document: Document, entities: Sequence[Entity]) -> Answer:
    alignment = document.alignment
    if isinstance(example, Words):
        found = [
            Entity(int(alignment.words[first]), int(alignment.words[last]), label)
            for first, last, label in entities
        ]
        return tuple(tags_of(found, len(example.words)))
    spans = {
        Span(int(alignment.starts[first]), int(alignment.ends[last]), label)
        for first, last, label in entities
    }
    return tuple(sorted(spans))
