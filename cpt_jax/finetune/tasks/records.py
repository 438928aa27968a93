"""Texts with labels in tables and JSON, each data set as its authors publish it."""

import ast
import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from cpt_jax.finetune.examples import SPLITS, Example, Text
from cpt_jax.finetune.tasks.reading import fault, field_of, json_list_of, shown, table_of

# Of ICD-10-CM, as DiaMED's annotators took them.
CHAPTERS = (
    *("A00-B99", "C00-D49", "D50-D89", "E00-E89", "F01-F99", "G00-G99", "H00-H59", "H60-H95"),
    *("I00-I99", "J00-J99", "K00-K95", "L00-L99", "M00-M99", "N00-N99", "O00-O9A", "P00-P96"),
    *("Q00-Q99", "R00-R99", "S00-T88", "U00-U85", "V00-Y99", "Z00-Z99"),
)
# What stands for a chapter where a case has none, or several.
NO_CHAPTER = ("Plusieurs cas cliniques", "Aucune annotation")
ANSWERS = ("a", "b", "c", "d", "e")


def morfitt(
    files: Sequence[Path], split: str = "", *, labels: Collection[str] | None = None
) -> list[Example]:
    """MORFITT: TSV of identifier, abstract and specialities, these joined by "|".

    Source: the data set's repository, qanastek/MORFITT; read from its files. Fields with quotes in
    them are quoted as in CSV.
    """
    del split
    texts: list[Example] = []
    for path in files:
        columns = ("identifier", "abstract", "specialities")
        for line, row in table_of(path, columns, quoted=True):
            identifier, abstract, joined = (field_of(path, line, row, name) for name in columns)
            found = tuple(joined.strip().split("|"))
            _check(path, line, "specialities", found, labels)
            texts.append(Text(identifier, abstract.strip(), found, where=f"{path}:{line}"))
    return texts


def french_med_mcqa(files: Sequence[Path], split: str = "") -> list[Example]:
    """FrenchMedMCQA as five yes-or-no questions a text: which of the answers a to e are right.

    The text is the question, then a line for each answer, "(a) ...". A question that is there twice
    stays so, the second with "#2" after its id.

    Source: the data set's repository, qanastek/FrenchMedMCQA, `corpus/*.json`; read from its files.
    """
    del split
    texts: list[Example] = []
    seen: Counter[str] = Counter()
    for path in files:
        for line, record in json_list_of(path):
            identifier = field_of(path, line, record, "id")
            question = field_of(path, line, record, "question")
            answers, right = record.get("answers"), record.get("correct_answers")
            if not isinstance(answers, dict) or set(answers) != set(ANSWERS):
                fault(path, line, f"{identifier}: answers {shown(str(answers))} are not a to e")
            if not isinstance(right, list) or not right:
                fault(path, line, f"{identifier}: correct_answers {right!r} is no list of letters")
            _check(path, line, f"{identifier}: correct_answers", right, ANSWERS)
            lines = [f"({letter}) {field_of(path, line, answers, letter)}" for letter in ANSWERS]
            seen[identifier] += 1
            if seen[identifier] > 1:
                identifier += f"#{seen[identifier]}"
            text = "\n".join((question, *lines))
            texts.append(Text(identifier, text, tuple(right), where=f"{path}:{line}"))
    return texts


def diamed(files: Sequence[Path], split: str = "") -> list[Example]:
    """DiaMED: JSON, a list of clinical cases; the label is the range of an ICD-10 chapter.

    "icd-10": "A00-B99  Certain infectious and parasitic diseases". Cases without a chapter are
    passed over, as the data set's own script does: NaN or null, or a text that says so.

    Source: `splits/{train,validation,test}.json` of the archive that DrBenchmark/DiaMED's loading
    script reads, and that script; not verified on the archive itself (1.2 GB with its figures).
    """
    del split
    texts: list[Example] = []
    for path in files:
        for line, record in json_list_of(path):
            identifier = field_of(path, line, record, "identifier")
            chapter = record.get("icd-10", "")
            if chapter is None or (isinstance(chapter, float) and math.isnan(chapter)):
                continue
            chapter = field_of(path, line, record, "icd-10")
            if any(said in chapter for said in NO_CHAPTER):
                continue
            label = chapter.split()[0]
            if label not in CHAPTERS:
                fault(path, line, f"{identifier}: icd-10 {shown(chapter)} begins with no chapter")
            case = field_of(path, line, record, "clinical_case").strip()
            texts.append(Text(identifier, case, (label,), where=f"{path}:{line}"))
    return texts


def meddialog(files: Sequence[Path], split: str) -> list[Example]:
    """MedDialog-FR Women: questions labelled with UMLS concepts, each read with its answer.

    Two tables with TABs: id, split, labels (a list as Python writes it: "['C0009862', 'C0042256']")
    of the questions; id and post-edited text of questions (NAME_q) and answers (NAME_a).

    Source: Liu et al. 2024 (https://aclanthology.org/2024.cl4health-1.21); not verified on its
    files: names and columns are those that the reader in the public repository Rian-T/tabib uses.

    Args:
      files: multilabel_annotation/*.csv, then post-editing/*.csv.
    """
    if len(files) != 2:
        fault(files[0].parent, None, f"{len(files)} tables; 2 are read: annotations, then texts")
    annotated, edited = files
    lines: dict[str, tuple[int, dict[str, str]]] = {}
    for line, row in table_of(edited, ("id", "post-edited"), quoted=True):
        lines[field_of(edited, line, row, "id")] = line, row
    texts: list[Example] = []
    for line, row in table_of(annotated, ("id", "split", "labels"), quoted=True):
        identifier = field_of(annotated, line, row, "id")
        if row["split"] not in SPLITS:
            fault(annotated, line, f"split {row['split']!r} is none of {', '.join(SPLITS)}")
        if row["split"] != split:
            continue
        if identifier not in lines:
            fault(annotated, line, f"{identifier}: no text of this id in {edited}")
        question = field_of(edited, *lines[identifier], "post-edited").strip()
        answer = lines.get(identifier.removesuffix("_q") + "_a")
        labels = _python_list(annotated, line, row["labels"])
        pair = None if answer is None else field_of(edited, *answer, "post-edited").strip()
        texts.append(Text(identifier, question, labels, pair, where=f"{annotated}:{line}"))
    return texts


def _python_list(path: Path, line: int, written: str) -> tuple[str, ...]:
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        fault(path, line, f"labels {shown(written)} are no list such as ['C0009862']")
    _check(path, line, "labels", value, None)
    return tuple(value)


def _check(
    path: Path, line: int, field: str, found: Sequence[Any], labels: Collection[str] | None
) -> None:
    """Raises ValueError for a label that is empty, there twice, or none of those allowed."""
    for index, label in enumerate(found):
        if labels is not None and label not in labels:
            fault(path, line, f"{field}: {label!r} is none of {', '.join(sorted(labels))}")
        if not label or label in found[:index]:
            fault(path, line, f"{field}: {shown(str(found))} holds an empty label or one twice")
