"""Tasks whose data anyone may fetch, beyond the paper's."""

import dataclasses
from functools import partial

from cpt_jax.finetune.examples import Task
from cpt_jax.finetune.tasks import french, records

SPECIALITIES = (
    *("chemistry", "etiology", "genetics", "immunology", "microbiology", "parasitology"),
    *("pharmacology", "physiology", "psychology", "surgery", "veterinary", "virology"),
)

MORFITT = Task(
    name="morfitt",
    title="MORFITT",
    language="fr",
    kind="multilabel",
    read=partial(records.morfitt, labels=SPECIALITIES),
    files={split: (f"{split}.tsv",) for split in ("train", "dev", "test")},
    folder=("MORFITT",),
    labels=SPECIALITIES,
    metric="macro_f1",
    settings=dataclasses.replace(french.CODES, max_length=1024),
    source="https://github.com/qanastek/MORFITT",
    licence="CC BY-SA 4.0 (README; its LICENSE file is MIT's)",
)

FRENCH_MED_MCQA = Task(
    name="french_med_mcqa",
    title="FrenchMedMCQA",
    language="fr",
    kind="multilabel",
    read=records.french_med_mcqa,
    files={split: (f"corpus/{split}.json",) for split in ("train", "dev", "test")},
    folder=("FrenchMedMCQA",),
    labels=records.ANSWERS,
    metric="macro_f1",
    settings=dataclasses.replace(french.CODES, max_length=512),
    source="https://github.com/qanastek/FrenchMedMCQA",
    licence="Apache-2.0",
)

TASKS: tuple[Task, ...] = (MORFITT, FRENCH_MED_MCQA)
