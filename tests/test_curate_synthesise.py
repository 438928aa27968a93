"""Texts of coding systems: what is asked, what is taken, and a writer that is killed."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_llm
import pytest

from cpt_jax.curate import asking, client, synthesise
from cpt_jax.curate.codings import Table
from cpt_jax.curate.synthesise import check, main, normal, text_in
from cpt_jax.curate.walks import Step, Walk

# Three blocks of a heading and four codes under it: 12 starts, and walks enough of 3 codes.
LABELS = {
    f"{block}{end}": f"{name} kind {end or 'any'}"
    for block, name in (("A00", "Cholera"), ("B05", "Measles"), ("E10", "Diabetes"))
    for end in ("", ".0", ".1", ".2", ".9")
}


def write(message: str) -> str:
    """Questions and answers that are as asked for."""
    asked = json.loads(message)
    pairs = [
        {
            "question": f"What is {one['code']} in the system {asked['system']}?",
            "answer": f"The code {one['code']} is that of {one['label']}, and of nothing else.",
        }
        for one in asked["codes"]
    ]
    return json.dumps({"pairs": pairs})


def serving(made: fake_llm.Server) -> fake_llm.Server:
    threading.Thread(target=made.serve_forever, daemon=True).start()
    return made


@pytest.fixture
def server():
    made = serving(fake_llm.Server(write=write))
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)


def arguments(root: Path, url: str, *more: str, command: str = "live", labels=None) -> list[str]:
    rows = (f"{code};{label}\n" for code, label in (labels or LABELS).items())
    (root / "table.csv").write_text("code;label\n" + "".join(rows))
    given = {
        "table": root / "table.csv",
        "system": "icd10",
        "licence": "CC-BY",
        "language": "en",
        "count": 20,
        "length": 3,
        "least": 10,
        "out": root / "out",
        "url": url,
        "model": "m",
    }
    pairs = (part for name, value in given.items() for part in (f"--{name}", str(value)))
    return [command, *pairs, *more]


def records(root: Path, folder: str = "texts") -> list[dict]:
    files = sorted((root / "out" / folder).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_text_of_each_walk_is_asked_for_once(server, tmp_path, capsys):
    """With all that a row is traced by; more are asked for without the first being asked again."""
    assert main(arguments(tmp_path, server.url)) == 0
    said = capsys.readouterr().out
    assert "15 codes, 0 lines without one; 20 walks, 15 codes in at least one" in said
    assert "20 walks, 20 written, 0 set aside, 0 without answer" in said
    assert "15 of 15 codes are in what is written" in said
    found = records(tmp_path)
    assert len({r["id"] for r in found}) == len(found) == 20
    first = found[0]
    codes, number = first["metadata"]["codes"], first["metadata"]["walk"]["number"]
    assert first["id"] == first["metadata"]["article"] == f"icd10-qa_en-0-{number}"
    assert first["metadata"]["source"] == "synthetic-icd10"
    assert (first["metadata"]["licence"], first["metadata"]["model"]) == ("CC-BY", "m")
    assert (first["metadata"]["system"], first["metadata"]["template"]) == ("icd10", "qa_en")
    assert first["metadata"]["walk"]["seed"] == 0
    assert first["text"].startswith(
        f"What is {codes[0]} in the system ICD-10?\nThe code {codes[0]}"
    )
    assert first["text"].count("\n\n") == 2
    assert all(LABELS[code] in r["text"] for r in found for code in r["metadata"]["codes"])
    body = server.bodies[0]
    assert body["messages"][0]["content"] == (synthesise.TEMPLATES / "qa_en.txt").read_text()
    assert body["response_format"]["json_schema"]["schema"] == synthesise.SCHEMAS["qa"]
    assert (body["max_tokens"], body["temperature"]) == (2000, 0.7)
    asked = {json.dumps([c["code"] for c in json.loads(text)["codes"]]) for text in server.answered}
    assert asked == {json.dumps(r["metadata"]["codes"]) for r in found}
    assert main(arguments(tmp_path, server.url, "--count", "25")) == 0
    assert len(server.answered) == len(set(server.answered)) == 25
    assert records(tmp_path)[:20] == found
    assert main(arguments(tmp_path, server.url, "--count", "5")) == 0
    assert records(tmp_path) == found[:5]


def job_of(labels=LABELS, system="icd10", language="en", kind="prose"):
    table = Table(system, labels, {}, {}, 0, "digest")
    endpoint = client.Endpoint("http://x", "m")
    return synthesise.Synthesis(
        Path("out"),
        "",
        endpoint,
        table,
        kind=kind,
        language=language,
        template="t",
        seed=0,
        length=3,
        count=1,
        least=10,
        most=60,
        metadata={},
    )


def test_the_model_is_told_codes_labels_and_relations():
    steps = [("E10.1", "sibling", "E10.2"), ("E10.2", "parent", "E10"), ("E10", "child", "E10.9")]
    walk = Walk(0, ("E10.1", "E10.2", "E10", "E10.9"), tuple(Step(*step) for step in steps))
    asked = json.loads(job_of().question_of(walk).message)
    assert asked["system"] == "ICD-10"
    assert asked["codes"][0] == {"code": "E10.1", "label": "Diabetes kind .1"}
    assert asked["relations"] == [
        {"siblings": ["E10.1", "E10.2"]},
        {"code": "E10.2", "parent": "E10"},
        {"code": "E10.9", "parent": "E10"},
    ]
    french = job_of(language="fr").question_of(walk)
    assert json.loads(french.message)["system"] == "CIM-10"
    assert french.key != job_of().question_of(walk).key


GOOD = "The code E10.1 is that of diabetes  kind .1 and E10, of Diabetes kind any, is above it."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The code E10.1 is short.", "5 words, not 10 to 60"),
        (GOOD * 5, "86 words, not 10 to 60"),
        (GOOD.replace("E10.1", "E10.12"), "without the code E10.1"),
        (GOOD.replace("E10,", "this,"), "without the code E10"),
        (GOOD.replace("E10,", "e10,"), "without the code E10"),
        (GOOD.replace("kind any", "of any kind"), "without the label of E10"),
        (GOOD + " So is E10.3.", "1 codes that were not given"),
        (GOOD + " So are E10.90000 and Z99, as E10-E14.", "3 codes that were not given"),
        (
            "E10.1: Diabetes kind .1, c'est un diabète ; E10, Diabetes kind any, est le parent.",
            "not in the language asked for (en), by its commonest words",
        ),
        ("E10.1 Diabetes kind .1 " * 2 + "E10 Diabetes kind any", "not in the language"),
    ],
)
def test_texts_that_are_not_as_asked_for_are_told(text, reason):
    walk = Walk(0, ("E10.1", "E10"), ())
    check(job_of(), walk, GOOD)
    with pytest.raises(ValueError) as fault:
        check(job_of(), walk, text)
    assert str(fault.value).startswith(reason)


def test_codes_are_told_from_what_looks_like_them():
    """A code in a label is given; the letter of an ATC group is one only by itself."""
    labels = {"D51": "Vitamin B12 deficiency", "D51.0": "Vitamin B12 deficiency, other"}
    text = "In D51, Vitamin B12 deficiency, there is D51.0, the Vitamin B12 deficiency, other."
    check(job_of(labels=labels), Walk(0, ("D51", "D51.0"), ()), text)
    labels = {"A": "ALIMENTARY TRACT", "A10": "DRUGS USED IN DIABETES"}
    text = "The group A10 is that of drugs used in diabetes and is in {} of the alimentary tract."
    atc = job_of(labels=labels, system="atc")
    check(atc, Walk(0, ("A", "A10"), ()), text.format("A"))
    with pytest.raises(ValueError, match=r"without the code A$"):
        check(atc, Walk(0, ("A", "A10"), ()), text.format("that"))
    with pytest.raises(ValueError, match="1 codes that were not given"):
        check(atc, Walk(0, ("A", "A10"), ()), text.format("A, as A10BA02 is,"))
    labels = {"AAQP007": "Électroencéphalographie sur au moins 8 dérivations d’une heure"}
    text = (
        "L'acte AAQP007, électroencéphalographie sur au moins 8 dérivations d'une heure, est un{}"
    )
    ccam = job_of(labels=labels, system="ccam", language="fr")
    check(ccam, Walk(0, ("AAQP007",), ()), text.format("e mesure le jour de la COVID19."))
    with pytest.raises(ValueError, match="2 codes that were not given"):
        check(ccam, Walk(0, ("AAQP007",), ()), text.format(" de 01.01.03, avec AAQP002."))


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        ("So it is.", "qa", "the answer is not JSON"),
        ('{"text": "a"}', "qa", "the answer is no object of pairs"),
        ('{"pairs": [{"question": "a"}]}', "qa", "the answer's pairs are no objects of question"),
        ('{"pairs": ["a"]}', "qa", "the answer's pairs are no objects of question, answer"),
        ('{"pairs": 1}', "qa", "the answer's pairs are no objects of question, answer"),
        ('{"pairs": [{"question": "a", "answer": " "}]}', "qa", "a part of the answer is no text"),
        ('{"pairs": []}', "prose", "the answer is no object of text"),
        ("[]", "prose", "the answer is no object of text"),
        ('{"text": 3}', "prose", "a part of the answer is no text, or empty"),
    ],
)
def test_answers_that_are_no_texts_are_told(answer, kind, reason):
    with pytest.raises(ValueError) as fault:
        text_in(answer, kind)
    assert str(fault.value).startswith(reason)


def test_texts_in_answers():
    pairs = [{"question": " a? ", "answer": "b"}, {"question": "c?", "answer": "d\n"}]
    assert text_in(json.dumps({"pairs": pairs}), "qa") == "a?\nb\n\nc?\nd"
    assert text_in('```json\n{"text": " e "}\n```', "prose") == "e"
    assert text_in('{"pairs": []}', "qa") == ""  # of too few words, then
    assert normal("L’été,\u00a0 ﬁn") == "l'été, fin"


def test_what_is_set_aside_is_not_asked_again(server, tmp_path, capsys):
    """In = out and set aside; the answer is kept with its reason, under the walk's number."""

    def forget(message: str) -> str:
        return write(message).replace("Cholera kind any", "Cholera") if "any" in message else "{"

    server.write = forget
    for _ in range(2):
        assert main(arguments(tmp_path, server.url)) == 0
        said = capsys.readouterr().out
        found, aside = records(tmp_path), records(tmp_path, "aside")
        assert f"20 walks, {len(found)} written, {len(aside)} set aside, 0 without" in said
        assert len(found) + len(aside) == len(server.answered) == 20
    assert {one["reason"] for one in aside} == {
        "without the label of A00",
        "the answer is not JSON",
    }
    (first, *_) = (one for one in aside if one["reason"] == "without the label of A00")
    raw = json.loads(first["raw"])
    assert "A00" in raw["codes"]
    assert "Cholera" in raw["answer"]
    numbers = {one["metadata"]["walk"]["number"] for one in found}
    assert not numbers & {one["line"] for one in aside}


def test_the_budget_ends_the_run_and_what_is_there_counts(server, tmp_path, capsys):
    """An answer costs 0.2, as in the grader's test."""
    prices = ("-s", "price_in=1000", "-s", "price_out=5000", "-s", "concurrency=1")
    assert main(arguments(tmp_path, server.url, *prices, "-s", "budget=1")) == 1
    said = capsys.readouterr()
    assert "the budget of 1 is spent; the same command goes on" in said.err
    assert "20 walks, 5 written, 15 set aside, 15 without answer" in said.out
    assert {one["reason"] for one in records(tmp_path, "aside")} == {"no answer yet"}
    assert main(arguments(tmp_path, server.url)) == 0
    assert len(server.answered) == len(set(server.answered)) == 20
    assert not (tmp_path / "out" / "aside" / "0000.jsonl").exists()


def test_a_batch_is_the_same_as_asking(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(asking, "OF_A_FILE", 12)
    monkeypatch.setattr(synthesise, "OF_A_FILE", 8)
    assert main(arguments(tmp_path, server.url, command="requests")) == 0
    assert "20 requests in 2 files" in capsys.readouterr().out
    done = tmp_path / "done.jsonl"
    with done.open("w") as file:
        for part in sorted((tmp_path / "out" / "requests").iterdir()):
            for line in part.read_text().splitlines():
                request = json.loads(line)
                text = write(request["body"]["messages"][1]["content"])
                body = {"choices": [{"message": {"content": text}}]}
                result = {"custom_id": request["custom_id"], "response": {"status_code": 200}}
                result["response"]["body"] = body
                file.write(json.dumps(result) + "\n")
    command = arguments(tmp_path, server.url, command="results")
    assert main([command[0], str(done), *command[1:]]) == 0
    assert "20 taken, 0 known before, 0 failed" in capsys.readouterr().out
    assert not server.seen
    batch = records(tmp_path)
    assert [path.name for path in sorted((tmp_path / "out" / "texts").iterdir())] == [
        *("0000.jsonl", "0001.jsonl", "0002.jsonl")
    ]
    (tmp_path / "live").mkdir()
    assert main(arguments(tmp_path / "live", server.url)) == 0
    assert records(tmp_path / "live") == batch
    done.write_text('{"custom_id": "x"}\n')
    assert main([command[0], str(done), *command[1:]]) == 2
    assert "done.jsonl:1: of no walk of these 20 over icd10: 'x'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_writer_goes_on_where_it_was(tmp_path):
    """Five SIGKILLs: what was on the disk is not asked for again, and the end is the same."""
    labels = {
        f"{c}{i:02d}{e}": f"Kind {c}{e} " + "!500" * (i % 5 == 0)
        for c in "ABC"
        for i in range(10)
        for e in ("", ".0", ".1", ".2", ".3")
    }
    server = serving(fake_llm.Server(delay=0.01, write=write))
    more = ("--count", "200", "-s", "concurrency=4")
    command = arguments(tmp_path, server.url, *more, labels=labels)
    script = "import sys; from cpt_jax.curate.synthesise import main; sys.exit(main(sys.argv[1:]))"
    journal = tmp_path / "out" / "journal.jsonl"
    kept, null = dict[str, str](), subprocess.DEVNULL
    for kill in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *command], stdout=null, stderr=null
        )
        enough = len(server.answered) + 10 + 5 * kill
        while len(server.answered) < enough:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.1)  # answers on their way
        raw = journal.read_bytes()
        now = {one["key"]: one["text"] for one in map(json.loads, raw.split(b"\n")[1:-1])}
        assert now.items() >= kept.items()
        kept = now
        paid = set(kept.values())
        before = {text: times for text, times in server.seen.items() if write(text) in paid}
        assert len(before) == len(kept)
    assert main(command) == 0
    assert {text: server.seen[text] for text in before} == before
    assert len(server.answered) <= 200 + 5 * 4  # those on their way at a kill, 4 at a time
    found = (tmp_path / "out" / "texts" / "0000.jsonl").read_bytes()
    assert len(found.splitlines()) == 200
    server.seen.clear()
    (tmp_path / "other").mkdir()
    assert main(arguments(tmp_path / "other", server.url, *more, labels=labels)) == 0
    assert (tmp_path / "other" / "out" / "texts" / "0000.jsonl").read_bytes() == found
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--count", "0"), "count: 0 is not 1 or more"),
        (("--count", "99"), "count: 99 walks of 3 codes are wanted, and there are 30"),
        (("--length", "6"), "count: 20 walks of 6 codes are wanted, and there are 0"),
        (("--length", "0"), "length: 0 is not 1 or more"),
        (("--least", "0"), "least: 0 is not 1 or more"),
        (("--most", "5"), "most: 5 words are fewer than least, 10"),
        (("--licence", " "), "licence: empty"),
        (("-s", "concurrency=0"), "settings.concurrency: 0 is not 1 or more"),
        (("--template", "/no/such"), "/no/such"),
        (("--table", "/no/such"), "/no/such"),
        (("--table", "{root}"), "Is a directory"),
        (("--code", "Code"), "table.csv:1: no column 'Code'; there are 'code', 'label'"),
        (("--system", "atc"), "table.csv:3: 'A00.0' is no code of ATC"),
    ],
)
def test_what_cannot_be_meant_is_refused(server, tmp_path, capsys, more, said):
    given = [one.format(root=tmp_path) for one in more]
    assert main(arguments(tmp_path, server.url, *given)) == 2
    assert said in capsys.readouterr().err
    assert not server.seen
    assert not (tmp_path / "out").exists()


def test_another_seed_or_template_needs_another_out(server, tmp_path, capsys):
    assert main(arguments(tmp_path, server.url)) == 0
    assert main(arguments(tmp_path, server.url, "--seed", "1")) == 2
    assert "holds answers of another seed: 0, now 1. Give another --out" in capsys.readouterr().err
    (tmp_path / "mine.txt").write_text("Write.")
    assert main(arguments(tmp_path, server.url, "--template", str(tmp_path / "mine.txt"))) == 2
    assert "holds answers of another template" in capsys.readouterr().err


@pytest.mark.parametrize("kind", synthesise.SCHEMAS)
@pytest.mark.parametrize("language", synthesise.COMMON)
def test_templates_ask_for_what_is_read(kind, language):
    text = (synthesise.TEMPLATES / f"{kind}_{language}.txt").read_text()
    (answer,) = [line for line in text.splitlines() if line.startswith(("Answer", "Répondez"))]
    example = json.loads(answer[answer.index("{") :])
    assert text_in(json.dumps(example), kind).startswith("...")
    assert {"en": "in English", "fr": "en français"}[language] in text
