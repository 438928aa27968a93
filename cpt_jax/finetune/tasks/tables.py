"""Texts with labels, one a row of a table with a header."""

import re
from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Example, Text
from cpt_jax.finetune.tasks.reading import fault, field_of, shown, table_of


def read(
    files: Sequence[Path],
    split: str = "",
    *,
    text: str,
    label: str,
    id: str | None = None,
    pair: str | None = None,
    separator: str | None = None,
    delimiter: str = "\t",
    quoted: bool = False,
) -> list[Example]:
    """One example a row, as in BLURB's tables (GAD).

    Args:
      text, label, id, pair: columns. Without one for the id it is FILE:LINE.
      separator: between the labels of a text that has any number of them; a row whose label is
        empty has none.
      quoted: CSV's quotes; without, a quote is a character like any other.
    """
    del split
    examples: list[Example] = []
    columns = [column for column in (text, label, id, pair) if column is not None]
    for path in files:
        for line, row in table_of(path, columns, delimiter=delimiter, quoted=quoted):
            if separator is None:
                labels = (field_of(path, line, row, label).strip(),)
            else:
                labels = tuple(part.strip() for part in row[label].split(separator) if part.strip())
            examples.append(
                Text(
                    f"{path.name}:{line}" if id is None else field_of(path, line, row, id),
                    field_of(path, line, row, text),
                    labels,
                    None if pair is None else field_of(path, line, row, pair),
                    where=f"{path}:{line}",
                )
            )
    return examples


# In the order of the flags: BLUE's and BLURB's (the hallmarks by their names' alphabet).
HALLMARKS = (
    "activating invasion and metastasis",
    "avoiding immune destruction",
    "cellular energetics",
    "enabling replicative immortality",
    "evading growth suppressors",
    "genomic instability and mutation",
    "inducing angiogenesis",
    "resisting cell death",
    "sustaining proliferative signaling",
    "tumor promoting inflammation",
)


def read_hoc(files: Sequence[Path], split: str = "") -> list[Example]:
    """The Hallmarks of Cancer as BLURB has them: documents put together from their sentences.

    Rows are sentences: `labels` ("0_0,1_1,...,9_0": flags of the ten hallmarks), `sentence`, and
    `index` ("PMID_sN", N counted from 0). A document is its sentences joined by a space, in their
    order, with every label that one of them has: that is what BLURB scores (Gu et al. 2021, table
    3: HoC, document classification).
    """
    del split
    examples: list[Example] = []
    for path in files:
        documents: dict[str, tuple[int, list[str], set[str]]] = {}
        last = ""
        for line, row in table_of(path, ("labels", "sentence", "index")):
            match = re.fullmatch(r"(.+)_s(\d+)", row["index"])
            if match is None:
                fault(path, line, f"index {row['index']!r} is not PMID_sN")
            pmid, number = match[1], int(match[2])
            start, sentences, labels = documents.setdefault(pmid, (line, [], set()))
            if number != len(sentences) or (sentences and pmid != last):
                fault(
                    path, line, f"{row['index']}: expected {pmid}_s{len(sentences)}, in its place"
                )
            sentences.append(field_of(path, line, row, "sentence").strip())
            labels.update(_hallmarks(path, line, row["labels"]))
            last = pmid
        for pmid, (start, sentences, labels) in documents.items():
            ordered = tuple(label for label in HALLMARKS if label in labels)
            examples.append(Text(pmid, " ".join(sentences), ordered, where=f"{path}:{start}"))
    return examples


def _hallmarks(path: Path, line: int, field: str) -> list[str]:
    flags = field.split(",")
    for index, flag in enumerate(flags):
        if flag not in (f"{index}_0", f"{index}_1"):
            fault(path, line, f"labels: {shown(flag)} is neither {index}_0 nor {index}_1")
    if len(flags) != len(HALLMARKS):
        fault(path, line, f"labels: {len(flags)} flags, not {len(HALLMARKS)}")
    return [HALLMARKS[index] for index, flag in enumerate(flags) if flag.endswith("_1")]
