"""ChemProt (BioCreative VI): how a chemical and a gene of a sentence relate, in both layouts."""

from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Example, Text
from cpt_jax.finetune.tasks.reading import (
    fault,
    field_of,
    json_lines_of,
    openings_of,
    shown,
    table_of,
)

# The relations of SciBERT's files, as finely as the corpus has them.
RELATIONS = (
    "ACTIVATOR",
    "AGONIST",
    "AGONIST-ACTIVATOR",
    "AGONIST-INHIBITOR",
    "ANTAGONIST",
    "DOWNREGULATOR",
    "INDIRECT-DOWNREGULATOR",
    "INDIRECT-UPREGULATOR",
    "INHIBITOR",
    "PRODUCT-OF",
    "SUBSTRATE",
    "SUBSTRATE_PRODUCT-OF",
    "UPREGULATOR",
)
# The five groups that the shared task evaluated, and pairs without any of them.
GROUPS = ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9", "false")


def read_scibert(files: Sequence[Path], split: str = "") -> list[Example]:
    """SciBERT's: JSONL with `text` and `label`, the two entities in it as << x >> and [[ y ]].

    Pairs without a relation are not in it. The markers stay in the text (Beltagy et al. 2019,
    data/text_classification/chemprot of allenai/scibert).
    """
    del split
    examples: list[Example] = []
    for path in files:
        for line, record in json_lines_of(path):
            text = field_of(path, line, record, "text")
            markers = openings_of(path, line, text, ("<< ", "[[ "))
            for start, closing in zip(markers, (" >>", " ]]"), strict=True):
                if text.find(closing, start) < 0:
                    fault(path, line, f"no {closing!r} after character {start}: {shown(text)}")
            label = (field_of(path, line, record, "label"),)
            where = f"{path}:{line}"
            examples.append(Text(f"{path.name}:{line}", text, label, None, markers, where))
    return examples


def read_blue(files: Sequence[Path], split: str = "") -> list[Example]:
    """BLUE's and BLURB's: a table with `index`, `sentence` and `label`, the entities blinded.

    They are @CHEMICAL$ and @GENE$, or @CHEM-GENE$ where they overlap (Peng et al. 2019,
    blue_plus/chemprot). Labels are the groups CPR:3, 4, 5, 6, 9, and false.
    """
    del split
    examples: list[Example] = []
    for path in files:
        for line, row in table_of(path, ("index", "sentence", "label")):
            text = field_of(path, line, row, "sentence")
            if "@CHEM-GENE$" not in text and not ("@CHEMICAL$" in text and "@GENE$" in text):
                fault(path, line, f"no @CHEMICAL$ and @GENE$, and no @CHEM-GENE$: {shown(text)}")
            label = (field_of(path, line, row, "label"),)
            examples.append(
                Text(field_of(path, line, row, "index"), text, label, where=f"{path}:{line}")
            )
    return examples
