"""Notes with the personal data in them: three layouts of de-identification corpora.

deidentifiedmedicaltext 1.0 of PhysioNet (Neamatullah et al. 2008), the DEID of BioClinical
ModernBERT and of the paper: nursing notes with surrogates in id.text; in id.res the same with
[**kind of data**] in their place. Mapped to six types as in src/dataloader of
lindvalllab/BioClinical-ModernBERT; two more of that software's masks are known here.

i2b2 2006 (Uzuner et al. 2007): <RECORD ID><TEXT> with <PHI TYPE> around the data. i2b2 2014
(Stubbs & Uzuner 2015): a file a note, <TEXT> and <TAGS> with character offsets.
"""

import functools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Annotated, Example, Span
from cpt_jax.finetune.tasks.reading import fault, shown, text_of, two_of

TYPES = ("age", "date", "location", "name", "other", "phone_nb")
TYPES_2006 = ("AGE", "DATE", "DOCTOR", "HOSPITAL", "ID", "LOCATION", "PATIENT", "PHONE")
TYPES_2014 = ("AGE", "CONTACT", "DATE", "ID", "LOCATION", "NAME", "PHI", "PROFESSION")

_RECORD = re.compile(r"START_OF_RECORD=(\d+)\|\|\|\|(\d+)\|\|\|\|(.*?)\|\|\|\|END_OF_RECORD", re.S)
_MASK = re.compile(r"\[\*\*(.*?)\*\*\]", re.S)
_DATE = re.compile(r"\d+|\d{1,2}-\d{1,2}|\d{4}-\d{1,2}-\d{1,2}")
# What a mask holds -> type, the first that fits; in lower case.
_KINDS = (
    ("name", "name"),
    ("e-mail address", "other"),
    ("email address", "other"),
    ("telephone/fax", "phone_nb"),
    ("pager number", "phone_nb"),
    ("age over", "age"),
    ("location", "location"),
    ("hospital", "location"),
    ("street address", "location"),
    ("unit number", "location"),
    ("date range", "date"),
    ("month/year", "date"),
    ("month/day", "date"),
    ("year (", "date"),
    ("company", "other"),
)


def read_physionet(files: Sequence[Path], split: str = "") -> list[Example]:
    """The notes of id.text, with the entities that id.res masks; ids are PATIENT-NOTE.

    Args:
      files: id.text and id.res.
    """
    del split
    texts, masked = (dict(_records(path)) for path in two_of(files, "id.text and id.res"))
    for key, (line, _) in texts.items():
        if key not in masked:
            fault(files[0], line, f"record {key} is not in {files[1]}")
    examples: list[Example] = []
    for key, (line, note) in masked.items():
        if key not in texts:
            fault(files[1], line, f"record {key} is not in {files[0]}")
        start, text = texts[key]
        parts = _MASK.split(note)
        kinds = [_kind(files[1], line, mask) for mask in parts[1::2]]
        spans = _aligned(text, parts[0::2])
        if spans is None:
            fault(files[1], line, f"record {key}: but for the masks, not the text of {files[0]}")
        entities = tuple(Span(*span, kind) for span, kind in zip(spans, kinds, strict=True))
        examples.append(Annotated(key, text, entities, f"{files[0]}:{start}"))
    return examples


def _records(path: Path) -> Iterator[tuple[str, tuple[int, str]]]:
    """Key, and line and text of each record; the blanks around a text are not its own."""
    text, line, at = text_of(path).replace("\r\n", "\n"), 1, 0
    seen: set[str] = set()
    for match in _RECORD.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        key = f"{match[1]}-{match[2]}"
        if key in seen:
            fault(path, line, f"record {key} again")
        if not match[3].strip():
            fault(path, line, f"record {key}: empty")
        seen.add(key)
        yield key, (line, match[3].strip())
    if len(seen) != text.count("START_OF_RECORD="):
        fault(path, None, "not whole records START_OF_RECORD=N||||N|||| ... ||||END_OF_RECORD")


def _kind(path: Path, line: int, mask: str) -> str:
    content = mask.strip()
    if not content:
        return "other"
    if _DATE.fullmatch(content):
        return "date"
    kinds = [kind for words, kind in _KINDS if words in content.lower()]
    if not kinds:
        fault(path, line, f"mask {shown(f'[**{mask}**]')} is of no known kind")
    return kinds[0]


def _aligned(text: str, plain: Sequence[str]) -> list[tuple[int, int]] | None:
    """Where what was masked stands, given the pieces around it; the shortest that fit, or None.

    Any blanks stand for any others: notes were wrapped again.
    """
    patterns = [re.compile(re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(piece))) for piece in plain]

    @functools.cache
    def rest(piece: int, start: int) -> tuple[tuple[int, int], ...] | None:
        """The entities after the one that ends before `piece`, itself first, begun at `start`."""
        for match in patterns[piece].finditer(text, start + 1):
            if not text[start : match.start()].strip():
                continue
            if piece + 1 == len(patterns):
                if match.end() == len(text):
                    return ((start, match.start()),)
            elif (more := rest(piece + 1, match.end())) is not None:
                return ((start, match.start()), *more)
        return None

    first = patterns[0].match(text)
    if first is None:
        return None
    if len(patterns) == 1:
        return [] if first.end() == len(text) else None
    found = rest(1, first.end())
    return None if found is None else [_trimmed(text, *span) for span in found]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the blanks at its ends."""
    inner = text[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def read_2006(files: Sequence[Path], split: str = "") -> list[Example]:
    """The records of i2b2 2006; entities are the PHI elements, by their TYPE."""
    del split
    examples: list[Example] = []
    for path in files:
        for record in _tree(path).iter("RECORD"):
            name, body = record.get("ID", ""), record.find("TEXT")
            if body is None or not "".join(body.itertext()).strip():
                fault(path, None, f"RECORD {name!r}: no TEXT, or an empty one")
            text, spans = body.text or "", []
            for element in body:
                if element.tag != "PHI" or len(element) or not element.text:
                    fault(path, None, f"RECORD {name!r}: <{element.tag}> is not a PHI with a text")
                start, text = len(text), text + element.text
                spans.append(Span(start, len(text), element.get("TYPE", "")))
                text += element.tail or ""
            examples.append(Annotated(name, text, tuple(spans), f"{path}: RECORD {name}"))
    return examples


def read_2014(files: Sequence[Path], split: str = "") -> list[Example]:
    """The notes of i2b2 2014, a file each; entities are the tags, by their element's name.

    A tag's `text` is checked against what stands at its offsets.
    """
    del split
    examples: list[Example] = []
    for path in files:
        root = _tree(path)
        text, tags = root.findtext("TEXT", ""), root.find("TAGS")
        if tags is None or not text.strip():
            fault(path, None, "no TAGS, no TEXT, or an empty one")
        spans = []
        for tag in tags:
            at = f"{tag.tag} {tag.get('id')}"
            try:
                start, end = int(tag.get("start", "")), int(tag.get("end", ""))
            except ValueError:
                fault(path, None, f"{at}: start {tag.get('start')!r}, end {tag.get('end')!r}")
            if not 0 <= start < end <= len(text):
                fault(path, None, f"{at}: characters {start} to {end} of a text of {len(text)}")
            said = tag.get("text", text[start:end])
            if text[start:end].split() != said.split():
                found = f"{shown(text[start:end])} stands there, not {shown(said)}"
                fault(path, None, f"{at}: characters {start} to {end}: {found}")
            spans.append(Span(start, end, tag.tag))
        examples.append(Annotated(path.stem, text, tuple(sorted(spans)), str(path)))
    return examples


def _tree(path: Path) -> ElementTree.Element:
    """The file's root, decoded as the file itself says."""
    raw = path.read_bytes()
    if not raw.strip():
        fault(path, None, "empty")
    try:
        return ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        fault(path, error.position[0], f"not XML: {error}")
    except (LookupError, UnicodeError) as error:
        fault(path, 1, f"not XML: {error}")
