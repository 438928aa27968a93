"""The paper's French tasks.

Where the paper does not say how a task was made, the authors' public evaluation code does
(repository Rian-T/tabib): FRACCO's labels are the codes of its `expression_CIM` mentions, CANTEMIST
and DISTEMIST are document coding with the 100 most frequent codes, and spans warm up for a tenth of
the steps. Two things differ here: frequencies are counted in the training split alone (there in the
whole corpus), and documents without any of the codes stay.
"""

import dataclasses
from functools import partial

from cpt_jax.finetune.examples import SPLITS, Settings, Task
from cpt_jax.finetune.tasks import brat, coded, records

CASES = Settings(
    epochs=15, learning_rate=2e-5, batch=4, warmup=0.1, weight_decay=0.01, max_length=2048
)
CODES = dataclasses.replace(CASES, max_length=4096, positive_weights=True)
SPANS = Settings(
    learning_rate=5e-5,
    head_learning_rate=1e-3,
    batch=16,
    epochs=None,
    steps=4000,
    evaluations=8,  # every 500 steps
    warmup=0.1,
    clip_norm=10.0,
    max_length=1024,
    dropout=0.4,
)
# UMLS semantic groups.
QUAERO_LABELS = (
    *("ANAT", "CHEM", "DEVI", "DISO", "GEOG"),
    *("LIVB", "OBJC", "PHEN", "PHYS", "PROC"),
)


def _fracco(top: int) -> Task:
    return Task(
        name=f"fracco_{top}",
        title=f"FRACCO-{top}",
        language="fr",
        kind="multilabel",
        read=partial(coded.read, system="ICD-O", label="expression_CIM", top=top),
        files=dict.fromkeys(SPLITS, ("ann_txt_files/*.txt", "ann_txt_files/*.ann")),
        folder=("FRACCO",),
        labels=None,
        metric="macro_f1",
        settings=CODES,
        source="https://zenodo.org/records/17284817",
        licence="as its record says",
        paper=f"FRACCO-{top}",
    )


def _frasimed(title: str, system: str) -> Task:
    folder = f"{title}-FRASIMED"
    return Task(
        name=title.lower(),
        title=title,
        language="fr",
        kind="multilabel",
        read=partial(coded.read, system=system, top=100),
        files=dict.fromkeys(SPLITS, ("*.txt", "*.ann")),
        folder=(folder,),
        labels=None,
        metric="macro_f1",
        settings=CODES,
        source="https://zenodo.org/records/8355629",
        licence="CC BY 4.0",
        paper=title,
    )


def _quaero(name: str, title: str, part: str) -> Task:
    return Task(
        name=name,
        title=title,
        language="fr",
        kind="spans",
        read=partial(brat.read, labels=QUAERO_LABELS),
        files={
            split: (f"corpus/{split}/{part}/*.txt", f"corpus/{split}/{part}/*.ann")
            for split in SPLITS
        },
        folder=("QUAERO", "QUAERO_FrenchMed"),
        labels=QUAERO_LABELS,
        metric="span_f1",
        settings=SPANS,
        source="https://quaerofrenchmed.limsi.fr",
        licence="GFDL",
        paper=title,
    )


MEDDIALOG = Task(
    name="meddialog",
    title="MedDialog",
    language="fr",
    kind="multilabel",
    read=records.meddialog,
    files=dict.fromkeys(
        SPLITS,
        (
            "multilabel_annotation/dataset_multilabel_meddialog_22labels.csv",
            "post-editing/meddialog-fr-women_post-editing.csv",
        ),
    ),
    folder=("MedDialog-FR-women",),
    labels=None,
    metric="macro_f1",
    settings=CODES,
    source="its authors: https://aclanthology.org/2024.cl4health-1.21",
    licence="gated",
    paper="MedDialog",
)

DIAMED = Task(
    name="diamed",
    title="DiaMED",
    language="fr",
    kind="classification",
    read=records.diamed,
    files={
        "train": ("splits/train.json",),
        "dev": ("splits/validation.json",),
        "test": ("splits/test.json",),
    },
    folder=("DiaMED", "diamed"),
    labels=records.CHAPTERS,
    metric="macro_f1",
    settings=CASES,
    source="data.zip of https://huggingface.co/datasets/DrBenchmark/DiaMED",
    licence="CC BY 4.0",
    paper="DiaMED",
)

TASKS: tuple[Task, ...] = (
    _fracco(30),
    _fracco(100),
    _frasimed("CANTEMIST", "ICD-O-3.1"),
    _frasimed("DISTEMIST", "SNOMED"),
    MEDDIALOG,
    DIAMED,
    _quaero("emea", "EMEA", "EMEA"),
    _quaero("medline", "Medline", "MEDLINE"),
)
