"""Tasks whose data anyone may fetch, and others in the layouts that are read here.

None is the paper's. The splits that PubMedQA and the personal data lack are cut here, by the rule
of `Cut`.
"""

import dataclasses
import functools

from cpt_jax.finetune.examples import Cut, Task
from cpt_jax.finetune.tasks import chemprot, conll, deid, french, jsonl, personal, records
from cpt_jax.finetune.tasks.english import ENTITIES, LONG_ENTITIES, N2C2, TEXTS

CHEMPROT_SCIBERT = Task(
    name="chemprot_scibert",
    title="ChemProt (13 relations, SciBERT)",
    language="en",
    kind="relation",
    read=chemprot.read_scibert,
    files={"train": ("train.txt",), "dev": ("dev.txt",), "test": ("test.txt",)},
    folder=("chemprot", "ChemProt"),
    labels=chemprot.RELATIONS,
    metric="micro_f1",
    settings=TEXTS,
    source="https://github.com/allenai/scibert/tree/master/data/text_classification/chemprot",
    licence="Apache-2.0 (the repository's)",
)
JNLPBA_UNTYPED = Task(
    name="jnlpba_untyped",
    title="JNLPBA (one type, BLURB)",
    language="en",
    kind="tagging",
    read=functools.partial(conll.read, untyped="Entity"),
    files={"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)},
    folder=("JNLPBA",),
    labels=("Entity",),
    metric="entity_f1",
    settings=ENTITIES,
    source="https://microsoft.github.io/BLURB (data_generation)",
    licence="CC BY 3.0 (GENIA's)",
)
DEID_2006 = Task(
    name="deid_i2b2_2006",
    title="De-identification, i2b2 2006",
    language="en",
    kind="tagging",
    read=deid.read_2006,
    files={
        "train": ("deid_surrogate_train_all_version2.xml",),
        "test": ("deid_surrogate_test_all_groundtruth_version2.xml",),
    },
    folder=("i2b2-2006-deid", "2006 - Deidentification and Smoking Challenge"),
    labels=deid.TYPES_2006,
    metric="entity_f1",
    settings=LONG_ENTITIES,
    source=N2C2,
    licence="n2c2 data use agreement (gated)",
    cuts=(Cut("train", "dev", 0.1),),
)
DEID_2014 = Task(
    name="deid_i2b2_2014",
    title="De-identification, i2b2 2014",
    language="en",
    kind="tagging",
    read=deid.read_2014,
    files={
        "train": ("training-PHI-Gold-Set1/*.xml", "training-PHI-Gold-Set2/*.xml"),
        "test": ("testing-PHI-Gold-fixed/*.xml",),
    },
    folder=("i2b2-2014-deid", "2014 - De-identification and Heart Disease Risk Factors Challenge"),
    labels=deid.TYPES_2014,
    metric="entity_f1",
    settings=LONG_ENTITIES,
    source=N2C2,
    licence="n2c2 data use agreement (gated)",
    cuts=(Cut("train", "dev", 0.1),),
)
PUBMEDQA = Task(
    name="pubmedqa",
    title="PubMedQA (PQA-L)",
    language="en",
    kind="classification",
    read=jsonl.read_pubmedqa,
    files={
        "train": ("data/ori_pqal.json", "data/test_ground_truth.json"),
        "test": ("data/ori_pqal.json", "data/test_ground_truth.json"),
    },
    folder=("pubmedqa", "PubMedQA"),
    labels=jsonl.DECISIONS,
    metric="macro_f1",
    settings=TEXTS,
    source="https://github.com/pubmedqa/pubmedqa",
    licence="MIT",
    cuts=(Cut("train", "dev", 0.1),),
)
CSABSTRUCT = Task(
    name="csabstruct",
    title="CSAbstruct",
    language="en",
    kind="classification",
    read=jsonl.read_abstracts,
    files={"train": ("train.jsonl",), "dev": ("dev.jsonl",), "test": ("test.jsonl",)},
    folder=("CSAbstruct",),
    labels=jsonl.ROLES,
    metric="micro_f1",
    settings=TEXTS,
    source="https://github.com/allenai/sequential_sentence_classification",
    licence="Apache-2.0 (the repository's)",
)
PERSONAL_DATA = Task(
    name="personal_data",
    title="Personal data (synthetic, Presidio)",
    language="en",
    kind="tagging",
    read=personal.read,
    files={"train": ("synth_dataset_v2.json",)},
    folder=("presidio_synth_pii", "presidio-research"),
    labels=personal.TYPES,
    metric="entity_f1",
    settings=ENTITIES,
    source="https://github.com/microsoft/presidio-research/tree/master/data",
    licence="MIT",
    cuts=(Cut("train", "test", 0.2), Cut("train", "dev", 0.125)),
)

SPECIALITIES = (
    *("chemistry", "etiology", "genetics", "immunology", "microbiology", "parasitology"),
    *("pharmacology", "physiology", "psychology", "surgery", "veterinary", "virology"),
)

MORFITT = Task(
    name="morfitt",
    title="MORFITT",
    language="fr",
    kind="multilabel",
    read=functools.partial(records.morfitt, labels=SPECIALITIES),
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

TASKS: tuple[Task, ...] = (
    *(CHEMPROT_SCIBERT, JNLPBA_UNTYPED, DEID_2006, DEID_2014),
    *(PUBMEDQA, CSABSTRUCT, PERSONAL_DATA, MORFITT, FRENCH_MED_MCQA),
)
