"""Broken files: a fault with its place and reason each time, never an exception, never a loss."""

import datetime
import gzip
import io
import json
import tracemalloc

import numpy as np
import orjson
import pyarrow
import pyarrow.parquet
import pytest
from test_curate_readers import FORMS, JATS, LEAFLET, PUBMED, XMI, notes, read

from cpt_jax.curate.readers import READERS, Fault
from cpt_jax.curate.readers.items import MOST

DOUBLED = "".join(f'<!ENTITY a{i} "&a{i - 1};&a{i - 1};">' for i in range(1, 61))
LAUGHS = f"""<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "ha">{DOUBLED}]>
<article><body><p>&a60;</p></body></article>"""
OUTSIDE = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<article><body><p>&x;</p></body></article>"""
ROW = ["1", "2", "3", "", "c", "d", "", "A note."]


def sample(reader: str) -> bytes:
    """A file of the form with two items or more."""
    if reader == "parquet":
        file = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"text": ["One.", "Two."] * 50}), file)
        return file.getvalue()
    lines = json.dumps(FORMS["openai"]) + "\n" + json.dumps(FORMS["mediflow"]) + "\n"
    return {
        "jats": JATS,
        "pubmed": PUBMED,
        "e3c": XMI,
        "leaflet": LEAFLET,
        "text": LEAFLET,
        "noteevents": notes(ROW, ["2", *ROW[1:]]),
        "chat": lines,
        "jsonl": '{"text": "One."}\n{"text": "Two."}\n',
    }[reader].encode()


@pytest.mark.parametrize(
    ("reader", "content", "fault"),
    [
        (
            "jats",
            JATS.replace("</body>", ""),
            Fault(f"line {JATS.count(chr(10)) + 1}, ", "not XML"),
        ),
        ("jats", "", Fault("line 1, column 0", "not XML")),
        ("jats", "plain", Fault("line 1, column 0", "not XML")),
        ("jats", "<article>" + "<b>" * 100_000, Fault("its structure", "more than 200 elements")),
        ("jats", "<article/>", Fault("f1", "an article without paragraphs")),
        ("jats", "<article><body><p> </p></body></article>", Fault("f1/0", "empty text")),
        ("pubmed", PUBMED.replace("</Article>", "", 1), Fault("line 8, column 70", "not XML")),
        ("e3c", XMI.replace("sofaString", "x"), Fault("", "no cas:Sofa with a sofaString")),
        ("e3c", XMI[:100], Fault("", "not XML")),
        ("e3c", "{", Fault("", "not JSON")),
        ("e3c", '{"id": 1}', Fault("", "no text")),
        ("text", " \n\n", Fault("f1/0", "empty text")),
        ("leaflet", " \n\n", Fault("", "empty text")),
        ("leaflet", b"\x81\x8d \xff", Fault("", "bytes or escapes that are no character")),
        ("noteevents", "", Fault("line 1", "no column ROW_ID, SUBJECT_ID")),
        ("noteevents", notes(ROW).replace("ISERROR", "X"), Fault("line 1", "no column ISERROR")),
        ("noteevents", notes(ROW[:-1]), Fault("line 2", "7 fields; the head has 8")),
        ("noteevents", notes([*ROW[:-1], ""]), Fault("1/0", "empty text")),
        ("noteevents", notes([*ROW[:-1], "\udcff"]), Fault("1/0", "bytes or escapes")),
        ("chat", "{", Fault("dialogue 1", "")),
        ("chat", "[1, 2]", Fault("dialogue 2", "not an object")),
        ("chat", '"text"', Fault("dialogue 1", "neither a list")),
        ("chat", '{"a": 1}', Fault("dialogue 1", "neither turns nor an answer")),
        ("chat", '{"messages": [{"role": "user"}]}', Fault("dialogue 1", "a turn without content")),
        ("chat", '{"instruction": "Q", "output": " "}', Fault("dialogue 1", "neither turns nor")),
        ("jsonl", '{"text": 1}', Fault("line 1", "no text")),
        ("jsonl", "[1]", Fault("line 1", "not an object")),
        ("jsonl", "{", Fault("line 1", "not JSON")),
        ("jsonl", "[" * 100_000, Fault("line 1", "not JSON")),
        ("jsonl", b'{"text": "\xe9"}', Fault("line 1", "not UTF-8")),
        ("jsonl", '{"text": "\\ud800"}', Fault("line 1", "bytes or escapes that are no character")),
        ("jsonl", '{"text": " "}', Fault("line 1", "empty text")),
        ("parquet", "PAR1", Fault("", "not Parquet, or damaged")),
    ],
)
def test_faults_say_where_and_why(reader, content, fault):
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    found = read(reader, content)[-1]
    assert isinstance(found, Fault)
    assert fault.place in found.place
    assert fault.reason in found.reason


def test_what_stands_before_a_break_is_read():
    two = PUBMED.replace("</PubmedArticleSet>", "<PubmedArticle>")
    first, second, fault = read("pubmed", two)
    assert first["id"] == "7/0"
    assert [second.reason, fault.reason] == ["no abstract", "not XML"]
    rows = notes(ROW) + '"2","open, and never closed\n' + "more\n" * 3
    first, fault = read("noteevents", rows)
    assert first["text"] == "A note."
    assert fault == Fault("line 6", "2 fields; the head has 8")
    lines = b'{"text": "One."}\n{"text": \n{"text": "Three."}\n'
    assert [getattr(item, "reason", None) for item in read("jsonl", lines)] == [
        None,
        "not JSON",
        None,
    ]


def test_entities_neither_grow_nor_reach_out():
    tracemalloc.start()
    (laughs,) = read("jats", LAUGHS)
    assert tracemalloc.get_traced_memory()[1] < 100e6  # expanded it would be 2^61 characters
    tracemalloc.stop()
    assert laughs.reason == "not XML"
    items = read("jats", OUTSIDE)
    assert [item.reason for item in items] == ["empty text"] or items[0].reason == "not XML"


def test_a_gigantic_text_is_set_aside():
    line = json.dumps({"text": "x" * (MOST + 1)}) + "\n" + json.dumps({"text": "x" * MOST})
    fault, item = read("jsonl", line)
    assert fault == Fault("line 1", f"more than {MOST:,} characters")
    assert len(item["text"]) == MOST


def test_metadata_is_what_any_json_holds():
    odd = {"big": 2**70, "least": -(2**63), "half": "a\ud800b", "deep": [[[{"x": 1}]]], "no": None}
    for _ in range(60):
        odd["deep"] = [odd["deep"]]
    line = json.dumps({"text": "One.", "id": "i\udfff", "metadata": odd})
    (item,) = read("jsonl", line)
    about = item["metadata"]
    assert about["big"] == str(2**70)
    assert about["least"] == str(-(2**63))
    assert (about["half"], item["id"], about["article"]) == ("a?b", "i?", "i?")
    assert orjson.loads(orjson.dumps(item)) == item
    day = datetime.date(2020, 1, 2)
    file = io.BytesIO()
    table = {"text": ["One."], "day": [day], "raw": [b"\xff"], "metadata": [{"when": day}]}
    pyarrow.parquet.write_table(pyarrow.table(table), file)
    (item,) = read("parquet", file.getvalue())
    assert item["metadata"]["when"] == "2020-01-02"
    assert orjson.loads(orjson.dumps(item)) == item


def test_control_characters_are_spaces():
    (item,) = read("jsonl", json.dumps({"text": "a\x00b\x0cc\r\nd\te\r"}))
    assert item["text"] == "a b c\nd\te"


@pytest.mark.parametrize("reader", READERS)
def test_any_damage_gives_items_and_no_exception(reader):
    """Bytes flipped, cut and doubled at random: what comes are records and faults, and an end."""
    rng, whole = np.random.default_rng(3), sample(reader)
    assert len(read(reader, whole)) >= 1
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(rng.integers(1, 6)):
            raw[rng.integers(len(raw))] = rng.integers(256)
        if rng.random() < 0.4:
            raw = raw[: rng.integers(len(raw))]
        if rng.random() < 0.2:
            raw += raw[rng.integers(len(raw) + 1) :]
        for item in read(reader, bytes(raw)):
            if not isinstance(item, Fault):
                item["text"].encode("utf-8")
                assert item["text"].strip()


def test_a_large_file_is_read_as_a_stream():
    """Ten times the citations do not take more memory: 1.3 MB of them, as bytes alone."""
    start = PUBMED.index("<PubmedArticle>")
    one = PUBMED[start : PUBMED.index("<PubmedArticle>", start + 1)]
    one = one.replace("More now.", "More now. " * 20)
    peaks = []
    for count in (200, 2000):
        file = io.BytesIO(gzip.compress(f"<a>{one * count}</a>".encode()))
        tracemalloc.start()
        with gzip.open(file) as opened:
            found = [isinstance(item, Fault) for item in READERS["pubmed"](opened, "p.xml.gz")]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == [False] * count
    assert peaks[1] < peaks[0] + 2e5
