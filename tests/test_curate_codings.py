"""Tables of codes, good and bad, and walks over them, computed by hand."""

import hashlib
import itertools
import json

import pytest

from cpt_jax.curate.codings import SYSTEMS, Columns, Table, read_table
from cpt_jax.curate.walks import Step, connected, related, walk_from, walks

# E11 has four codes under it, one of them one more; I20 has two; J45 none.
TABLE = """code;label
E11;Type 2 diabetes mellitus
E11.0;Type 2 diabetes mellitus: with coma
E11.2;Type 2 diabetes mellitus: with renal complications
E11.21;Type 2 diabetes mellitus: with nephropathy
E11.3;Type 2 diabetes mellitus: with ophthalmic complications
E11.9;Type 2 diabetes mellitus: without complications
I20;Angina pectoris
I20.0;Unstable angina
I20.9;Angina pectoris, unspecified
J45;Asthma
"""
PARENTS = {
    **dict.fromkeys(("E11.0", "E11.2", "E11.3", "E11.9"), "E11"),
    "E11.21": "E11.2",
    **dict.fromkeys(("I20.0", "I20.9"), "I20"),
}


def read(tmp_path, text, system="icd10", encoding="utf-8", written="utf-8", **columns) -> Table:
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(written))
    return read_table(path, system, Columns(**columns), encoding)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_are_parted_by_what_parts_them(tmp_path, delimiter, mark):
    """With a byte order mark or without; a label with a comma is in quotes where that parts."""
    rows = [line.split(";") for line in TABLE.splitlines()]
    text = "\r\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows)
    table = read(tmp_path, mark + text)
    assert list(table.labels.items()) == [tuple(row) for row in rows[1:]]
    assert table.parents == PARENTS
    assert table.children["E11"] == ["E11.0", "E11.2", "E11.3", "E11.9"]
    assert table.passed_over == 0


def test_the_official_list_of_cim10_is_read(tmp_path):
    """No header line, codes without a dot and filled up with spaces, cells parted by bars."""
    text = "E11   |3|N|N|DIABETE|Diabète sucré\r\nE110  |0|O|O|COMA|Diabète,  avec coma\r\n"
    text += "M628  |0|O|O|M|Autres atteintes\r\nM628+0|0|O|O|M|Rhabdomyolyse\r\n"
    names = {"code": "1", "label": "6"}
    table = read(tmp_path, text, encoding="cp1252", written="cp1252", **names)
    assert table.labels["E110"] == "Diabète, avec coma"
    assert table.labels["E11"] == "Diabète sucré"
    assert table.parents == {"E110": "E11", "M628+0": "M628"}


def test_atc_parents_are_the_groups_that_there_are(tmp_path):
    """The fourth level is not in the table: what is under it is in the third. Doses repeat rows."""
    text = "atc_code,atc_name,ddd\nA,ALIMENTARY,\nA10,DIABETES,\nA10B,GLUCOSE,\n"
    text += "A10BA02,metformin,2\nA10BA02,metformin,3\nB01,ANTITHROMBOTIC,\n"
    table = read(tmp_path, text, "atc", code="atc_code", label="atc_name")
    assert table.parents == {"A10": "A", "A10B": "A10", "A10BA02": "A10B"}
    assert len(table.labels) == 5


def test_ccam_acts_are_in_the_heading_above_them(tmp_path):
    """Lines without a code, as of notes, are counted. Chapter 11 is not in chapter 1."""
    text = "Code;Texte\n1;NERVEUX\n01.01;ACTES\nAAQP007;EEG\n;une note\n01.02;AUTRES\n"
    text += "AAQP002;EEG court\n11;ADAPTATIONS\n11.01;ANESTHÉSIE\n"
    table = read(tmp_path, text, "ccam", code="Code", label="Texte")
    above = {"01.01": "1", "AAQP007": "01.01", "01.02": "1", "AAQP002": "01.02", "11.01": "11"}
    assert table.parents == above
    assert table.passed_over == 1


def test_a_column_of_parents_is_what_counts(tmp_path):
    text = "code,label,parent\nI,Chapter,\nA00-A09,Block,I\nA00,Cholera,A00-A09\nA00.1,Eltor,A00\n"
    table = read(tmp_path, text)
    assert table.parents == {"A00-A09": "I", "A00": "A00-A09", "A00.1": "A00"}
    derived = read(tmp_path, text.replace("parent", "above", 1))
    assert derived.parents == {"A00.1": "A00"}
    named = read(tmp_path, text.replace("parent", "above", 1), parent="above")
    assert named.parents == table.parents


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("code;name\nA00;x\n", "csv:1: no column 'label'; there are 'code', 'name'"),
        ("code;label;label\nA00;x;y\n", "csv:1: more than one column 'label'"),
        ("code;label\nA00;x\nA00;y\n", "csv:3: A00: another label than on line 2"),
        (
            "code;label;parent\nA00;x;\nB00;z;\nB00.1;y;A00\nB00.1;y;B00\n",
            "csv:5: B00.1: another parent than on line 4",
        ),
        ("code;label\nA00;\n", "csv:2: A00: no label"),
        ("code;label\nA00\n", "csv:2: A00: no label"),
        ("code;label\nCholera;A00\n", "csv:2: 'Cholera' is no code of ICD-10"),
        ("code;label;parent\nA00.1;x;A00\n", "csv:2: A00.1: its parent A00 is not in the table"),
        (
            "code;label;parent\nA00;x;B00\nB00;y;C00\nC00;z;A00\n",
            "csv:2: A00: a cycle of parents: A00 in B00 in C00 in A00",
        ),
        ("code;label;parent\nA00;x;A00\n", "csv:2: A00: a cycle of parents: A00 in A00"),
        ("code;label\n", "csv:1: no code in the table"),
        ("", "csv:1: no column 'code', 'label'; there are "),
        ('code;label\nA00;"x\nA01;y\n', "csv:2: unexpected end of data"),
        ("code;label\nA00;é\n".encode("cp1252"), "csv:2: not utf-8; give --encoding"),
    ],
)
def test_bad_tables_are_refused_with_the_line(tmp_path, text, said):
    with pytest.raises(ValueError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)


def test_columns_and_encodings_that_there_are_not_are_refused(tmp_path):
    with pytest.raises(ValueError, match="csv:1: no column '6'; there are 2 columns"):
        read(tmp_path, TABLE, code="1", label="6")
    with pytest.raises(ValueError, match="csv:1: no column 'above'; there are 'code', 'label'"):
        read(tmp_path, TABLE, parent="above")
    with pytest.raises(ValueError, match="encoding: 'utf-9' is none that there is"):
        read(tmp_path, TABLE, encoding="utf-9")


def test_faults_are_told_together_in_the_order_of_lines(tmp_path):
    lines = [f"A{i:02d};" for i in range(30)]
    lines[3] = "nonsense;x"
    with pytest.raises(ValueError) as refused:
        read(tmp_path, "\n".join(["code;label", *lines]))
    said = str(refused.value).splitlines()
    assert [line.split(":")[1] for line in said[:-1]] == [str(i) for i in range(2, 22)]
    assert said[3].endswith("'nonsense' is no code of ICD-10")
    assert said[-1] == "and 10 more"


@pytest.mark.parametrize(
    ("system", "codes", "others"),
    [
        (
            "icd10",
            "I XIV A00-A09 E11 E11.9 E119 M62.8-01 M628+0 B24.+0 O04.-0.9 S72.001A C7A.1",
            "E A0 e11 E11. E11.90000",
        ),
        ("ccam", "1 01 01.01.03 AAQP007 AAQP007-01", "AAQ007 01.1 AAQP07"),
        ("atc", "A A10 A10B A10BA A10BA02", "A1 A10BA0 A10BA022 A10b"),
    ],
)
def test_codes_of_a_system(system, codes, others):
    assert all(SYSTEMS[system].code.fullmatch(code) for code in codes.split())
    assert not any(SYSTEMS[system].code.fullmatch(code) for code in others.split())
    seen = SYSTEMS[system].found.findall(f"({', '.join(codes.split())}.)")
    assert seen == [code for code in codes.split() if code not in ("I", "XIV", "A", "1", "01")]


def test_relations_are_of_the_table(tmp_path):
    table = read(tmp_path, TABLE)
    assert related(table, "E11.2", "parent") == ["E11"]
    assert related(table, "E11.2", "child") == ["E11.21"]
    assert related(table, "E11.2", "sibling") == ["E11.0", "E11.3", "E11.9"]
    assert related(table, "E11", "parent") == related(table, "E11", "sibling") == []
    assert connected(table, 4) == ["E11", "E11.0", "E11.2", "E11.21", "E11.3", "E11.9"]
    assert len(connected(table, 3)) == 9
    assert len(connected(table, 1)) == 10


def test_a_walk_is_what_is_drawn(tmp_path):
    """By hand. Drawn are, in turn, a kind of those that lead on, and a code of that kind."""
    asked = []

    def draw(*given: int):
        numbers = iter(given)
        return lambda n: asked.append(n) or next(numbers)

    table = read(tmp_path, TABLE)
    # At E11.0: parent or sibling; siblings .2, .3, .9. At .3: parent or sibling; .2, .9 are left.
    codes, steps = walk_from(table, "E11.0", 3, draw(1, 1, 1, 0))
    assert codes == ("E11.0", "E11.3", "E11.2")
    assert steps == (Step("E11.0", "sibling", "E11.3"), Step("E11.3", "sibling", "E11.2"))
    assert asked == [2, 3, 2, 2]
    # At E11.2: parent, child or sibling; at its child only the way back, so it stands at .2 again.
    asked.clear()
    codes, steps = walk_from(table, "E11.2", 4, draw(1, 0, 0, 0, 0, 2))
    assert codes == ("E11.2", "E11.21", "E11", "E11.9")
    assert [step.at for step in steps] == ["E11.2", "E11.2", "E11"]
    assert [step.relation for step in steps] == ["child", "parent", "child"]
    assert asked == [3, 1, 2, 1, 1, 3]


def hashed(*parts: str | int) -> int:
    """The first four bytes of a blake2b of the parts as JSON."""
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).digest()
    return sum(byte << 8 * place for place, byte in enumerate(digest))


def test_walks_are_pinned_and_begin_at_all_codes(tmp_path):
    """Those of seed 3 as they are everywhere, and the first against draws made here."""
    table = read(tmp_path, TABLE)
    found = list(itertools.islice(walks(table, 3, 3), 9))
    again = list(itertools.islice(walks(table, 3, 3), 4))
    assert again == found[:4]
    for walk in found:
        turn, place = divmod(walk.number, 9)
        order = sorted(
            (hashed(3, "start", turn, code), code) for code in set(table.labels) - {"J45"}
        )
        assert walk.codes[0] == order[place][1]
        draws = (hashed(3, "walk", walk.number, count) for count in itertools.count())
        alone = walk_from(table, walk.codes[0], 3, lambda n, it=draws: next(it) * n >> 32)
        assert (walk.codes, walk.steps) == alone
        for step in walk.steps:
            relations = {
                "parent": PARENTS.get(step.at) == step.to,
                "child": PARENTS.get(step.to) == step.at,
                "sibling": PARENTS.get(step.at, 0) == PARENTS.get(step.to),
            }
            assert relations[step.relation]
    assert [(walk.number, " ".join(walk.codes)) for walk in found[:5]] == [
        (0, "I20.9 I20 I20.0"),
        (1, "E11.9 E11.2 E11.3"),
        (2, "E11.2 E11 E11.9"),
        (3, "E11 E11.3 E11.9"),
        (6, "E11.0 E11.3 E11"),
    ]
    assert {code for walk in found for code in walk.codes} == set(PARENTS) | {"E11", "I20"}
    assert list(itertools.islice(walks(table, 4, 3), 9)) != found


def test_no_walk_is_there_twice_and_they_come_to_an_end(tmp_path):
    """Of 3 codes: I20's one; of E11's six, connected ones (counted here over all sets of 3)."""
    table = read(tmp_path, TABLE)
    found = list(walks(table, 0, 3))
    sets = [frozenset(walk.codes) for walk in found]
    assert len(set(sets)) == len(sets)
    near = {frozenset((a, b)) for a, b in PARENTS.items()}
    pairs = itertools.combinations(PARENTS, 2)
    near |= {frozenset(pair) for pair in pairs if PARENTS[pair[0]] == PARENTS[pair[1]]}

    def whole(codes: frozenset) -> bool:
        inside = [pair for pair in near if pair <= codes]
        return len(inside) >= 2  # of three codes: two pairs hold them together

    every = {frozenset(c) for c in itertools.combinations(table.labels, 3)}
    assert set(sets) == set(filter(whole, every))
    numbers = [walk.number for walk in found]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] >= len(numbers)  # some were passed over
    assert list(walks(table, 0, 7)) == []
