"""Plain text, leaflets among it, and notes as MIMIC-III's table."""

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from cpt_jax.curate.readers.items import MOST, Fault, Record, decoded, record, stem

# "4.8 Effets indésirables", "1. CE QU'EST X", "4 . 3 Contre-indications", "What is X?"
NUMBERED = re.compile(r"\d{1,2}( ?\. ?\d{1,2})* ?\.? +\S.{0,100}")
NOTES = ("ROW_ID", "SUBJECT_ID", "HADM_ID", "CATEGORY", "DESCRIPTION", "ISERROR", "TEXT")


def is_heading(line: str) -> bool:
    """Whether a line of a leaflet is a heading: numbered, or a question; and no sentence."""
    if len(line) > 120 or line.endswith((".", ";", ":", ",")):
        return False
    return line.endswith("?") or bool(NUMBERED.fullmatch(line))


def leaflet(file: Any, name: str) -> Iterator[Record | Fault]:
    """Sections of a leaflet: what stands under each heading, in as many records as it has
    paragraphs (empty lines part them), with the heading as the section.
    """
    place, section, lines, written = 0, "", [], False
    for line in [*decoded(file.read()).splitlines(), ""]:
        line = line.strip()
        heading = is_heading(line)
        if (heading or not line) and lines:
            yield record("\n".join(lines), stem(name), place, {"section": section})
            place, lines, written = place + 1, [], True
        if heading:
            section = line
        elif line:
            lines.append(line)
    if not written:
        yield Fault(name, "empty text")


def text(file: Any, name: str) -> Iterator[Record | Fault]:
    """A file that is one text."""
    yield record(decoded(file.read()), stem(name), 0, {})


def noteevents(file: Any, name: str) -> Iterator[Record | Fault]:
    """Notes of MIMIC-III's NOTEEVENTS.csv; its marks of what was taken out stay as they are.

    The article is ROW_ID. Rows that the table itself calls errors (ISERROR 1) are faults.
    """
    csv.field_size_limit(MOST)
    lines = io.TextIOWrapper(file, "utf-8", errors="surrogateescape", newline="")
    rows = csv.reader(lines)
    try:
        head = [field.strip().upper().lstrip("\ufeff") for field in next(rows, [])]
        missing = [column for column in NOTES if column not in head]
        if missing:
            yield Fault("line 1", f"no column {', '.join(missing)}")
            return
        columns = {column: head.index(column) for column in NOTES}
        for row in rows:
            where = f"line {rows.line_num}"
            if len(row) != len(head):
                yield Fault(where, f"{len(row)} fields; the head has {len(head)}")
                continue
            values = {column: row[i].strip() for column, i in columns.items()}
            if values["ISERROR"] == "1":
                yield Fault(where, "an error, by its own ISERROR")
                continue
            about = {
                "subject": values["SUBJECT_ID"],
                "admission": values["HADM_ID"],
                "section": values["DESCRIPTION"],
                "category": values["CATEGORY"],
            }
            yield record(values["TEXT"], values["ROW_ID"], 0, about)
    except csv.Error:
        yield Fault(f"line {rows.line_num}", "not CSV from here on, or an open quotation mark")
    finally:
        lines.detach()
