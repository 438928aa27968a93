"""The formats of tasks: what is read from a small file of each."""

import functools
import gzip

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
    record,
    write,
)

from cpt_jax.finetune.examples import Annotated, Span, Text, Words
from cpt_jax.finetune.tasks import (
    chemprot,
    conll,
    deid,
    jsonl,
    personal,
    phenotype,
    reading,
    tables,
)


def test_conll(tmp_path):
    (path,) = files = write(tmp_path, a__tsv=CONLL)
    words = ("Ataxia", "type", "2", ".")
    tags = ("B-Disease", "I-Disease", "I-Disease", "O")
    expected = [
        Words("a.tsv:3", words, tags, f"{path}:3"),
        Words("a.tsv:8", ("None",), ("O",), f"{path}:8"),
    ]
    assert conll.read(files) == expected
    # A byte-order mark, carriage returns, no blank line at the end: the same sentences.
    path.write_bytes(b"\xef\xbb\xbf" + CONLL.rstrip("\n").replace("\n", "\r\n").encode())
    assert conll.read(files) == expected


def test_conll_of_iob1_and_four_columns(tmp_path):
    rows = ["A NN O I-X", "B NN O I-X", "C NN O B-X", "D NN O I-Y", "E NN O O", "F NN O I-Y"]
    files = write(tmp_path, a__tsv="\n".join(rows))
    (sentence,) = conll.read(files, scheme="iob1")
    assert isinstance(sentence, Words)
    assert sentence.tags == ("B-X", "I-X", "B-X", "B-Y", "O", "B-Y")
    (sentence,) = conll.read(files, scheme="iob1", word=1, tag=-2)
    assert sentence == Words("a.tsv:1", ("NN",) * 6, ("O",) * 6, f"{files[0]}:1")


def test_conll_without_types(tmp_path):
    (sentence,) = conll.read(write(tmp_path, a__tsv=UNTYPED), untyped="Entity")
    assert isinstance(sentence, Words)
    assert sentence.tags == ("B-Entity", "I-Entity", "O")


def test_a_line_ends_at_line_feeds_alone(tmp_path):
    (path,) = write(tmp_path, a__txt="one\u2028still\x85one\r\ntwo\n\n")
    assert list(reading.lines_of(path)) == [(1, "one\u2028still\x85one"), (2, "two"), (3, "")]


def test_table(tmp_path):
    (path,) = files = write(tmp_path, a__tsv=GAD)
    read = functools.partial(tables.read, text="sentence", label="label")
    assert read(files, id="index") == [
        Text("0", '"Of @GENE$, and', ("1",), where=f"{path}:2"),
        Text("1", 'a @DISEASE$" said', ("0",), where=f"{path}:3"),
    ]
    assert [example.id for example in read(files)] == ["a.tsv:2", "a.tsv:3"]
    quoted = 'sentence,label,more\n"one, ""two""\nthree",a|b,x\nfour,,y\n'
    (path,) = files = write(tmp_path, b__csv=quoted)
    assert read(files, pair="more", separator="|", delimiter=",", quoted=True) == [
        Text("b.csv:2", 'one, "two"\nthree', ("a", "b"), "x", where=f"{path}:2"),
        Text("b.csv:4", "four", (), "y", where=f"{path}:4"),
    ]


def test_hallmarks_are_put_together_from_sentences(tmp_path):
    (path,) = files = write(tmp_path, a__tsv=HOC)
    labels = ("activating invasion and metastasis", "genomic instability and mutation")
    assert tables.read_hoc(files) == [
        Text("22", "DNA breaks . Cells invade .", labels, where=f"{path}:2"),
        Text("7", "Nothing .", (), where=f"{path}:4"),
    ]


def test_chemprot(tmp_path):
    (path,) = files = write(tmp_path, a__txt=SCIBERT)
    (example,) = chemprot.read_scibert(files)
    text = "<< CRF >> binds [[ R >> 1 ]]."
    assert example == Text("a.txt:1", text, ("AGONIST",), None, (0, 16), f"{path}:1")
    (path,) = files = write(tmp_path, b__tsv=BLUE)
    assert chemprot.read_blue(files) == [
        Text("1.T1.T2", "Of @CHEMICAL$ on @GENE$.", ("CPR:4",), where=f"{path}:2"),
        Text("1.T1.T3", "@CHEM-GENE$", ("false",), where=f"{path}:3"),
    ]


def test_jsonl(tmp_path):
    lines = '{"n": "1", "t": "One", "l": ["a", "b"]}\n\n{"n": "2", "t": "Two <a> <b>", "l": "a"}\n'
    (path,) = files = write(tmp_path, a__jsonl=lines)
    assert jsonl.read(files, text="t", label="l", id="n") == [
        Text("1", "One", ("a", "b"), where=f"{path}:1"),
        Text("2", "Two <a> <b>", ("a",), where=f"{path}:3"),
    ]
    (path,) = files = write(tmp_path, b__jsonl='{"t": "Two <b> <a>", "l": "a"}')
    (example,) = jsonl.read(files, text="t", label="l", markers=("<a>", "<b>"))
    assert example == Text("b.jsonl:1", "Two <b> <a>", ("a",), None, (8, 4), f"{path}:1")


def test_abstracts_are_read_sentence_by_sentence(tmp_path):
    (path,) = files = write(tmp_path, a__jsonl=ABSTRACTS)
    assert jsonl.read_abstracts(files) == [
        Text("a.jsonl:1.0", "We ask.", ("objective",), where=f"{path}:1"),
        Text("a.jsonl:1.1", "We do.", ("method",), where=f"{path}:1"),
    ]


def test_pubmedqa(tmp_path):
    files = write(tmp_path, q__json=QUESTIONS, t__json='{"12": "maybe"}')
    (train,), (test,) = (jsonl.read_pubmedqa(files, split) for split in ("train", "test"))
    assert train == Text("11", "Does it?", ("yes",), "A. B.", where=f"{files[0]}: 11")
    assert test == Text("12", "Is it?", ("maybe",), "C.", where=f"{files[0]}: 12")


def test_personal_data(tmp_path):
    (path,) = files = write(tmp_path, a__json=PERSONAL)
    first, second = personal.read(files)
    text = "Mail to 6750 Koski\nArt, CO"
    assert first == Annotated("a.json:0", text, (Span(8, 22, "STREET_ADDRESS"),), f"{path}:2")
    assert second == Annotated("a.json:1", "None.", (), f"{path}:5")


def test_phenotypes(tmp_path):
    files = write(tmp_path, ACT__csv=ANNOTATIONS, NOTES__csv=NOTES)
    text = 'Seen.\n"Well", he said.'
    expected = [
        Text("6:2", "Other", (), where=f"{files[0]}:2"),
        Text("5:3", text, ("ADVANCED.CANCER", "DEMENTIA"), where=f"{files[0]}:3"),
        Text("5:5", text, ("DEPRESSION", "UNSURE"), where=f"{files[0]}:5"),
    ]
    assert phenotype.read(files) == expected
    packed = tmp_path / "NOTES.csv.gz"
    packed.write_bytes(gzip.compress(NOTES.encode()))
    assert phenotype.read([files[0], packed]) == expected


def test_masked_notes(tmp_path):
    body = "Pt John Smith Mary Doe seen 12/3, in Boston\nby x90."
    mask = "Pt [**Known lastname 1**] [**Name (NI) **] seen [**12-3**], in [**Location (un) 3**]"
    mask += " by [**Telephone/Fax (1) 7**]."
    files = write(tmp_path, id__text=record(body) + record("x", "3||||1"), id__res=record(mask))
    files[1].write_text(files[1].read_text() + record("x", "3||||1"))
    first, second = deid.read_physionet(files)
    assert isinstance(first, Annotated)
    assert (first.id, first.text, first.where) == ("1-2", body, f"{files[0]}:1")
    assert second == Annotated("3-1", "x", (), f"{files[0]}:6")
    # The shortest that fits: what stands between two masks is a space, and so is one in a name.
    assert [(body[start:end], label) for start, end, label in first.spans] == [
        ("John", "name"),
        ("Smith Mary Doe", "name"),
        ("12/3", "date"),
        ("Boston", "location"),
        ("x90", "phone_nb"),
    ]


def test_masks_are_found_again_where_the_first_fit_leads_nowhere(tmp_path):
    body, mask = "by a. b. c. then", "by [**Name (NI) 1**]. c. then"
    files = write(tmp_path, id__text=record(body), id__res=record(mask))
    (example,) = deid.read_physionet(files)
    assert example == Annotated("1-2", body, (Span(3, 7, "name"),), f"{files[0]}:1")


def test_i2b2(tmp_path):
    (path,) = files = write(tmp_path, n__xml=XML_2014)
    spans = (Span(5, 15, "DATE"), Span(23, 29, "NAME"))
    text = "Seen 2069-04-07 by Dr. Oakley.\n"
    assert deid.read_2014(files) == [Annotated("n", text, spans, str(path))]
    latin = XML_2014.replace("UTF-8", "ISO-8859-1").replace("Oakley", "Öakley")
    path.write_bytes(latin.encode("latin-1"))
    assert deid.read_2014(files) == [
        Annotated("n", text.replace("Oakley", "Öakley"), spans, str(path))
    ]
    (path,) = files = write(tmp_path, all__xml=XML_2006)
    spans = (Span(5, 10, "DATE"), Span(14, 20, "DOCTOR"))
    where = f"{path}: RECORD 543"
    assert deid.read_2006(files) == [Annotated("543", "Seen 04/07 by Oakley.\n", spans, where)]
