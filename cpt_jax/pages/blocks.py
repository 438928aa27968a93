"""A text of headings, paragraphs, tables and figures, as Markdown and as HTML.

All strings in blocks are plain text: both forms escape what would mean something in them.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from cpt_jax.pages import elements


class Heading(NamedTuple):
    """The title of what follows."""

    text: str


class Paragraph(NamedTuple):
    """Some sentences."""

    text: str


class Items(NamedTuple):
    """Sentences that stand each for itself."""

    texts: Sequence[str]


class Table(NamedTuple):
    """Rows of cells; the first columns are of text, the others of numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1


class Figure(NamedTuple):
    """A drawing, for HTML alone: an ``<svg>`` element of ours."""

    title: str
    svg: str
    caption: str


Block = Heading | Paragraph | Items | Table | Figure


def markdown(blocks: Iterable[Block], title: str = "") -> str:
    """Returns the blocks as Markdown with GitHub's tables, without the figures."""
    parts = [f"# {_plain(title)}"] if title else []
    parts += [_markdown(block) for block in blocks if not isinstance(block, Figure)]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Heading | Paragraph | Items | Table) -> str:
    match block:
        case Heading(text):
            return f"## {_plain(text)}"
        case Paragraph(text):
            return _plain(text)
        case Items(texts):
            return "\n".join(f"- {_plain(text)}" for text in texts)
        case Table(head, rows, text_columns):
            lines = [[_plain(cell) for cell in row] for row in (head, *rows)]
            rule = ["---" if i < text_columns else "---:" for i in range(len(head))]
            return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


def _plain(text: str) -> str:
    """Returns a text as Markdown that shows it as it is, in one line."""
    text = re.sub(r"([\\`*|[\]])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    return re.sub(r"^(?=>|(#+|[+-])\s)", r"\\", text)


def page(title: str, note: str, blocks: Iterable[Block]) -> str:
    """Returns the blocks as one HTML page that loads nothing."""
    parts = []
    for figures, group in itertools.groupby(blocks, lambda block: isinstance(block, Figure)):
        html = [_html(block) for block in group]
        parts += [elements.grid(html)] if figures else html
    return elements.document(title, escape(note), parts)


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>\n"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>\n"
        case Items(texts):
            items = "".join(f"<li>{escape(text)}</li>\n" for text in texts)
            return f"<ul>\n{items}</ul>\n"
        case Table(head, rows, text_columns):
            cells = [[escape(cell) for cell in row] for row in rows]
            return elements.table([escape(x) for x in head], cells, text_columns=text_columns)
        case Figure(title, svg, caption):
            return elements.figure(title, svg, escape(caption))
