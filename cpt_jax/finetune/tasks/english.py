"""The paper's English tasks.

ChemProt, Phenotype, COS, SocialHistory and DEID are BioClinical ModernBERT's (Sounack et al. 2025),
with its data, splits and metrics (src/ of lindvalllab/BioClinical-ModernBERT): F1 of entities, and
F1 of labels weighted by how frequent they are. GAD and HoC are scored by macro F1, as the paper
says; the other tasks by F1 of entities.
"""

import dataclasses
import functools

from cpt_jax.finetune.examples import Cut, Settings, Task
from cpt_jax.finetune.tasks import chemprot, conll, deid, phenotype, tables, washington

ENTITIES = Settings(epochs=20)
# transformers' head for sequences pools as the released models' config.json says: the mean.
TEXTS = Settings(epochs=10, pooling="mean")
LONG_ENTITIES = dataclasses.replace(ENTITIES, max_length=8192)
LONG_TEXTS = dataclasses.replace(TEXTS, max_length=8192)

MTL = "https://github.com/cambridgeltl/MTL-Bioinformatics-2016/tree/master/data"
PHYSIONET = "https://physionet.org/content"
WASHINGTON = "https://depts.washington.edu/bionlp/data/corpora/files"
N2C2 = "https://portal.dbmi.hms.harvard.edu/projects/n2c2-nlp"

_MTL_FILES = {"train": ("train.tsv",), "dev": ("devel.tsv",), "test": ("test.tsv",)}
_TSV_FILES = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
# 70 % train, 15 % dev, 15 % test.
_WASHINGTON_CUTS = (Cut("train", "dev", 0.3), Cut("dev", "test", 0.5))

CHEMPROT = Task(
    name="chemprot",
    title="ChemProt",
    language="en",
    kind="classification",
    read=chemprot.read_blue,
    files=_TSV_FILES,
    folder=("ChemProt", "chemprot"),
    labels=chemprot.GROUPS,
    metric="weighted_f1",
    settings=TEXTS,
    source="https://github.com/ncbi-nlp/BLUE_Benchmark/releases/tag/0.1 (bert_data.zip)",
    licence="as BioCreative VI gives it, for research",
    paper="ChemProt",
)
PHENOTYPE = Task(
    name="phenotype",
    title="Phenotype",
    language="en",
    kind="multilabel",
    read=phenotype.read,
    files={"train": ("**/ACTdb102003.csv", "**/NOTEEVENTS.csv*")},
    folder=("phenotype", "Phenotype", "phenotype-annotations-mimic", "mimiciii"),
    labels=phenotype.PHENOTYPES,
    metric="weighted_f1",
    settings=LONG_TEXTS,
    source=f"{PHYSIONET}/phenotype-annotations-patient-notes-mimic and {PHYSIONET}/mimiciii/1.4",
    licence="PhysioNet Credentialed Health Data 1.5.0 (gated)",
    paper="Phenotype",
    # 70 % train, 10 % dev, 20 % test.
    cuts=(Cut("train", "test", 0.2), Cut("train", "dev", 0.125)),
)
COS = Task(
    name="cos",
    title="COS",
    language="en",
    kind="tagging",
    read=washington.read_changes,
    files={"train": ("**/*.ann",)},
    folder=("events-COS-corpus", "COS"),
    labels=washington.CHANGES,
    metric="entity_f1",
    settings=ENTITIES,
    source=f"{WASHINGTON}/events-COS-corpus.zip",
    licence="none stated; see its README",
    paper="COS",
    cuts=_WASHINGTON_CUTS,
)
SOCIAL_HISTORY = Task(
    name="social_history",
    title="SocialHistory",
    language="en",
    kind="tagging",
    read=washington.read_history,
    files={"train": ("**/*.ann",)},
    folder=("SocialHistoryMTSamples", "SocialHistory"),
    labels=washington.HISTORY,
    metric="entity_f1",
    settings=ENTITIES,
    source=f"{WASHINGTON}/SocialHistoryMTSamples.zip",
    licence="none stated; see its README",
    paper="SocialHistory",
    cuts=_WASHINGTON_CUTS,
)
DEID = Task(
    name="deid",
    title="DEID",
    language="en",
    kind="tagging",
    read=deid.read_physionet,
    files={"train": ("**/id.text", "**/id.res")},
    folder=("deidentifiedmedicaltext", "DEID"),
    labels=deid.TYPES,
    metric="entity_f1",
    settings=LONG_ENTITIES,
    source=f"{PHYSIONET}/deidentifiedmedicaltext/1.0",
    licence="PhysioNet Restricted Health Data (gated)",
    paper="DEID",
    # 70 % train, 15 % dev, 15 % test; this one was cut with scikit-learn.
    cuts=(
        Cut("train", "dev", 0.3, generator="mt19937"),
        Cut("dev", "test", 0.5, generator="mt19937"),
    ),
)


def _mtl(name: str, title: str, folder: str, labels: tuple[str, ...], paper: str) -> Task:
    return Task(
        name=name,
        title=title,
        language="en",
        kind="tagging",
        read=conll.read,
        files=_MTL_FILES,
        folder=(folder, folder.removesuffix("-IOB")),
        labels=labels,
        metric="entity_f1",
        settings=ENTITIES,
        source=f"{MTL}/{folder}",
        licence="CC BY 4.0 (the repository's)",
        paper=paper,
    )


ANATEM = _mtl("anatem", "AnatEM", "AnatEM-IOB", ("Anatomy",), "AnatEM")
BC5CDR = _mtl("bc5cdr", "BC5CDR", "BC5CDR-IOB", ("Chemical", "Disease"), "BC5CDR")
JNLPBA = _mtl(
    "jnlpba",
    "JNLPBA",
    "JNLPBA",
    ("DNA", "RNA", "cell_line", "cell_type", "protein"),
    "JNLPBA",
)
NCBI = _mtl("ncbi_disease", "NCBI-disease", "NCBI-disease-IOB", ("Disease",), "NCBI")

GAD = Task(
    name="gad",
    title="GAD",
    language="en",
    kind="classification",
    read=functools.partial(tables.read, text="sentence", label="label", id="index"),
    files=_TSV_FILES,
    folder=("GAD",),
    labels=("0", "1"),
    metric="macro_f1",
    settings=TEXTS,
    source="https://microsoft.github.io/BLURB (data_generation)",
    licence="no licence file; CC BY 4.0 by BigBIO's card",
    paper="GAD",
)
HOC = Task(
    name="hoc",
    title="HoC",
    language="en",
    kind="multilabel",
    read=tables.read_hoc,
    files=_TSV_FILES,
    folder=("HoC",),
    labels=tables.HALLMARKS,
    metric="macro_f1",
    settings=TEXTS,
    source="https://microsoft.github.io/BLURB (data_generation)",
    licence="GPL-3.0",
    paper="HoC",
)

TASKS: tuple[Task, ...] = (
    *(CHEMPROT, PHENOTYPE, COS, SOCIAL_HISTORY, DEID, ANATEM, BC5CDR, JNLPBA, NCBI, GAD, HOC),
)
