"""Wrong files in each of the formats of tasks: one message, with file, line and value."""

import functools
import re
from collections.abc import Callable

import pytest
from tiny_tasks import (
    ABSTRACTS,
    ANNOTATIONS,
    BLUE,
    CONLL,
    GAD,
    HOC,
    NOTES,
    PERSONAL,
    QUESTIONS,
    SCIBERT,
    UNTYPED,
    XML_2006,
    XML_2014,
    phenotypes,
    record,
    write,
)

from cpt_jax.finetune.examples import Example
from cpt_jax.finetune.tasks import chemprot, conll, deid, jsonl, personal, phenotype, tables

read_gad = functools.partial(tables.read, text="sentence", label="label", id="index")
read_jsonl = functools.partial(jsonl.read, text="t", label="l")

# Reader, a sound file, what is replaced in it, by what, and the message after the file's name.
WRONG: dict[str, tuple[Callable[..., list[Example]], str, str, str, str]] = {
    "conll, no tag": (
        conll.read,
        CONLL,
        "\tI-Disease\n2",
        "\n2",
        ":4: no columns 0 and -1 in 'type'",
    ),
    "conll, no word": (conll.read, CONLL, "type\t", "\t", ":4: empty word in '\\tI-Disease'"),
    "conll, one column": (
        functools.partial(conll.read, word=-1),
        *(CONLL, "", "", ":3: columns -1 and -1 are the same in "),
    ),
    "conll, tag": (
        conll.read,
        CONLL,
        "2\tI-D",
        "2\tE-D",
        ":5: tag 'E-Disease' is none of O, B-TYPE",
    ),
    "conll, untyped": (conll.read, UNTYPED, "", "", ":3: tag 'B' is none of O, B-TYPE, I-TYPE"),
    "conll, iob1": (
        *(conll.read, CONLL, "B-Disease", "I-Disease"),
        ":3: tag 'I-Disease' after 'O': not IOB2 (is the file IOB1?)",
    ),
    "conll, other type": (
        conll.read,
        CONLL,
        "2\tI-D",
        "2\tI-d",
        ":5: tag 'I-disease' after 'I-Dis",
    ),
    "conll, empty": (conll.read, CONLL, CONLL, "\n \n", ": empty"),
    "table, no column": (
        read_gad,
        GAD,
        "sentence",
        "text",
        ":1: no column 'sentence' among index, te",
    ),
    "table, no field": (read_gad, GAD, "\t0\n", "\n", ":3: 2 fields where the header has 3"),
    "table, a TAB": (read_gad, GAD, " said", "\tsaid", ":3: 4 fields where the header has 3"),
    "table, no sentence": (read_gad, GAD, 'a @DISEASE$" said', " ", ":3: sentence: empty"),
    "table, no label": (read_gad, GAD, "\t0\n", "\t\n", ":3: label: empty"),
    "hoc, flags": (
        tables.read_hoc,
        HOC,
        "0_0,1_0",
        "1_0",
        ":2: labels: '1_0' is neither 0_0 nor 0_1",
    ),
    "hoc, few": (tables.read_hoc, HOC, ",9_0", "", ":2: labels: 9 flags, not 10"),
    "hoc, index": (tables.read_hoc, HOC, "22_s0", "22", ":2: index '22' is not PMID_sN"),
    "hoc, gap": (tables.read_hoc, HOC, "22_s1", "22_s2", ":3: 22_s2: expected 22_s1, in its place"),
    "hoc, apart": (
        tables.read_hoc,
        HOC + HOC[23:],
        "",
        "",
        ":5: 22_s0: expected 22_s2, in its place",
    ),
    "hoc, no sentence": (tables.read_hoc, HOC, "Nothing .", "", ":4: sentence: empty"),
    "scibert, no marker": (
        *(chemprot.read_scibert, SCIBERT, "[[", "[ "),
        ":1: 0 times '[[ ', not once: '<< CRF >> binds [  R >> 1 ]].'",
    ),
    "scibert, two": (chemprot.read_scibert, SCIBERT, "R >>", "<< R", ":1: 2 times '<< ', not once"),
    "scibert, open": (
        chemprot.read_scibert,
        SCIBERT,
        " ]]",
        "]]",
        ":1: no ' ]]' after character 16",
    ),
    "scibert, no label": (
        *(chemprot.read_scibert, SCIBERT, '"label"', '"class"'),
        ":1: no field 'label' among text, class, metadata",
    ),
    "blue, blinded": (
        chemprot.read_blue,
        BLUE,
        "@GENE$",
        "TNF",
        ":2: no @CHEMICAL$ and @GENE$, and",
    ),
    "jsonl, broken": (
        jsonl.read_abstracts,
        ABSTRACTS,
        "]}",
        "]",
        ":1: not JSON: Expecting ',' delim",
    ),
    "jsonl, list": (
        jsonl.read_abstracts,
        ABSTRACTS,
        ABSTRACTS,
        "[1]",
        ":1: not a JSON object: '[1]'",
    ),
    "jsonl, label": (read_jsonl, '{"t": "x", "l": [1]}', "", "", ":1: l: '1' is not a label"),
    "jsonl, number": (read_jsonl, '{"t": "x", "l": 1}', "", "", ":1: l: '1' is a int, not a text"),
    "abstracts, labels": (
        *(jsonl.read_abstracts, ABSTRACTS, ', "method"', ""),
        ":1: 2 sentences with 1 labels",
    ),
    "abstracts, empty": (jsonl.read_abstracts, ABSTRACTS, "We ask.", " ", ":1: sentence: empty"),
    "personal, beyond": (
        *(personal.read, PERSONAL, "22}", "99}"),
        ":2: STREET_ADDRESS: characters 8 to 99 of a text of 26",
    ),
    "personal, moved": (
        *(personal.read, PERSONAL, ": 8", ": 9"),
        ":2: STREET_ADDRESS: characters 9 to 22: '750 Koski\\nArt' stands there, not '6750",
    ),
    "personal, no offsets": (
        personal.read,
        PERSONAL,
        "start_",
        "begin_",
        ":2: STREET_ADDRESS: no start",
    ),
    "personal, no spans": (
        personal.read,
        PERSONAL,
        ": []",
        ': ""',
        ":5: no list 'spans' among full_text",
    ),
    "personal, no text": (personal.read, PERSONAL, "None.", "", ":5: full_text: empty"),
    "personal, no list": (personal.read, "{}", "", "", ": not a JSON list: '{}'"),
    "2014, moved": (
        *(deid.read_2014, XML_2014, 'end="29"', 'end="28"'),
        ": NAME P1: characters 23 to 28: 'Oakle' stands there, not 'Oakley'",
    ),
    "2014, beyond": (
        *(deid.read_2014, XML_2014, 'end="29"', 'end="290"'),
        ": NAME P1: characters 23 to 290 of a text of 31",
    ),
    "2014, no offset": (
        deid.read_2014,
        XML_2014,
        'start="5"',
        "",
        ": DATE P0: start None, end '15'",
    ),
    "2014, no tags": (
        deid.read_2014,
        XML_2014,
        "TAGS",
        "tags",
        ": no TAGS, no TEXT, or an empty one",
    ),
    "2014, broken": (deid.read_2014, XML_2014, "</TAGS>", "", ":9: not XML: mismatched tag"),
    "2014, encoding": (
        *(deid.read_2014, XML_2014, "UTF-8", "UTF-9"),
        ":1: not XML: unknown encoding: UTF-9",
    ),
    "2014, empty": (deid.read_2014, XML_2014, XML_2014, " ", ": empty"),
    "2006, other": (deid.read_2006, XML_2006, "PHI", "phi", ": RECORD '543': <phi> is not a PHI"),
    "2006, no text": (
        deid.read_2006,
        XML_2006,
        "TEXT",
        "text",
        ": RECORD '543': no TEXT, or an empty",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_with_line_and_value(tmp_path, name):
    read, sound, old, new, message = WRONG[name]
    assert old in sound
    (path,) = write(tmp_path, wrong=sound.replace(old, new) if old else sound)
    with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
        read([path])


@pytest.mark.parametrize("read", [conll.read, read_gad, chemprot.read_scibert, personal.read])
def test_another_encoding_is_told(tmp_path, read):
    path = tmp_path / "latin"
    path.write_bytes(b"index\tsentence\tlabel\n0\tSj\xf6gren\t1\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}:2: byte 0xf6 is not UTF-8; convert")):
        read([path])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((ANNOTATIONS.replace("NONE", "none"), NOTES), "{0}:1: no column 'NONE' among HADM_ID"),
        (
            (phenotypes(a_5="DEMENTIA").replace(",1", ",x"), NOTES),
            "{0}:2: DEMENTIA: 'x' is neither",
        ),
        (
            (ANNOTATIONS, NOTES.replace("6,", "8,")),
            "{0}:2: ROW_ID 6: 1 annotated notes are not in {1}",
        ),
        ((ANNOTATIONS, NOTES.replace("Other", " ")), "{1}:4: ROW_ID 6: empty TEXT"),
        (
            (ANNOTATIONS, NOTES.replace("TEXT", "NOTE")),
            "{1}:1: no column 'TEXT' among ROW_ID, NOTE",
        ),
        ((ANNOTATIONS, NOTES + '8,"open'), "{1}:6: not CSV: unexpected end of data"),
        ((ANNOTATIONS, ""), "{1}: empty"),
    ],
)
def test_wrong_annotations_and_notes_are_told(tmp_path, texts, message):
    files = write(tmp_path, ACT__csv=texts[0], NOTES__csv=texts[1])
    with pytest.raises(ValueError, match=re.escape(message.format(*files))):
        phenotype.read(files)


@pytest.mark.parametrize(
    ("text", "mask", "message"),
    [
        (
            record("a b"),
            record("a [**Ghost 1**]"),
            "{1}:1: mask '[**Ghost 1**]' is of no known kind",
        ),
        (record("a b"), record("c [**Name 1**]"), "{1}:1: record 1-2: but for the masks, not the"),
        (record("a b"), record("a b", "1||||3"), "{0}:1: record 1-2 is not in {1}"),
        (record("a b") * 2, record("a b"), "{0}:5: record 1-2 again"),
        (
            record("a b")[:-10],
            record("a b"),
            "{0}: not whole records START_OF_RECORD=N||||N|||| ... ",
        ),
        (record(" "), record("a b"), "{0}:1: record 1-2: empty"),
    ],
)
def test_wrong_masked_notes_are_told(tmp_path, text, mask, message):
    files = write(tmp_path, id__text=text, id__res=mask)
    with pytest.raises(ValueError, match=re.escape(message.format(*files))):
        deid.read_physionet(files)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ('{"13": "yes"}', "{1}: PMID 13 is not in {0}"),
        ('{"12": "no"}', "{1}: 12: 'no', but 'maybe' in {0}"),
        ("[12]", "{1}: not an object keyed by PMID: '[12]'"),
    ],
)
def test_a_wrong_ground_truth_is_told(tmp_path, truth, message):
    files = write(tmp_path, q__json=QUESTIONS, t__json=truth)
    with pytest.raises(ValueError, match=re.escape(message.format(*files))):
        jsonl.read_pubmedqa(files, "test")
