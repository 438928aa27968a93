"""Texts with labels, as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Example, Text
from cpt_jax.finetune.tasks.reading import (
    fault,
    field_of,
    json_lines_of,
    json_of,
    openings_of,
    shown,
    two_of,
)

DECISIONS = ("yes", "no", "maybe")
ROLES = ("background", "objective", "method", "result", "other")


def read(
    files: Sequence[Path],
    split: str = "",
    *,
    text: str,
    label: str,
    id: str | None = None,
    pair: str | None = None,
    markers: tuple[str, ...] | None = None,
) -> list[Example]:
    """One example an object of JSONL files.

    Args:
      text, label, id, pair: fields. The label is a text, or a list of any number of them. Without
        a field for the id it is FILE:LINE.
      markers: of a relation: what opens each of its two entities in the text, "<<" and "[[" say.
    """
    del split
    examples: list[Example] = []
    for path in files:
        for line, record in json_lines_of(path):
            if isinstance(record.get(label), list):
                labels = tuple(record[label])
                for one in labels:
                    if not isinstance(one, str) or not one.strip():
                        fault(path, line, f"{label}: {shown(str(one))} is not a label")
            else:
                labels = (field_of(path, line, record, label),)
            content = field_of(path, line, record, text)
            examples.append(
                Text(
                    f"{path.name}:{line}" if id is None else field_of(path, line, record, id),
                    content,
                    labels,
                    None if pair is None else field_of(path, line, record, pair),
                    None if markers is None else openings_of(path, line, content, markers),
                    f"{path}:{line}",
                )
            )
    return examples


def read_abstracts(files: Sequence[Path], split: str = "") -> list[Example]:
    """CSAbstruct's: JSONL of abstracts, `sentences` and as many `labels`; a sentence an example.

    The ids in it are all 0; ours are FILE:LINE.SENTENCE, the sentence counted from 0. (Cohan et
    al. 2019, data/CSAbstruct of allenai/sequential_sentence_classification.)
    """
    del split
    examples: list[Example] = []
    for path in files:
        for line, record in json_lines_of(path):
            for name in ("sentences", "labels"):
                if not isinstance(record.get(name), list):
                    fault(path, line, f"no list {name!r} among {', '.join(record)}")
            sentences, labels = record["sentences"], record["labels"]
            if len(sentences) != len(labels):
                fault(path, line, f"{len(sentences)} sentences with {len(labels)} labels")
            for number, pair in enumerate(zip(sentences, labels, strict=True)):
                row = {"sentence": pair[0], "label": pair[1]}
                text, label = (field_of(path, line, row, field) for field in row)
                name = f"{path.name}:{line}.{number}"
                examples.append(Text(name, text, (label,), where=f"{path}:{line}"))
    return examples


def read_pubmedqa(files: Sequence[Path], split: str) -> list[Example]:
    """PubMedQA's PQA-L: questions with the paragraphs of an abstract but its conclusion.

    Args:
      files: ori_pqal.json, and test_ground_truth.json, whose PMIDs are the test split; all others
        are train.
      split: "train" or "test".

    The text is the question, its pair the paragraphs, joined by a space; the label is
    `final_decision` (Jin et al. 2019: the setting that requires reasoning).
    """
    path, truth_path = two_of(files, "questions and the test split's answers")
    questions, truth = json_of(path), json_of(truth_path)
    for file, value in ((path, questions), (truth_path, truth)):
        if not isinstance(value, dict):
            fault(file, None, f"not an object keyed by PMID: {shown(json.dumps(value))}")
    for pmid in truth:
        if pmid not in questions:
            fault(truth_path, None, f"PMID {pmid} is not in {path}")
    examples: list[Example] = []
    for pmid, record in questions.items():
        if (pmid in truth) != (split == "test"):
            continue
        where = f"{path}: {pmid}"
        if not isinstance(record, dict) or not isinstance(record.get("CONTEXTS"), list):
            fault(path, None, f"{pmid}: no list 'CONTEXTS'")
        question = field_of(path, None, record, "QUESTION")
        label = field_of(path, None, record, "final_decision")
        if truth.get(pmid, label) != label:
            fault(truth_path, None, f"{pmid}: {truth[pmid]!r}, but {label!r} in {path}")
        pair = " ".join(
            field_of(path, None, {"CONTEXTS": part}, "CONTEXTS") for part in record["CONTEXTS"]
        )
        examples.append(Text(pmid, question, (label,), pair, where=where))
    return examples
