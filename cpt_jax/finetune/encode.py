"""From a task's examples to the rows that a model reads; `decode` is the way back.

A row is [CLS] tokens [SEP], of a text with a pair [CLS] text [SEP] pair [SEP], at most
`Settings.max_length` tokens. Texts are cut at their end; with a pair the longer of the two first;
around its markers where a relation is sought (`windows.around`). Documents in which entities are
sought become windows (`documents`). An example of several labels that has none has targets
without any. What was cut or changed is counted.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from cpt_jax.data.tokenizer import find_tokenizer, read_tokenizer
from cpt_jax.finetune.checking import check, name_of
from cpt_jax.finetune.documents import Document, View, document_of, text_and_words, views_of
from cpt_jax.finetune.examples import Example, Kind, Settings, Text
from cpt_jax.finetune.rows import Row
from cpt_jax.finetune.windows import around, longest_first

ROLES = ("cls", "sep", "pad")
CHUNK = 256  # texts tokenized at a time: the tokenizer's own objects are large


class Vocabulary(NamedTuple):
    """A tokenizer and the ids of its special tokens."""

    tokenizer: Tokenizer
    cls: int
    sep: int
    pad: int


@dataclasses.dataclass
class Counts:
    """What became of a split's examples.

    Attributes:
      examples, rows: how many; tokens: in all rows.
      cut: texts longer than a row; cut_tokens: what they lost.
      windowed: documents of several windows.
      silent: words without a token of their own.
      entities: as annotated.
      moved: entities that begin or end within a word.
      lost: entities that no row shows: without a token, in a word that another entity has, or, of
        kind spans, whole in no window.
    """

    examples: int = 0
    rows: int = 0
    tokens: int = 0
    cut: int = 0
    cut_tokens: int = 0
    windowed: int = 0
    silent: int = 0
    entities: int = 0
    moved: int = 0
    lost: int = 0

    def lines(self, max_length: int) -> list[str]:
        """What should be known of them, a line each; none where nothing was cut or changed."""
        told = {
            f"of {self.examples} texts cut at {max_length} tokens, by {self.cut_tokens}": self.cut,
            f"of {self.examples} documents read in windows of {max_length} tokens": self.windowed,
            "words without a token of their own, which are not learnt": self.silent,
            f"of {self.entities} entities begin or end within a word, learnt whole": self.moved,
            f"of {self.entities} entities not learnt: no row shows them": self.lost,
        }
        return [f"{count} {line}" for line, count in told.items() if count]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A split's rows, and what it takes to read their predictions.

    Attributes:
      kind: of the task.
      labels: of the task.
      examples: as given.
      rows: of the examples in their order; a document's from its beginning to its end.
      counts: what was cut and changed.
      documents: of kinds tagging and spans, one an example.
      views: of these kinds, one a row.
    """

    kind: Kind
    labels: tuple[str, ...]
    examples: Sequence[Example]
    rows: list[Row] = dataclasses.field(default_factory=list)
    counts: Counts = dataclasses.field(default_factory=Counts)
    documents: list[Document] = dataclasses.field(default_factory=list)
    views: list[View] = dataclasses.field(default_factory=list)


def open_vocabulary(name: str | Path) -> Vocabulary:
    """The tokenizer of a model's directory or repository.

    Raises:
      FileNotFoundError: there is none.
      ValueError: it is damaged, or has no [CLS], [SEP] or [PAD]; names those that it lacks.
    """
    tokenizer, info = read_tokenizer(find_tokenizer(name), ROLES)
    return Vocabulary(tokenizer, *(info[f"{role}_id"] for role in ROLES))


def encode(
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    kind: Kind,
    labels: Sequence[str],
    settings: Settings,
) -> Encoded:
    """The rows of a split.

    Args:
      examples: of the type that the task's kind asks for.
      vocabulary: the model's.
      kind: the task's.
      labels: the task's, in the order of the targets' indices; of kind tagging the entities', from
        which `tag_names` makes the tags.
      settings: of them `max_length` and `stride`.

    Raises:
      ValueError: an example that cannot be learnt from (`checking.check`), by its name; labels of
        which two are the same; lengths that leave no room for a text.
    """
    if len(set(labels)) != len(labels):
        raise ValueError(f"labels: one is there twice among {', '.join(labels)}")
    for place, example in enumerate(examples):
        try:
            check(example, kind, labels)
        except ValueError as error:
            raise ValueError(f"{name_of(example, place)}: {error}") from error
    paired = any(isinstance(example, Text) and example.pair is not None for example in examples)
    room = settings.max_length - 2 - paired
    if room < 2 or (kind in ("tagging", "spans") and not 0 <= settings.stride < room):
        raise ValueError(
            f"max_length={settings.max_length}, stride={settings.stride}: beside special tokens a"
            f" row has {max(room, 0)}; it needs at least 2, and more than the stride"
        )
    encoded = Encoded(kind, tuple(labels), examples)
    encode_chunk = _encode_documents if kind in ("tagging", "spans") else _encode_texts
    for start in range(0, len(examples), CHUNK):
        encode_chunk(encoded, range(start, min(start + CHUNK, len(examples))), vocabulary, settings)
    encoded.counts.examples = len(examples)
    encoded.counts.rows = len(encoded.rows)
    encoded.counts.tokens = sum(len(row.input_ids) for row in encoded.rows)
    return encoded


def _encode_documents(
    encoded: Encoded, places: range, vocabulary: Vocabulary, settings: Settings
) -> None:
    examples = [e for place in places if not isinstance(e := encoded.examples[place], Text)]
    texts = [text_and_words(example)[0] for example in examples]
    encodings = vocabulary.tokenizer.encode_batch(texts, add_special_tokens=False)
    special = vocabulary.cls, vocabulary.sep
    counts = encoded.counts
    for place, example, encoding in zip(places, examples, encodings, strict=True):
        document = document_of(example, encoding, encoded.kind)
        views = list(views_of(document, special, encoded.kind, encoded.labels, settings))
        encoded.documents.append(document)
        encoded.views.extend(views)
        encoded.rows.extend(Row(place, view.input_ids, view.targets) for view in views)
        counts.windowed += len(views) > 1
        counts.silent += document.silent
        counts.entities += document.annotated
        counts.moved += document.moved
        counts.lost += document.lost
        if encoded.kind == "spans":
            counts.lost += len(set(document.entities).difference(*(v.whole for v in views)))


def _encode_texts(
    encoded: Encoded, places: range, vocabulary: Vocabulary, settings: Settings
) -> None:
    examples = [e for place in places if isinstance(e := encoded.examples[place], Text)]
    tokenizer = vocabulary.tokenizer
    encodings = tokenizer.encode_batch([e.text for e in examples], add_special_tokens=False)
    pairs = tokenizer.encode_batch([e.pair or "" for e in examples], add_special_tokens=False)
    for place, example, text, pair in zip(places, examples, encodings, pairs, strict=True):
        ids, second = np.array(text.ids, np.int32), np.array(pair.ids, np.int32)
        all_tokens = len(ids) + len(second)
        budget = settings.max_length - 2 - (example.pair is not None)
        targets = _targets(encoded, example)
        if example.markers is not None and encoded.kind == "relation":
            first, other = (_token_at(text, marker) for marker in example.markers)
            kept = around((first, other), len(ids), budget)
            ids = ids[kept]
            targets["markers"] = (1 + np.searchsorted(kept, [first, other])).astype(np.int32)
        else:
            first, rest = longest_first(len(ids), len(second), budget)
            ids, second = ids[:first], second[:rest]
        encoded.counts.cut += len(ids) + len(second) < all_tokens
        encoded.counts.cut_tokens += all_tokens - len(ids) - len(second)
        end = [] if example.pair is None else [*second, vocabulary.sep]
        row = np.array([vocabulary.cls, *ids, vocabulary.sep, *end], np.int32)
        encoded.rows.append(Row(place, row, targets))


def _targets(encoded: Encoded, example: Text) -> dict[str, np.ndarray]:
    index = [encoded.labels.index(label) for label in example.labels]
    if encoded.kind == "multilabel":
        labels = np.zeros(len(encoded.labels), np.float32)
        labels[index] = 1
        return {"labels": labels}
    return {"label": np.array(index[0], np.int32)}


def _token_at(encoding: Encoding, character: int) -> int:
    """The first token that holds the character or, if none does, the next one."""
    ends = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 1]
    return min(int(np.searchsorted(ends, character, "right")), len(ends) - 1)
