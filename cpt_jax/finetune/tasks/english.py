"""The paper's English tasks (SPEC section 6)."""

from cpt_jax.finetune.examples import Settings, Task
from cpt_jax.finetune.tasks import conll

ENTITIES = Settings(epochs=20, max_length=512)
TEXTS = Settings(epochs=10, max_length=512)

_MTL = "https://github.com/cambridgeltl/MTL-Bioinformatics-2016"
_MTL_FILES = {"train": ("train.tsv",), "dev": ("devel.tsv",), "test": ("test.tsv",)}

NCBI = Task(
    name="ncbi_disease",
    title="NCBI-disease",
    language="en",
    kind="tagging",
    read=conll.read,
    files=_MTL_FILES,
    folder=("NCBI-disease-IOB", "NCBI-disease"),
    labels=("Disease",),
    metric="entity_f1",
    settings=ENTITIES,
    source=_MTL,
    licence="CC BY 4.0",
    paper="NCBI",
)

TASKS: tuple[Task, ...] = (NCBI,)
