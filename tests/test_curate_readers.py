"""Readers of published forms, each against what a small file of that form says."""

import csv
import io
import json
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from cpt_jax.curate.readers import READERS, Fault

JATS = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) v1.2//EN" "JATS-archivearticle1.dtd">
<article xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:ali="http://www.niso.org/schemas/ali/1.0/">
<front><article-meta>
<article-id pub-id-type="pmid">11</article-id><article-id pub-id-type="pmc">222</article-id>
<title-group><article-title>Not a paragraph</article-title></title-group>
<permissions><license license-type="open-access"
  xlink:href="https://creativecommons.org/licenses/by-nc/4.0/"><license-p>Free.</license-p></license>
</permissions>
<abstract><sec><title>Aim</title><p>To <italic>see</italic> it.</p></sec></abstract>
</article-meta></front>
<body><p>Before all sections.</p>
<sec><title>Case <italic>report</italic></title>
<p>A man<xref ref-type="bibr" rid="b1">[1]</xref> of
   60&#160;years had
<inline-formula><tex-math>x^2</tex-math></inline-formula>
pain:<list><list-item><p>left</p></list-item>
<list-item><p>right</p></list-item></list>and went.</p>
<sec><title>Follow-up</title><p>Well.</p>
<p><fig><caption><p>A picture.</p></caption></fig></p></sec>
<fig><caption><p>Of him.</p></caption></fig>
<table-wrap><table><tr><td>1</td></tr></table></table-wrap>
</sec></body>
<back><ref-list><ref><mixed-citation>Somebody 2001.</mixed-citation></ref></ref-list></back>
</article>"""

PUBMED = """<?xml version="1.0"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2024//EN" "x.dtd">
<PubmedArticleSet>
<PubmedArticle><MedlineCitation><PMID Version="1">7</PMID><Article>
<ArticleTitle>On <i>E. coli</i>.</ArticleTitle>
<Abstract><AbstractText Label="BACKGROUND">Much is known.</AbstractText>
<AbstractText Label="RESULTS">More now.</AbstractText>
<CopyrightInformation>(c) Somebody</CopyrightInformation></Abstract></Article></MedlineCitation>
<PubmedData><ReferenceList><Reference><ArticleIdList><ArticleId>9</ArticleId></ArticleIdList>
</Reference></ReferenceList></PubmedData></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID>8</PMID><Article><ArticleTitle>A title.</ArticleTitle>
</Article></MedlineCitation></PubmedArticle>
<DeleteCitation><PMID>3</PMID></DeleteCitation>
</PubmedArticleSet>"""

XMI = """<?xml version="1.0" encoding="UTF-8"?><xmi:XMI xmlns:xmi="http://www.omg.org/XMI"
 xmlns:cas="http:///uima/cas.ecore" xmlns:type2="http:///x/metadata/type.ecore" xmi:version="2.0">
<type2:DocumentMetaData xmi:id="8" documentTitle="PAMJ_FR1.txt"/>
<cas:Sofa xmi:id="1" sofaNum="1" sofaString="Un homme &amp; sa toux.&#10;&#10;Il va mieux."/>
</xmi:XMI>"""

LEAFLET = """EMEA / H / C / 551\r
PRIALT\r
Qu'est-ce que Prialt ?\r
Une solution.\r
Pour perfusion.\r
\r
Elle est rare.\r
4.8 Effets ind\xe9sirables\r
1 flacon contient 20 mg.\r
4 . 3 Contre-indications\r
Aucune.\r
"""


def read(reader: str, content: bytes | str, name: str = "some/folder/f1.xml") -> list[Any]:
    raw = content.encode() if isinstance(content, str) else content
    return list(READERS[reader](io.BytesIO(raw), name))


def texts(items):
    assert not [item for item in items if isinstance(item, Fault)]
    return [item["text"] for item in items]


def test_jats_gives_paragraphs_with_section_and_licence():
    items = read("jats", JATS)
    assert texts(items) == [
        "To see it.",
        "Before all sections.",
        "A man[1] of 60 years had pain: left right and went.",
        "Well.",
    ]
    assert [item["metadata"].get("section") for item in items] == [
        "Abstract > Aim",
        None,
        "Case report",
        "Case report > Follow-up",
    ]
    assert [item["id"] for item in items] == [f"PMC222/{i}" for i in range(4)]
    assert {item["metadata"]["licence"] for item in items} == {"CC BY-NC 4.0"}
    assert [item["metadata"]["place"] for item in items] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("licence", "told"),
    [
        ('<license xlink:href="http://creativecommons.org/publicdomain/zero/1.0/"/>', "CC0 1.0"),
        (
            "<license><ali:license_ref>creativecommons.org/licenses/by/4.0/</ali:license_ref></license>",
            "CC BY 4.0",
        ),
        ("<license><license-p>Ask   us.</license-p></license>", "Ask us."),
        ("", None),
    ],
)
def test_jats_licences(licence, told):
    start, end = JATS.index("<permissions>"), JATS.index("</permissions>")
    changed = JATS[:start] + "<permissions>" + licence + JATS[end:]
    assert {item["metadata"].get("licence") for item in read("jats", changed)} == {told}


def test_jats_articles_of_a_set_and_their_names():
    body = JATS[JATS.index("<article ") :]
    nameless = body.replace("<article-id", "<other").replace("</article-id", "</other")
    by_doi = body.replace('"pmc"', '"x"').replace('"pmid"', '"doi"')
    items = read(
        "jats", f"<pmc-articleset>{body}{nameless}{by_doi}</pmc-articleset>", "a/b.nxml.gz"
    )
    assert [item["metadata"]["article"] for item in items[::4]] == ["PMC222", "a/b", "11"]
    assert len(items) == 12


def test_pubmed_gives_title_and_abstract():
    first, second = read("pubmed", PUBMED)
    assert first == {
        "text": "On E. coli.\n\nBACKGROUND: Much is known.\n\nRESULTS: More now.",
        "id": "7/0",
        "metadata": {"article": "7", "place": 0, "licence": "(c) Somebody"},
    }
    assert second == Fault("8", "no abstract")


def test_e3c_in_both_forms():
    (annotated,) = read("e3c", XMI, "FR1.xml")
    assert annotated["text"] == "Un homme & sa toux.\n\nIl va mieux."
    assert annotated["id"] == "FR1/0"
    collected = {"id": "FR2", "text": "Une femme.", "licence": "CC-BY", "language": "fr"}
    (item,) = read("e3c", json.dumps({**collected, "authors": [{"author": "X"}]}), "FR2.json")
    about = {"article": "FR2", "place": 0, "licence": "CC-BY", "language": "fr"}
    assert item == {"text": "Une femme.", "id": "FR2/0", "metadata": about}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_leaflets_by_headings_and_empty_lines(encoding):
    items = read("leaflet", LEAFLET.encode(encoding), "h551.txt")
    assert [(item["metadata"].get("section"), item["text"]) for item in items] == [
        (None, "EMEA / H / C / 551\nPRIALT"),
        ("Qu'est-ce que Prialt ?", "Une solution.\nPour perfusion."),
        ("Qu'est-ce que Prialt ?", "Elle est rare."),
        ("4.8 Effets indésirables", "1 flacon contient 20 mg."),
        ("4 . 3 Contre-indications", "Aucune."),
    ]
    assert [item["id"] for item in items] == [f"h551/{i}" for i in range(5)]


def test_a_text_file_is_one_text():
    (item,) = read("text", "One line.\r\n\r\nAnother?".encode("utf-16"), "a/b.txt.gz")
    assert (item["text"], item["id"]) == ("One line.\n\nAnother?", "a/b/0")


def notes(*rows):
    head = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CATEGORY", "DESCRIPTION"]
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*head, "ISERROR", "TEXT"], *rows])
    return file.getvalue()


def test_noteevents_keeps_marks_and_sets_errors_aside():
    text = 'Seen by Dr. [**Last Name**], "well",\r\nno pain\n'
    rows = [
        ["1", "22", "333", "2150-01-01", "Discharge summary", "Report", "", text],
        ["2", "22", "", "2150-01-02", "Nursing", "Report", "1", "wrong"],
    ]
    first, second = read("noteevents", notes(*rows), "NOTEEVENTS.csv")
    assert first["text"] == 'Seen by Dr. [**Last Name**], "well",\nno pain'
    assert first["id"] == "1/0"
    about = {"subject": "22", "admission": "333", "section": "Report"}
    assert first["metadata"].items() >= {**about, "category": "Discharge summary"}.items()
    assert second.reason == "an error, by its own ISERROR"


FORMS = {
    "openai": {"messages": [{"role": "user", "content": "Why? "}, {"role": "x", "content": "So."}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "Why?"}, {"value": "So."}]},
    "ultramedical": {"conversations": ["Why?", "So."]},
    "mediflow": {"instruction": "Why?", "input": "", "output": "So.", "task": "qa"},
    "prompt": {"prompt": "Why?", "answer": "So."},
    "meds-ins": {"Definition": ["Why?"], "Instances": [{"input": "", "output": ["So."]}]},
}


@pytest.mark.parametrize("form", FORMS)
def test_instructions_as_lines_and_as_a_list(form):
    value = FORMS[form]
    for content in (json.dumps(value), json.dumps(value) + "\n" + json.dumps(value)):
        if form == "meds-ins" and "\n" in content:
            continue  # it is a file of its own
        assert texts(read("chat", content)) == ["Why?\n\nSo."] * (content.count("\n") + 1)
    if form != "meds-ins":
        whole = json.dumps([value, value, value], indent=2)
        items = read("chat", whole, "set/a.json")
        assert texts(items) == ["Why?\n\nSo."] * 3
        assert [item["id"] for item in items] == [f"set/a:{i}/0" for i in (1, 2, 3)]


def test_an_input_stands_between_question_and_answer():
    value = {"id": "x9", "Instruction": "Sum up.", "Input": "A note.", "Output": "Well."}
    (item,) = read("chat", json.dumps(value), "a.jsonl")
    assert (item["text"], item["id"]) == ("Sum up.\n\nA note.\n\nWell.", "a:x9/0")


def test_jsonl_and_parquet_take_records_and_any_objects(tmp_path):
    rows = [
        {"text": "One.", "id": "A/3", "metadata": {"article": "A", "place": 3, "section": "S"}},
        {"text": "Two.", "id": "7", "year": 1999},
        {"text": "Three."},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    first, second, third = read("jsonl", lines, "d/x.jsonl.gz")
    about = {"article": "A", "place": 3, "section": "S"}
    assert first == {"text": "One.", "id": "A/3", "metadata": about}
    about = {"article": "7", "place": 0, "year": 1999}
    assert second == {"text": "Two.", "id": "7", "metadata": about}
    about = {"article": "d/x:3", "place": 0}
    assert third == {"text": "Three.", "id": "d/x:3/0", "metadata": about}
    table = pyarrow.table({"text": ["Two.", None], "id": ["7", "8"], "year": [1999, 2000]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    item, fault = read("parquet", (tmp_path / "x.parquet").read_bytes(), "x.parquet")
    assert item == second
    assert fault == Fault("line 2", "no text")


def test_real_files_are_read_whole(shared):
    file = shared / "data/en_bio/craft_fulltext.jsonl"
    with file.open("rb") as opened:
        items = list(READERS["jsonl"](opened, file.name))
    wanted = [json.loads(line)["text"].strip() for line in file.read_text().splitlines()]
    assert texts(items) == [" ".join(text.split("\r")) for text in wanted]
    leaflets = sorted((shared / "data/fr_tasks/QUAERO/corpus/train/EMEA").glob("*.txt"))
    assert leaflets
    for path in leaflets:
        found = texts(read("leaflet", path.read_bytes(), path.name))
        read_words = sum(len(text.split()) for text in found)
        assert 0.8 < read_words / len(path.read_text().split()) <= 1  # but for headings
