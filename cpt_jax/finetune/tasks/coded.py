"""Documents with the codes of a terminology: what FRACCO's and FRASIMED's notes give a document.

FRACCO (https://zenodo.org/records/17284817): BRAT's files in `ann_txt_files/`, so the reader in the
public repository Rian-T/tabib. The code of a mention is a note; that of an `expression_CIM` is a
topography and a morphology, or several of them. Seen in ten files of an earlier public copy,
mifiguemi/onco-camembert; not verified on the record's own:

T2<TAB>expression_CIM 2300 2323<TAB>adénopathie parahilaire
#2<TAB>ICD-O T2<TAB>C77.1 8000/1
#36<TAB>ICD-O T41<TAB>C41.9 8000/6;C44.9 8000/6
#16<TAB>ICD-O T18<TAB>tocheck

FRASIMED (https://zenodo.org/records/8355629): the same in `CANTEMIST-FRASIMED/` and
`DISTEMIST-FRASIMED/`, notes of kinds `ICD-O-3.1` and `SNOMED`. Not verified on its own files: the
layout is that which Rian-T/tabib's reader describes; that a "+" joins codes is the rule of the
Spanish DisTEMIST, of which it is a translation.

Neither corpus is published in splits. Here a document's split follows from its name alone, so it is
the same in both (they share their documents), on every machine, and whatever else is there.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Example, Text
from cpt_jax.finetune.tasks import brat
from cpt_jax.finetune.tasks.reading import fault, text_of
from cpt_jax.seeds import hash_seed

NO_CODE = ("", "tocheck")  # an annotator's mark where none was found
TENTHS = ("train",) * 8 + ("dev", "test")


def read(
    files: Sequence[Path],
    split: str,
    *,
    system: str,
    label: str | None = None,
    top: int | None = None,
) -> list[Example]:
    """The documents of a split, each with its codes in the order of its notes, none twice.

    A document without a code has no label, and stays.

    Args:
      files: .txt and .ann of all splits.
      split: whose documents are returned.
      system: the kind of note that holds codes.
      label: of the mentions that are coded; None: any.
      top: how many codes are kept: those that most documents of the training split have, of equals
        the alphabetically first; the others are left out of every split. None: all are kept.

    Raises:
      ValueError: what `brat.parse` raises; no document with a code.
    """
    codes: dict[str, list[str]] = {}
    texts: dict[str, Path] = {}
    for text_file, annotations in brat.pairs(files):
        texts[text_file.stem] = text_file
        codes[text_file.stem] = _codes(annotations, system, label)
    if not any(codes.values()):
        of = f" on a mention {label!r}" if label else ""
        fault(files[0].parent, None, f"no note of kind {system!r}{of} in {len(codes)} documents")
    kept = {code for found in codes.values() for code in found}
    if top is not None:
        train = (found for name, found in codes.items() if split_of(name) == "train")
        counts = Counter(code for found in train for code in found)
        kept = set(sorted(counts, key=lambda code: (-counts[code], code))[:top])
    return [
        Text(
            name,
            text_of(texts[name]).replace("\r\n", "\n"),
            tuple(code for code in found if code in kept),
            where=str(texts[name]),
        )
        for name, found in codes.items()
        if split_of(name) == split
    ]


def split_of(name: str) -> str:
    """The split of a document: train for eight tenths of all names, dev and test for one each.

    hash_seed("split", NAME) modulo 10, of a name without suffix, is 0 to 7, 8, or 9.
    """
    return TENTHS[hash_seed("split", name) % 10]


def _codes(annotations: Path, system: str, label: str | None) -> list[str]:
    mentions, notes = brat.parse(annotations)
    coded = {mention.id for mention in mentions if label in (None, mention.label)}
    found: dict[str, None] = {}
    for note in notes:
        if note.kind == system and note.target in coded:
            codes = (" ".join(code.split()) for code in re.split("[;+]", note.text))
            found |= dict.fromkeys(code for code in codes if code.lower() not in NO_CODE)
    return list(found)
