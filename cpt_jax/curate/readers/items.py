"""What readers give: records, and faults in place of those that could not be read."""

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

MOST = 10_000_000  # characters of a record: ten times the longest book
DEEPEST = 20  # lists and objects of metadata in one another
# Control characters but tab and line feed; what OCR and old exports leave between words.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Record(TypedDict):
    """One text, with where it is from."""

    text: str
    id: str
    metadata: dict[str, Any]


class Fault(NamedTuple):
    """What could not be read.

    Attributes:
      place: in the file: a line, an article, a paragraph.
      reason: why, without any of the text.
    """

    place: str
    reason: str


# From an open binary file, and its name, to what is in it. A file that is broken gives what stands
# before the place, and one fault; an exception is only an OSError's.
Reader = Callable[[Any, str], Iterator[Record | Fault]]


def record(text: str, article: str, place: int, about: Mapping[str, Any]) -> Record | Fault:
    """A record of part ``place`` of an article, or why it is none.

    Lines end in a line feed, other control characters are spaces; nothing else of the text is
    changed.

    Args:
      about: metadata; what is empty is left out.
    """
    text = CONTROL.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    where = f"{article}/{place}"
    if not text:
        return Fault(where, "empty text")
    if len(text) > MOST:
        return Fault(where, f"more than {MOST:,} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return Fault(where, "bytes or escapes that are no character")
    kept = {name: plain(value) for name, value in about.items() if value != ""}
    metadata = {"article": plain(article), "place": place, **kept}
    return {"text": text, "id": plain(where), "metadata": metadata}


def plain(value: Any, depth: int = 0) -> Any:
    """A value as any JSON holds it: numbers of 64 bits, characters that are some, known types."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, list | tuple | dict) and depth < DEEPEST:
        if isinstance(value, dict):
            return {str(plain(k)): plain(v, depth + 1) for k, v in value.items()}
        return [plain(each, depth + 1) for each in value]
    return plain(str(value)[:1000])


def stem(name: str) -> str:
    """A file's path without its endings: the name of an article that has no other."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.split(".", 1)[0]


def decoded(raw: bytes) -> str:
    """A text file's text: by its byte order mark, else UTF-8, else Windows-1252.

    Five bytes mean nothing in Windows-1252: they are lone surrogates then, which `record` refuses.
    """
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if raw.startswith(mark):
            return raw.decode(encoding, "surrogateescape" if "8" in encoding else "replace")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", "surrogateescape")
