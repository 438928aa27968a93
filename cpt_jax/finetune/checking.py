"""What an example must be to be learnt from; said before anything is computed."""

from collections.abc import Collection

from cpt_jax.finetune.examples import Annotated, Example, Kind, Text, Words
from cpt_jax.finetune.tags import entities_of, tags_of

ALLOWED = {"tagging": (Words, Annotated), "spans": (Annotated,)}


def name_of(example: Example, place: int) -> str:
    """An example's name in messages: where it begins, and its id or its place in the split."""
    return ": ".join(filter(None, (example.where, example.id or f"example {place}")))


def check(example: Example, kind: Kind, labels: Collection[str]) -> None:
    """Checks an example of a task of this kind, with these labels.

    Raises:
      ValueError: it is of another kind, without text or words, with a label that is not the task's
        or not as many as the kind asks for, with tags that are not strict IOB2, with an entity
        beyond its text or, of kind tagging, across another. Quotes none of its text.
    """
    wanted = ALLOWED.get(kind, (Text,))
    if not isinstance(example, wanted):
        names = " or ".join(one.__name__ for one in wanted)
        raise ValueError(f"{type(example).__name__} in a task of kind {kind}; allowed: {names}")
    if isinstance(example, Text):
        _check_text(example, kind)
        found = list(example.labels)
    elif isinstance(example, Words):
        found = _check_words(example)
    else:
        _check_spans(example, kind)
        found = [span.label for span in example.spans]
    for label in found:
        if label not in labels:
            raise ValueError(f"label {label!r} is none of {', '.join(labels)}")


def _check_text(example: Text, kind: Kind) -> None:
    if not example.text.strip() or (example.pair is not None and not example.pair.strip()):
        raise ValueError("empty text")
    if kind != "multilabel" and len(example.labels) != 1:
        raise ValueError(f"{len(example.labels)} labels; a task of kind {kind} needs one")
    if kind == "relation":
        if example.markers is None or example.pair is not None:
            raise ValueError("a relation needs its text's two markers, and takes no pair")
        if not all(0 <= marker < len(example.text) for marker in example.markers):
            raise ValueError(f"markers {example.markers} of a text of {len(example.text)}")


def _check_words(example: Words) -> list[str]:
    if not example.words or len(example.words) != len(example.tags):
        raise ValueError(f"{len(example.words)} words with {len(example.tags)} tags")
    if "" in example.words:
        raise ValueError(f"word {example.words.index('')} is empty")
    entities = entities_of(example.tags)
    for place, (tag, strict) in enumerate(
        zip(example.tags, tags_of(entities, len(example.tags)), strict=True)
    ):
        if tag != strict:
            raise ValueError(f"tag {tag!r} of word {place}: no entity of its label began before it")
    return [entity.label for entity in entities]


def _check_spans(example: Annotated, kind: Kind) -> None:
    if not example.text.strip():
        raise ValueError("empty text")
    end = 0
    for span in sorted(example.spans):
        at = f"{span.label} at {span.start}-{span.end}"
        if not 0 <= span.start < span.end <= len(example.text):
            raise ValueError(f"{at} of a text of {len(example.text)} characters")
        if kind == "tagging" and span.start < end:
            raise ValueError(f"{at} overlaps another entity, in a task of kind tagging")
        end = max(end, span.end)
