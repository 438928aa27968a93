"""The parts of an HTML page that stands alone: one file, nothing loaded from elsewhere.

What is said here to be HTML goes onto the page as it is; everything else is escaped. The page
forbids itself scripts and outside resources by its content security policy.
"""

import importlib.resources
from collections.abc import Iterable, Sequence
from html import escape

CSS = (importlib.resources.files("cpt_jax.pages") / "style.css").read_text()
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, note: str, sections: Iterable[str]) -> str:
    """Returns the page; note and sections are HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape(title)}</h1>\n<p class="note">{note}</p></header>\n'
        f"{''.join(sections)}</body>\n</html>\n"
    )


def section(title: str, note: str, body: str) -> str:
    """Returns a section; all of it is HTML."""
    return f'<section><h2>{title}</h2>\n<p class="note">{note}</p>\n{body}</section>\n'


def grid(cards: Iterable[str]) -> str:
    """Returns HTML cards beside each other."""
    return f'<div class="grid">{"".join(cards)}</div>\n'


def figure(title: str, svg: str, caption: str) -> str:
    """Returns a figure; its caption is HTML."""
    return f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{caption}</figcaption></figure>"


def details(summary: str, text: str) -> str:
    """Returns a text that is shown on demand."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int) -> str:
    """Returns a table of HTML cells, the first columns those of text, the others of numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        mark = [' class="text"' if i < text_columns else "" for i in range(len(row))]
        return "".join(f"<{tag}{m}>{cell}</{tag}>" for m, cell in zip(mark, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )
