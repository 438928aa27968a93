"""Phenotypes of intensive-care patients, from their notes (Moseley et al. 2020, PhysioNet).

ACTdb102003.csv of phenotype-annotations-mimic 1.20.03 has a row a note and annotator, with 0 or 1
for each phenotype, NONE and UNSURE; its ROW_ID is that of NOTEEVENTS.csv of MIMIC-III 1.4, which
has the text. Both need a PhysioNet credential. Taken as BioClinical ModernBERT takes them (Sounack
et al. 2025, src/dataloader of lindvalllab/BioClinical-ModernBERT): every row is an example of its
own, UNSURE is a label, and rows with NONE and something else are left out. A note that two
annotators read may so lie in two splits.
"""

from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Example, Text
from cpt_jax.finetune.tasks.reading import fault, shown, table_of, two_of

PHENOTYPES = (
    "ADVANCED.CANCER",
    "ADVANCED.HEART.DISEASE",
    "ADVANCED.LUNG.DISEASE",
    "ALCOHOL.ABUSE",
    "CHRONIC.NEUROLOGICAL.DYSTROPHIES",
    "CHRONIC.PAIN.FIBROMYALGIA",
    "DEMENTIA",
    "DEPRESSION",
    "DEVELOPMENTAL.DELAY.RETARDATION",
    "NON.ADHERENCE",
    "OBESITY",
    "OTHER.SUBSTANCE.ABUSE",
    "SCHIZOPHRENIA.AND.OTHER.PSYCHIATRIC.DISORDERS",
    "UNSURE",
)


def read(files: Sequence[Path], split: str = "") -> list[Example]:
    """The annotated notes, in the order of the annotations.

    Args:
      files: ACTdb102003.csv and NOTEEVENTS.csv (or .csv.gz).
    """
    del split
    annotations, notes = two_of(files, "annotations and notes")
    rows: list[tuple[int, str, tuple[str, ...]]] = []
    columns = ("ROW_ID", "NONE", *PHENOTYPES)
    for line, row in table_of(annotations, columns, delimiter=",", quoted=True):
        for column in columns[1:]:
            if row[column] not in ("0", "1"):
                fault(annotations, line, f"{column}: {shown(row[column])} is neither 0 nor 1")
        labels = tuple(name for name in PHENOTYPES if row[name] == "1")
        if row["NONE"] == "0" or not labels:
            rows.append((line, row["ROW_ID"], labels))
    wanted = {row_id for _, row_id, _ in rows}
    texts: dict[str, str] = {}
    for line, row in table_of(notes, ("ROW_ID", "TEXT"), delimiter=",", quoted=True):
        if row["ROW_ID"] in wanted:
            if not row["TEXT"].strip():
                fault(notes, line, f"ROW_ID {row['ROW_ID']}: empty TEXT")
            texts[row["ROW_ID"]] = row["TEXT"]
    absent = [row for row in rows if row[1] not in texts]
    if absent:
        line, row_id, _ = absent[0]
        count = f"{len(absent)} annotated notes are not in {notes}"
        fault(annotations, line, f"ROW_ID {row_id}: {count}; is it all of MIMIC-III 1.4's?")
    return [
        Text(f"{row_id}:{line}", texts[row_id], labels, where=f"{annotations}:{line}")
        for line, row_id, labels in rows
    ]
