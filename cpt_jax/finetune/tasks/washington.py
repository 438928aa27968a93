"""BRAT corpora of the University of Washington's BioNLP group, as tagging tasks.

COS (Klassen et al. 2014): release_Jan_1_2015/data/snippetN_M.txt and .ann; sentences of chest X-ray
reports, each a Snippet annotation, with what changes in them. SocialHistory (Yetisgen & Vanderwende
2017): NAME.txt and .ann, social histories of MTSamples. Examples and splits as in src/dataloader of
lindvalllab/BioClinical-ModernBERT, which tags words where we keep characters.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Annotated, Example, Span
from cpt_jax.finetune.tasks import brat
from cpt_jax.finetune.tasks.reading import fault

CHANGES = ("Attr", "Cos", "Loc", "Ref", "Val")
HISTORY = (
    *("Alcohol", "Amount", "Drug", "EnvironmentalExposure", "ExposureHistory", "Extent", "Family"),
    *("Frequency", "History", "InfectiousDiseases", "LivingSituation", "LivingStatus", "Location"),
    *("MaritalStatus", "MedicalCondition", "Method", "Occupation", "Other", "PhysicalActivity"),
    *("QuitHistory", "Residence", "SexualHistory", "Status", "Temporal", "Tobacco", "Type"),
)
_SNIPPET = "Snippet"


def read_changes(files: Sequence[Path], split: str = "") -> list[Example]:
    """COS: a snippet an example, with the entities that lie in it whole; ids are FILE:START."""
    examples: list[Example] = []
    for document in brat.read(files, split):
        assert isinstance(document, Annotated)
        snippets = sorted(span for span in document.spans if span.label == _SNIPPET)
        if not snippets:
            fault(Path(document.where), None, f"no {_SNIPPET} in its annotations")
        for snippet in snippets:
            inside = [
                Span(span.start - snippet.start, span.end - snippet.start, span.label)
                for span in document.spans
                if span.label != _SNIPPET
                and snippet.start <= span.start
                and span.end <= snippet.end
            ]
            text = document.text[snippet.start : snippet.end]
            name = f"{document.id}:{snippet.start}"
            examples.append(Annotated(name, text, flat(text, inside), document.where))
    return examples


def read_history(files: Sequence[Path], split: str = "") -> list[Example]:
    """SocialHistory: a file an example."""
    examples: list[Example] = []
    for document in brat.read(files, split):
        assert isinstance(document, Annotated)
        examples.append(document._replace(spans=flat(document.text, document.spans)))
    return examples


def flat(text: str, spans: Iterable[Span]) -> tuple[Span, ...]:
    """The entities without overlaps: what two share belongs to the one that starts later.

    Of those that start together it belongs to the shorter. What is left of the other is an entity,
    or two, without the blanks at its ends, if it has a letter or a digit.
    """
    ordered = sorted(set(spans), key=lambda span: (span.start, -span.end, span.label))
    owner: list[int | None] = [None] * len(text)
    for index, span in enumerate(ordered):
        owner[span.start : span.end] = [index] * (span.end - span.start)
    pieces: list[Span] = []
    start = 0
    for index, run in itertools.groupby(owner):
        end = start + len(list(run))
        if index is not None:
            inner, whole = text[start:end], ordered[index]
            first = start + len(inner) - len(inner.lstrip())
            piece = Span(first, first + len(inner.strip()), whole.label)
            if (start, end) == whole[:2] or re.search(r"\w", inner):
                pieces.append(piece)
        start = end
    return tuple(pieces)
