"""XML as publishers write it: JATS articles, PubMed citations, E3C documents.

Files are read as a stream, an article at a time. Entities of a document's own are expanded only as
far as expat lets them grow; nothing outside the file is read.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from cpt_jax.curate.readers.items import Fault, Record, decoded, record, stem

# What is no running text; of a formula's forms none can be read as a sentence.
LEFT_OUT = {
    *("table-wrap", "fig", "fig-group", "table", "graphic", "media", "supplementary-material"),
    *("tex-math", "math", "fn", "object-id", "label"),
}
BLOCKS = {"p", "list", "list-item", "disp-formula", "disp-quote", "break", "def-item", "title"}
LICENCE = re.compile(r"creativecommons\.org/(licenses|publicdomain)/([a-z-]+)/(\d\.\d)")
DEEPEST = 200
HREF = "{http://www.w3.org/1999/xlink}href"


def local(tag: Any) -> str:
    """A tag without its namespace; "" of a comment."""
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def parsed(file: Any, tags: set[str]) -> Iterator[ElementTree.Element | Fault]:
    """Elements of these names, one after the other, each forgotten when the next is asked for."""
    root, depth = None, 0
    try:
        for event, element in ElementTree.iterparse(file, events=("start", "end")):
            depth += 1 if event == "start" else -1
            if depth > DEEPEST:
                yield Fault("its structure", f"more than {DEEPEST} elements in one another")
                return
            if event == "start":
                root = element if root is None else root
            elif local(element.tag) in tags:
                yield element
                element.clear()
                if root is not None and root is not element:
                    root.clear()
    except ElementTree.ParseError as error:
        line, column = error.position
        yield Fault(f"line {line}, column {column}", "not XML")
    except (ValueError, LookupError):  # an encoding that there is not, or not its bytes
        yield Fault("its beginning", "not XML of the encoding that it names")


def running(element: ElementTree.Element) -> str:
    """The text of an element and what is in it but `LEFT_OUT`, with single spaces."""
    return " ".join("".join(_running(element)).split())


def _running(element: ElementTree.Element) -> Iterator[str]:
    tag = local(element.tag)
    if not tag or tag in LEFT_OUT:
        return
    between = " " if tag in BLOCKS else ""
    yield between + (element.text or "")
    for child in element:
        yield from _running(child)
        yield child.tail or ""
    yield between


def found(element: ElementTree.Element, *path: str) -> Iterator[ElementTree.Element]:
    """Descendants by the local names of a path."""
    if not path:
        yield element
        return
    for child in element:
        if local(child.tag) == path[0]:
            yield from found(child, *path[1:])


def jats(file: Any, name: str) -> Iterator[Record | Fault]:
    """Paragraphs of JATS articles: abstracts and body, with the titles of their sections.

    Tables, figures, formulas and notes are left out of the running text; what a citation's mark
    says stays. The article is PMC's number, else PubMed's, else the DOI, else the file's name.
    """
    for article in parsed(file, {"article"}):
        if isinstance(article, Fault):
            yield article
            continue
        named, about, place = _identity(article, name), {"licence": _licence(article)}, 0
        for section, paragraph in _paragraphs(article):
            item = record(running(paragraph), named, place, {**about, "section": section})
            # A paragraph around a figure or a table alone is none.
            if isinstance(item, Fault) and item.reason == "empty text" and len(paragraph):
                continue
            yield item
            place += 1
        if not place:
            yield Fault(named, "an article without paragraphs")


def _identity(article: ElementTree.Element, name: str) -> str:
    ids = {
        element.get("pub-id-type"): (element.text or "").strip()
        for element in found(article, "front", "article-meta", "article-id")
    }
    pmc = ids.get("pmc") or ids.get("pmcid")
    if pmc:
        return "PMC" + pmc.removeprefix("PMC")
    return ids.get("pmid") or ids.get("doi") or stem(name)


def _licence(article: ElementTree.Element) -> str:
    """The licence's usual name where a Creative Commons address says it, else as it is called."""
    for licence in found(article, "front", "article-meta", "permissions", "license"):
        for element in licence.iter():
            address = LICENCE.search(f"{element.get(HREF)} {element.text}")
            if address:
                kind, code, version = address.groups()
                zero = kind == "publicdomain" and code == "zero"
                return f"CC0 {version}" if zero else f"CC {code.upper()} {version}"
        return licence.get("license-type") or running(licence)[:200]
    return ""


def _paragraphs(article: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    """Paragraphs with the titles of the sections around them, the outermost first."""
    for abstract in found(article, "front", "article-meta", "abstract"):
        yield from _within(abstract, ("Abstract",))
    for body in found(article, "body"):
        yield from _within(body, ())


def _within(
    node: ElementTree.Element, titles: tuple[str, ...]
) -> Iterator[tuple[str, ElementTree.Element]]:
    for child in node:
        tag = local(child.tag)
        if tag == "p":
            yield " > ".join(titles), child
        elif tag == "sec":
            title = next((running(each) for each in found(child, "title")), "")
            yield from _within(child, (*titles, title) if title else titles)
        elif tag not in LEFT_OUT and tag not in ("title", "ref-list"):
            yield from _within(child, titles)


def pubmed(file: Any, name: str) -> Iterator[Record | Fault]:
    """Abstracts of PubMed's citations: the title, and each part with its label, a paragraph each.

    The article is the PubMed id. Citations without an abstract are faults; lists of ids that were
    deleted hold none.
    """
    for citation in parsed(file, {"PubmedArticle", "PubmedBookArticle"}):
        if isinstance(citation, Fault):
            yield citation
            continue
        document = next(iter(citation), citation)  # MedlineCitation, or BookDocument
        number = next((running(each) for each in found(document, "PMID")), stem(name))
        inner = next(found(document, "Article"), document)
        parts = [
            f"{label}: {text}" if (label := each.get("Label")) else text
            for each in found(inner, "Abstract", "AbstractText")
            if (text := running(each))
        ]
        if not parts:
            yield Fault(number, "no abstract")
            continue
        title = next((running(each) for each in found(inner, "ArticleTitle")), "")
        notice = " ".join(map(running, found(inner, "Abstract", "CopyrightInformation")))
        yield record("\n\n".join(filter(None, [title, *parts])), number, 0, {"licence": notice})


def e3c(file: Any, name: str) -> Iterator[Record | Fault]:
    """A document of E3C: annotated ones are XML (UIMA's XMI), collected ones JSON."""
    raw = file.read()
    if raw.lstrip().startswith(b"{"):
        yield _e3c_collected(raw, name)
        return
    try:
        root = ElementTree.fromstring(raw)
    except (ElementTree.ParseError, ValueError, LookupError):
        yield Fault(name, "not XML")
        return
    about = next((e for e in root if local(e.tag) == "DocumentMetaData"), root)
    text = next((e.get("sofaString") for e in root if local(e.tag) == "Sofa"), None)
    if text is None:
        yield Fault(name, "no cas:Sofa with a sofaString")
        return
    yield record(text, stem(name), 0, {"title": about.get("documentTitle", "")})


def _e3c_collected(raw: bytes, name: str) -> Record | Fault:
    try:
        value = json.loads(decoded(raw))
    except (ValueError, RecursionError):
        return Fault(name, "not JSON")
    if not isinstance(value.get("text"), str):
        return Fault(name, "no text")
    kept = ("licence", "language", "type", "url", "doi")
    about = {key: value[key] for key in kept if isinstance(value.get(key), str)}
    return record(value["text"], str(value.get("id") or stem(name)), 0, about)
