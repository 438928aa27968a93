"""A small file of each format that tasks are published in."""

from pathlib import Path

from cpt_jax.finetune.tasks import phenotype

CONLL = "-DOCSTART-\tO\n\nAtaxia\tB-Disease\ntype\tI-Disease\n2\tI-Disease\n.\tO\n\nNone\tO\n"
UNTYPED = "-DOCSTART- 91075236\n\nhuman\tB\nlocus\tI\n.\tO\n"
GAD = 'index\tsentence\tlabel\n0\t"Of @GENE$, and\t1\n1\ta @DISEASE$" said\t0\n'
HOC_NONE = ",".join(f"{i}_0" for i in range(10))
HOC = (
    "labels\tsentence\tindex\n"
    f"{HOC_NONE.replace('5_0', '5_1')}\tDNA breaks .\t22_s0\n"
    f"{HOC_NONE.replace('0_0', '0_1')}\tCells invade .\t22_s1\n"
    f"{HOC_NONE}\tNothing .\t7_s0\n"
)
SCIBERT = '{"text": "<< CRF >> binds [[ R >> 1 ]].", "label": "AGONIST", "metadata": []}\n'
BLUE = (
    "index\tsentence\tlabel\n"
    "1.T1.T2\tOf @CHEMICAL$ on @GENE$.\tCPR:4\n"
    "1.T1.T3\t@CHEM-GENE$\tfalse\n"
)
ABSTRACTS = (
    '{"abstract_id": 0, "sentences": ["We ask.", "We do."], "labels": ["objective", "method"]}\n'
)
QUESTIONS = (
    '{"11": {"QUESTION": "Does it?", "CONTEXTS": ["A.", "B."], "final_decision": "yes"},\n'
    ' "12": {"QUESTION": "Is it?", "CONTEXTS": ["C."], "final_decision": "maybe"}}'
)
PERSONAL = """[
  {"full_text": "Mail to 6750 Koski\\nArt, CO", "spans": [
    {"entity_type": "STREET_ADDRESS", "entity_value": "6750 Koski\\nArt",
     "start_position": 8, "end_position": 22}]},
  {"full_text": "None.", "spans": []}
]"""
XML_2014 = """<?xml version="1.0" encoding="UTF-8" ?>
<deIdi2b2>
<TEXT><![CDATA[Seen 2069-04-07 by Dr. Oakley.
]]></TEXT>
<TAGS>
<NAME id="P1" start="23" end="29" text="Oakley" TYPE="DOCTOR" comment="" />
<DATE id="P0" start="5" end="15" text="2069-04-07" TYPE="DATE" comment="" />
</TAGS>
</deIdi2b2>
"""
XML_2006 = """<?xml version="1.0"?>
<ROOT><RECORD ID="543"><TEXT>Seen <PHI TYPE="DATE">04/07</PHI> by <PHI TYPE="DOCTOR">Oakley</PHI>.
</TEXT></RECORD></ROOT>
"""


def write(folder: Path, **texts: str) -> list[Path]:
    """Files by name, `__` for the dot."""
    paths = [folder / name.replace("__", ".") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_bytes(text.encode())
    return paths


def phenotypes(**set_to_1: str) -> str:
    """A table of annotations: rows by ROW_ID, each with the columns that are 1."""
    columns = ("HADM_ID", "ROW_ID", *phenotype.PHENOTYPES[:-1], "NONE", "UNSURE", "OPERATOR")
    rows = [",".join(columns)]
    for row_id, ones in set_to_1.items():
        given = {"HADM_ID": "9", "ROW_ID": row_id.split("_")[1], "OPERATOR": "JF"}
        rows.append(",".join(given.get(c, "1" if c in ones.split() else "0") for c in columns))
    return "".join(f"{row}\n" for row in rows)


NOTES = 'ROW_ID,TEXT\n5,"Seen.\n""Well"", he said."\n6,Other\n7,Third\n'
ANNOTATIONS = phenotypes(
    a_6="NONE", b_5="DEMENTIA ADVANCED.CANCER", c_5="NONE UNSURE", d_5="UNSURE DEPRESSION"
)


def record(body: str, key: str = "1||||2") -> str:
    return f"START_OF_RECORD={key}||||\n{body}\n||||END_OF_RECORD\n\n"
