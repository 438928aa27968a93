"""CoNLL's columns: a word and its tag a line, a blank line after each sentence.

The layout of the shared task of 2003 (Tjong Kim Sang & De Meulder) and of MTL-Bioinformatics-2016,
SciBERT and BLURB after it. Columns are separated by TABs, or by spaces where a line has no TAB.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from cpt_jax.finetune.examples import Example, Words
from cpt_jax.finetune.tasks.reading import fault, lines_of, shown


def read(
    files: Sequence[Path],
    split: str = "",
    *,
    word: int = 0,
    tag: int = -1,
    scheme: Literal["iob1", "iob2"] = "iob2",
    untyped: str | None = None,
) -> list[Example]:
    """The sentences of the files; lines that begin with -DOCSTART- are passed over.

    Args:
      word, tag: the columns, counted from 0; from the end where negative.
      scheme: "iob2": an entity begins with B-; an I- that follows no tag of its type is an error.
        "iob1": B- only parts an entity from one of its type just before it; it becomes IOB2.
      untyped: the type of entities whose tags are B and I alone.
    """
    del split
    sentences: list[Example] = []
    for path in files:
        start, rows = 0, []
        for line, text in [*lines_of(path), (0, "")]:
            if not text.strip() or text.startswith("-DOCSTART-"):
                if rows:
                    words, tags = zip(*rows, strict=True)
                    where = f"{path}:{start}"
                    sentences.append(Words(f"{path.name}:{start}", words, tags, where))
                rows = []
                continue
            start = start if rows else line
            columns = text.split("\t") if "\t" in text else text.split()
            size = len(columns)
            if size < 2 or not all(-size <= index < size for index in (word, tag)):
                fault(path, line, f"no columns {word} and {tag} in {shown(text)}")
            if word % size == tag % size:
                fault(path, line, f"columns {word} and {tag} are the same in {shown(text)}")
            if not columns[word].strip():
                fault(path, line, f"empty word in {shown(text)}")
            before = rows[-1][1] if rows else "O"
            rows.append((columns[word], _iob2(path, line, columns[tag], before, scheme, untyped)))
    return sentences


def _iob2(path: Path, line: int, tag: str, before: str, scheme: str, untyped: str | None) -> str:
    """The tag in IOB2, given the one before it in IOB2."""
    if tag == "O":
        return tag
    if untyped is not None and tag in ("B", "I"):
        tag = f"{tag}-{untyped}"
    prefix, _, kind = tag.partition("-")
    if prefix not in ("B", "I") or not kind:
        fault(path, line, f"tag {tag!r} is none of O, B-TYPE, I-TYPE")
    if prefix == "I" and before[2:] != kind:
        if scheme == "iob2":
            fault(path, line, f"tag {tag!r} after {before!r}: not IOB2 (is the file IOB1?)")
        return f"B-{kind}"
    return tag
