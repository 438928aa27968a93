"""BRAT's standoff annotation: NAME.txt, and beside it NAME.ann.

T1<TAB>DISO 12 20;31 38<TAB>troubles hépatiques
#1<TAB>AnnotatorNotes T1<TAB>C0023895

Source: https://brat.nlplab.org/standoff.html. Entities are the T lines: a label, the characters
of one fragment or several, the annotated text (fragments parted by a space, a line end written as
a space). Other lines are relations, events, attributes and notes.

Offsets count the characters of the text as the annotator's program saw it, and copies gain or
lose a byte-order mark and carriage returns: what is counted is found out from the annotated texts
themselves, and the offsets returned are those of a text without either.
"""

import codecs
import itertools
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from cpt_jax.finetune.examples import Annotated, Example, Span
from cpt_jax.finetune.tasks.reading import fault, lines_of, shown, text_of

BYTE_ORDER_MARK = "\ufeff"
# Text-bound, relation, event, attribute, modification, normalisation, note, equivalence.
LINE = re.compile(r"(?:[TREAMN#]\S*|\*)\t")


class Mention(NamedTuple):
    """A T line as it stands: ids, offsets and all."""

    line: int
    id: str
    label: str
    fragments: tuple[tuple[int, int], ...]  # in the order of the file
    surface: str


class Note(NamedTuple):
    """A # line: what kind of note, on what, and its text."""

    line: int
    kind: str
    target: str
    text: str


def read(
    files: Sequence[Path], split: str = "", *, labels: Collection[str] | None = None
) -> list[Example]:
    """The documents of the files, whole; entities may nest and cross.

    A discontinuous entity becomes its hull, from where its first fragment begins to where its last
    ends; `Annotated.discontinuous` counts them. Entities of the same characters and label (one
    annotated with two concepts) are one.

    Args:
      files: .txt and .ann, each with its other beside it.
      labels: those that there may be; None: any.

    Raises:
      ValueError: a file without its other, one that is not UTF-8, a line that is no annotation, an
        unknown label, offsets beyond the text, an annotated text that is not what stands at its
        offsets. It names file and line.
    """
    del split
    documents: list[Example] = []
    for text_file, annotations in pairs(files):
        mentions, _ = parse(annotations)
        for mention in mentions:
            if labels is not None and mention.label not in labels:
                known = ", ".join(sorted(labels))
                fault(annotations, mention.line, f"label {mention.label!r} is none of {known}")
        text, spans = _placed(text_file, annotations, mentions)
        hulls = sum(len(mention.fragments) > 1 for mention in mentions)
        documents.append(Annotated(text_file.stem, text, spans, str(text_file), hulls))
    return documents


def pairs(files: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Each document's .txt and .ann, by name. Raises ValueError where one of the two is missing."""
    found: dict[str, tuple[Path, Path]] = {}
    for file in sorted(files):
        name, folder = file.stem, file.parent
        pair = (folder / f"{name}.txt", folder / f"{name}.ann")
        for path in pair:
            if not path.is_file():
                fault(file, None, f"no {path.name} beside it")
        if found.setdefault(name, pair) != pair:
            fault(file, None, f"a second document of this name; the first is {found[name][0]}")
    return list(found.values())


def parse(annotations: Path) -> tuple[list[Mention], list[Note]]:
    """The mentions and notes of an .ann file, which may be empty.

    Raises:
      ValueError: a line that BRAT does not write, a mention that is there twice, a note on a
        mention that is not there.
    """
    mentions: dict[str, Mention] = {}
    notes: list[Note] = []
    if not annotations.read_bytes().strip():
        return [], []
    for number, line in lines_of(annotations):
        if not line.strip():
            continue
        if not LINE.match(line):
            fault(annotations, number, f"no annotation of BRAT's: {shown(line)}")
        if line.startswith("T"):
            mention = _mention(annotations, number, line)
            if mention.id in mentions:
                fault(annotations, number, f"{mention.id} is there twice")
            mentions[mention.id] = mention
        elif line.startswith("#"):
            _, about, text = (line + "\t\t").split("\t")[:3]
            kind, _, target = about.partition(" ")
            notes.append(Note(number, kind, target, text.strip()))
    for note in notes:
        if note.target.startswith("T") and note.target not in mentions:
            fault(annotations, note.line, f"a note on {note.target}, which is not there")
    return list(mentions.values()), notes


def _mention(path: Path, number: int, line: str) -> Mention:
    fields = line.split("\t", 2)
    if len(fields) < 3:
        fault(path, number, f"not ID, TAB, LABEL OFFSETS, TAB, TEXT: {shown(line)}")
    label, _, offsets = fields[1].partition(" ")
    fragments = []
    for fragment in offsets.split(";"):
        if not re.fullmatch(r"\d+ \d+", fragment):
            fault(path, number, f"offsets {offsets!r} are not START END[;START END ...]")
        start, end = map(int, fragment.split())
        if start >= end:
            fault(path, number, f"offsets {fragment!r}: no characters between them")
        fragments.append((start, end))
    return Mention(number, fields[0], label, tuple(fragments), fields[2])


def _placed(
    text_file: Path, annotations: Path, mentions: Sequence[Mention]
) -> tuple[str, tuple[Span, ...]]:
    """The text without byte-order mark and carriage returns, and the mentions' hulls in it."""
    raw = text_of(text_file)
    if text_file.read_bytes().startswith(codecs.BOM_UTF8):
        raw = BYTE_ORDER_MARK + raw
    faults: list[list[tuple[Mention, str]]] = []
    views = _views(raw)
    for view in views:
        seen = "".join(map(raw.__getitem__, view))
        said = ((mention, _difference(seen, mention)) for mention in mentions)
        faults.append([(mention, message) for mention, message in said if message])
        if not faults[-1]:
            break
    else:
        mention, message = min(faults, key=len)[0]
        fault(annotations, mention.line, f"{message} ({text_file.name})")
    clean = views[0]
    kept = set(clean)
    before = [0, *itertools.accumulate(index in kept for index in range(len(raw)))]
    spans = set()
    for mention in mentions:
        first = min(start for start, _ in mention.fragments)
        last = max(end for _, end in mention.fragments) - 1
        spans.add(Span(before[view[first]], before[view[last] + 1], mention.label))
    text = "".join(map(raw.__getitem__, clean))
    return text, tuple(sorted(spans, key=lambda span: (span.start, -span.end, span.label)))


def _views(raw: str) -> list[Sequence[int]]:
    """The characters of a file that its annotations may count, the clean text's first."""
    marks = (0,) if raw.startswith(BYTE_ORDER_MARK) else ()
    returns = tuple(match.start() for match in re.finditer("\r\n", raw))
    views: list[Sequence[int]] = []
    for without in dict.fromkeys((marks + returns, returns, marks, ())):
        left_out = set(without)
        views.append([i for i in range(len(raw)) if i not in left_out])
    return views


def _difference(text: str, mention: Mention) -> str:
    """What is wrong with a mention in a text, or nothing."""
    for start, end in mention.fragments:
        if end > len(text):
            return f"{mention.id}: offsets {start} {end} in a text of {len(text)} characters"
    found = " ".join(text[start:end] for start, end in mention.fragments)
    if re.sub("\r\n|\r|\n", " ", found) == mention.surface:
        return ""
    return f"{mention.id}: {shown(mention.surface)} is annotated where {shown(found)} stands"
