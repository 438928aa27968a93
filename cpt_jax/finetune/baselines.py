"""What a trained model must at least beat: predictions that need no model."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from cpt_jax.finetune.alignment import words_of
from cpt_jax.finetune.decode import gold_of
from cpt_jax.finetune.examples import Annotated, Example, Kind, Span, Text, Words
from cpt_jax.finetune.predictions import Answer, Predictions
from cpt_jax.finetune.tags import Entity, entities_of, tags_of


def predict(
    name: str,
    kind: Kind,
    labels: Sequence[str],
    train: Sequence[Example],
    test: Sequence[Example],
) -> Predictions:
    """A baseline's answers to a split, given the training split.

    Args:
      name: of `BASELINES`: "majority", "all_labels" (kind multilabel alone) or "dictionary".

    Raises:
      ValueError: no such baseline, or none for this kind.
    """
    kinds, answers_of = BASELINES.get(name, ((), None))
    if answers_of is None or kind not in kinds:
        known = [one for one, (its, _) in BASELINES.items() if kind in its]
        raise ValueError(f"baseline {name!r} of kind {kind}; there are {', '.join(known)}")
    gold = tuple(gold_of(example, kind, labels) for example in test)
    ids = tuple(example.id for example in test)
    return Predictions(kind, tuple(labels), ids, gold, tuple(answers_of(kind, train, test)))


def _counts(train: Sequence[Example]) -> Counter[str]:
    return Counter(label for e in train if isinstance(e, Text) for label in e.labels)


def majority(kind: Kind, train: Sequence[Example], test: Sequence[Example]) -> list[Answer]:
    """To each text the label that most texts of `train` have, of equals the first."""
    label = _first(_counts(train))
    return [(label,) if kind == "multilabel" else label] * len(test)


def all_labels(kind: Kind, train: Sequence[Example], test: Sequence[Example]) -> list[Answer]:
    """To each text every label that `train` has: of constant answers that of the best macro F1."""
    del kind
    return [tuple(sorted(_counts(train)))] * len(test)


class _Document(NamedTuple):
    """Words, where they are in the text (of an Annotated), and the entities among them."""

    words: list[str]
    places: list[tuple[int, int]]
    entities: list[Entity]


class Dictionary:
    """The entities of a training set, as the words they are written with; case does not count.

    An entry's label is the one it mostly has there.

    Args:
      least: entries are left out whose words have that label in less than this share of the
        places where they stand; with 0 every entity is an entry. A quarter instead of the half is
        better by 1 to 10 points on the tasks of docs/results.md.
    """

    def __init__(self, train: Sequence[Example], least: float = 0.5):
        labels: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        documents = [_document(example) for example in train]
        for words, _, entities in documents:
            for first, last, label in entities:
                labels[tuple(words[first : last + 1])][label] += 1
        self._labels = labels
        self._lengths = _lengths(labels)
        seen = Counter(
            tuple(words[first : last + 1])
            for words, _, _ in documents
            for first, last in self._matches(words)
        )
        self._labels = {
            entry: counts
            for entry, counts in labels.items()
            if counts.most_common(1)[0][1] >= least * seen[entry]
        }
        self._lengths = _lengths(self._labels)

    def tags(self, example: Words) -> tuple[str, ...]:
        """Tags by the longest match from left to right."""
        words = _document(example).words
        return tuple(tags_of(self._longest(words), len(words)))

    def spans(self, example: Example, nested: bool) -> tuple[Span, ...]:
        """Entities: the longest matches from left to right, or where they may nest, all."""
        words, places, _ = _document(example)
        found = self._all(words) if nested else self._longest(words)
        return tuple(Span(places[first][0], places[last][1], label) for first, last, label in found)

    def _matches(self, words: Sequence[str]) -> Iterable[tuple[int, int]]:
        """First and last word of every entry that stands there, the longest of a place first."""
        for first, word in enumerate(words):
            for length in self._lengths.get(word, ()):
                entry = tuple(words[first : first + length])
                if len(entry) == length and entry in self._labels:  # a text's end may cut it
                    yield first, first + length - 1

    def _all(self, words: Sequence[str]) -> list[Entity]:
        return [
            Entity(first, last, _first(self._labels[tuple(words[first : last + 1])]))
            for first, last in self._matches(words)
        ]

    def _longest(self, words: Sequence[str]) -> list[Entity]:
        chosen: list[Entity] = []
        for entity in self._all(words):
            if not chosen or entity.first > chosen[-1].last:
                chosen.append(entity)
        return chosen


def dictionary(kind: Kind, train: Sequence[Example], test: Sequence[Example]) -> list[Answer]:
    """The answers of a `Dictionary`: tags of Words, spans of Annotated."""
    entries = Dictionary(train)
    return [
        entries.tags(example)
        if isinstance(example, Words)
        else entries.spans(example, nested=kind == "spans")
        for example in test
    ]


# The kinds that a baseline is of, and how it answers.
BASELINES: Mapping[str, tuple[tuple[Kind, ...], Callable[..., list[Answer]]]] = {
    "majority": (("classification", "relation", "multilabel"), majority),
    "all_labels": (("multilabel",), all_labels),
    "dictionary": (("tagging", "spans"), dictionary),
}


def _first(counts: Counter[str]) -> str:
    if not counts:
        raise ValueError("the training split has no labels")
    return min(counts, key=lambda label: (-counts[label], label))


def _lengths(entries: Iterable[tuple[str, ...]]) -> dict[str, list[int]]:
    """By first word, the numbers of words of entries, falling."""
    lengths: defaultdict[str, set[int]] = defaultdict(set)
    for entry in entries:
        lengths[entry[0]].add(len(entry))
    return {word: sorted(found, reverse=True) for word, found in lengths.items()}


def _document(example: Example) -> _Document:
    if isinstance(example, Words):
        words = [word.casefold() for word in example.words]
        return _Document(words, [], entities_of(example.tags))
    if not isinstance(example, Annotated):
        raise ValueError(f"{example.id}: a text with labels has no entities")
    places = [(int(start), int(end)) for start, end in words_of(example.text)]
    words = [example.text[start:end].casefold() for start, end in places]
    entities = []
    for span in example.spans:
        inside = [
            i for i, (start, end) in enumerate(places) if start < span.end and end > span.start
        ]
        if inside:
            entities.append(Entity(inside[0], inside[-1], span.label))
    return _Document(words, places, entities)
