"""BRAT's files: nested and discontinuous entities, offsets in every copy of a text, and faults."""

import re
from pathlib import Path

import pytest

from cpt_jax.finetune.examples import Annotated, Span
from cpt_jax.finetune.tasks import brat, french

TEXT = "Tumeur du foie.\nDouleurs de l'épaule et\ndu genou droit.\n"
# Surface of each fragment, label: nested, discontinuous over a line end, and one with a line end.
MENTIONS = [
    (["Tumeur du foie"], "DISO"),
    (["foie"], "ANAT"),
    (["Douleurs", "du genou"], "DISO"),
    (["l'épaule et\ndu genou droit"], "ANAT"),
    (["droit"], "ANAT"),
]
SPANS = (
    Span(0, 14, "DISO"),
    Span(10, 14, "ANAT"),
    Span(16, 48, "DISO"),
    Span(28, 54, "ANAT"),
    Span(49, 54, "ANAT"),
)


def annotations(text: str, end: str = "\n") -> str:
    """What BRAT writes for MENTIONS on a text, counting its characters as they are."""
    lines = []
    for number, (fragments, label) in enumerate(MENTIONS, 1):
        found = [fragment.replace("\n", end) for fragment in fragments]
        starts = [text.index(fragment) for fragment in found]
        offsets = ";".join(f"{s} {s + len(f)}" for s, f in zip(starts, found, strict=True))
        surface = " ".join(fragments).replace("\n", " ")
        lines += [f"T{number}\t{label} {offsets}\t{surface}"]
        lines += [f"#{number}\tAnnotatorNotes T{number}\tC00{number}"]
    return "".join(f"{line}\n" for line in [*lines, "R1\tOf Arg1:T1 Arg2:T2", "*\tSame T1 T3"])


def write(folder: Path, text: str | bytes, ann: str | bytes, name: str = "a") -> list[Path]:
    files = []
    for suffix, content in ((".txt", text), (".ann", ann)):
        files.append(folder / f"{name}{suffix}")
        files[-1].write_bytes(content.encode() if isinstance(content, str) else content)
    return files


def read_one(files: list[Path]) -> Annotated:
    (document,) = brat.read(files)
    assert isinstance(document, Annotated)
    return document


def test_entities_nest_and_gaps_become_hulls(tmp_path):
    files = write(tmp_path, TEXT, annotations(TEXT))
    expected = Annotated("a", TEXT, SPANS, str(files[0]), discontinuous=1)
    assert brat.read(files) == [expected]
    assert [TEXT[span.start : span.end] for span in SPANS[1:3]] == [
        "foie",
        "Douleurs de l'épaule et\ndu genou",
    ]


def test_fragments_in_any_order_and_twice_annotated(tmp_path):
    """QUAERO lists some fragments from right to left, and some mentions once a concept."""
    ann = "T1\tDISO 3 6;0 2\tdef ab\nT2\tDISO 0 6\tabcdef\nT3\tPHEN 0 6\tabcdef\n"
    document = read_one(write(tmp_path, "abcdef", ann))
    assert document.spans == (Span(0, 6, "DISO"), Span(0, 6, "PHEN"))
    assert document.discontinuous == 1


@pytest.mark.parametrize("mark", [False, True], ids=["", "bom"])
@pytest.mark.parametrize("crlf", [False, True], ids=["", "crlf"])
@pytest.mark.parametrize("mark_counted", [False, True], ids=["", "bom_counted"])
@pytest.mark.parametrize("crlf_counted", [False, True], ids=["", "crlf_counted"])
def test_offsets_fit_in_every_copy(tmp_path, mark, crlf, mark_counted, crlf_counted):
    """Case 45: a mark or carriage returns, there or gone, counted or not."""
    end = "\r\n" if crlf else "\n"
    file = "\ufeff" * mark + TEXT.replace("\n", end)
    counted_end = "\r\n" if crlf_counted and crlf else "\n"
    counted = "\ufeff" * (mark_counted and mark) + TEXT.replace("\n", counted_end)
    ann = "\ufeff" * mark + annotations(counted, counted_end).replace("\n", end)
    document = read_one(write(tmp_path, file, ann))
    assert document == Annotated("a", TEXT, SPANS, document.where, 1)


def test_no_entity_is_no_fault(tmp_path):
    files = write(tmp_path, "\ufeffRien.\r\n", "")
    assert brat.read(files) == [Annotated("a", "Rien.\n", (), str(files[0]))]


T1 = "T1\tDISO 0 6\tTumeur\n"


@pytest.mark.parametrize(
    ("ann", "message"),
    [
        (T1 + "T2\tANAT 50 500\tfoie\n", r"a.ann:2: T2: offsets 50 500 in a text of 56"),
        (T1 + "T2\tANAT 49 57\tdroit. \n", r"a.ann:2: T2: offsets 49 57 in a text of 56"),
        (T1 + "T2\tANAT 9 13\tfoie\n", r"a.ann:2: T2: 'foie' is annotated where ' foi' stands"),
        ("T1\tDISO 0 6\ttumeur\n", r"a.ann:1: T1: 'tumeur' is annotated where 'Tumeur' stands"),
        ("T1\tORGAN 0 6\tTumeur\n", r"a.ann:1: label 'ORGAN' is none of ANAT, CHEM"),
        ("\nT1\tDISO 0\tTumeur\n", r"a.ann:2: offsets '0' are not START END"),
        ("T1\tDISO 0 6;\tTumeur\n", r"a.ann:1: offsets '0 6;' are not START END"),
        ("T1\tDISO -1 6\tTumeur\n", r"a.ann:1: offsets '-1 6' are not START END"),
        ("T1\tDISO 6 6\t\n", r"a.ann:1: offsets '6 6': no characters"),
        ("T1\tDISO 0 6\n", r"a.ann:1: not ID, TAB, LABEL OFFSETS, TAB, TEXT: 'T1"),
        ("T1 DISO 0 6 Tumeur\n", r"a.ann:1: no annotation of BRAT's: 'T1 DISO"),
        (T1 + T1, r"a.ann:2: T1 is there twice"),
        (T1 + "#1\tAnnotatorNotes T2\tC01\n", r"a.ann:2: a note on T2, which is not there"),
        (T1.encode() + "T2\tANAT 29 35\tépaule\n".encode("latin-1"), r"a.ann:2: byte 0xe9 is not"),
    ],
)
def test_faulty_annotations(tmp_path, ann, message):
    files = write(tmp_path, TEXT, ann)
    with pytest.raises(ValueError, match=message):
        brat.read(files, "train", labels=french.QUAERO_LABELS)


@pytest.mark.parametrize(
    ("text", "message"),
    [(TEXT.encode("latin-1"), r"a.txt:2: byte 0xe9 is not UTF-8"), ("", r"a.txt: empty")],
)
def test_faulty_texts(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        brat.read(write(tmp_path, text, T1))


@pytest.mark.parametrize(("kept", "gone"), [(0, "a.v2.ann"), (1, "a.v2.txt")])
def test_a_file_without_its_other(tmp_path, kept, gone):
    files = write(tmp_path, TEXT, T1, "a.v2")
    files[1 - kept].unlink()
    with pytest.raises(ValueError, match=rf"{files[kept].name}: no {gone} beside it"):
        brat.read([files[kept]])


def test_two_documents_of_one_name(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    files = [file for folder in ("one", "two") for file in write(tmp_path / folder, TEXT, T1)]
    with pytest.raises(ValueError, match=r"two/a.ann: a second document .* is .*one/a.txt"):
        brat.read(files)


def quaero(shared: Path) -> list[Path]:
    found = sorted((shared / "data/fr_tasks/QUAERO/corpus").glob("*/*/*.ann"))
    return [path for ann in found for path in (ann.with_suffix(".txt"), ann)]


def naive(ann: Path) -> list[tuple[list[tuple[int, int]], str, str]]:
    """Fragments, label and text of each T line, by string cutting alone."""
    lines = ann.read_bytes().decode().split("\n")
    rows = [line.split("\t") for line in lines if line.startswith("T")]
    return [
        (
            [(int(a), int(b)) for a, b in re.findall(r"(\d+) (\d+)", about)],
            about.split(" ")[0],
            text,
        )
        for _, about, text in rows
    ]


def test_quaero(shared):
    """All of the corpus: what stands at the offsets, and how many entities nest or have gaps."""
    files = quaero(shared)
    texts = {"dev": 0, "test": 0, "train": 0}
    entities = gaps = kept = nested = 0
    for text_file, ann in zip(files[::2], files[1::2], strict=True):
        document = read_one([text_file, ann])
        texts[text_file.parts[-3]] += 1
        rows = naive(ann)
        hulls = []
        for fragments, label, surface in rows:
            hull = Span(min(a for a, _ in fragments), max(b for _, b in fragments), label)
            hulls.append(hull)
            assert hull in document.spans
            if len(fragments) == 1:
                assert document.text[hull.start : hull.end] == surface
        assert set(document.spans) == set(hulls)
        entities += len(rows)
        gaps += document.discontinuous
        kept += len(document.spans)
        nested += sum(
            any(b.start <= a.start and a.end <= b.end for j, b in enumerate(hulls) if i != j)
            for i, a in enumerate(hulls)
        )
    assert texts == {"train": 833 + 11, "dev": 832 + 12, "test": 833 + 15}  # its README's
    assert (entities, gaps, kept) == (16_233, 141, 16_222)
    # 3,532 where the hull of fragments that are listed from right to left is not sought.
    assert nested == 3_535


def test_quaero_copied_with_carriage_returns(shared, tmp_path):
    files = [file for file in quaero(shared) if "dev/EMEA" in str(file)]
    for file in files:
        copy = tmp_path / file.name
        copy.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    copies = brat.read(sorted(tmp_path.iterdir()))
    assert [d._replace(where="") for d in copies] == [
        d._replace(where="") for d in brat.read(files)
    ]
    assert len(copies) == 12


def test_quaero_cut_short(shared, tmp_path):
    """Real annotations over a text that has lost its end: the first that is beyond it is named."""
    files = [file for file in quaero(shared) if "dev/EMEA/118_1." in str(file)]
    text, length = files[0].read_text(), 1000
    ends = [max(end for _, end in fragments) for fragments, _, _ in naive(files[1])]
    line = 1 + 2 * next(i for i, end in enumerate(ends) if end > length)  # a note after each
    copies = write(tmp_path, text[:length], files[1].read_text())
    with pytest.raises(ValueError, match=rf"a.ann:{line}: T\d+: offsets .* in a text of 1000"):
        brat.read(copies)
    assert 10 < sum(end > length for end in ends) < len(ends)
