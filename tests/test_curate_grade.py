"""Grades from an endpoint that fails, is slow, and dies; a grader that is killed."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_llm
import pytest

from cpt_jax.curate import client, grade
from cpt_jax.curate.client import Endpoint, Pace, _told, answer_of
from cpt_jax.curate.grade import grade_in, main
from cpt_jax.curate.grades import Grade
from cpt_jax.curate.journal import Journal


@pytest.fixture
def server():
    made = fake_llm.Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)


def put(root: Path, texts: list[str], name: str = "a.jsonl") -> None:
    path = root / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        {"text": t, "id": f"{name}/{i}", "metadata": {"source": "s"}} for i, t in enumerate(texts)
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def arguments(root: Path, url: str, *more: str, command: str = "live") -> list[str]:
    paths = ("--records", str(root / "raw"), "--out", str(root / "out"))
    return [command, *paths, "--url", url, "--model", "m", *more]


def graded(root: Path, name: str = "a.jsonl") -> list[dict]:
    lines = (root / "out" / "graded" / name).read_text().splitlines()
    return [json.loads(line) for line in lines]


def aside(root: Path, name: str = "a.jsonl") -> list[tuple[int, str]]:
    lines = (root / "out" / "aside" / name).read_text().splitlines()
    return [(one["line"], one["reason"]) for one in map(json.loads, lines)]


def right(record: dict) -> bool:
    expected = fake_llm.expected(record["text"])
    return {name: record["metadata"][name] for name in expected} == expected


def test_records_are_graded_and_paid_once(server, tmp_path, capsys):
    """What is there twice is asked once; what was asked is not asked again."""
    texts = [f"text {i}" for i in range(30)]
    put(tmp_path, [*texts, "text 3", "text 4"])
    assert main(arguments(tmp_path, server.url)) == 0
    assert "32 read, 32 graded, 0 set aside, 0 without answer" in capsys.readouterr().out
    found = graded(tmp_path)
    assert [r["text"] for r in found] == [*texts, "text 3", "text 4"]
    assert all(map(right, found))
    assert found[0]["metadata"]["source"] == "s"
    assert sorted(server.answered) == sorted(texts)
    put(tmp_path, [*texts, "another"])
    assert main(arguments(tmp_path, server.url)) == 0
    assert sorted(server.answered) == sorted([*texts, "another"])
    body = server.bodies[0]
    assert body["messages"][0]["content"] == grade.RUBRIC.read_text()
    assert body["response_format"]["json_schema"]["schema"] == grade.SCHEMA


@pytest.mark.parametrize("fault", ["429", "500", "503", "408", "reset", "truncated", "nonsense"])
def test_what_may_pass_is_asked_again(server, tmp_path, fault):
    put(tmp_path, [f"a !{fault}", f"b !{fault} !{fault}", "c"])
    assert main(arguments(tmp_path, server.url)) == 0
    assert all(map(right, graded(tmp_path)))
    assert server.seen == {f"a !{fault}": 2, f"b !{fault} !{fault}": 3, "c": 1}
    assert len(server.answered) == 3  # none paid twice


def test_an_answer_that_does_not_come_is_asked_for_again(server, tmp_path):
    put(tmp_path, ["a !slow"])
    start = time.monotonic()
    assert main(arguments(tmp_path, server.url, "-s", "timeout=0.3")) == 0
    assert time.monotonic() - start < 2.5  # not the three seconds of the slow answer
    assert right(graded(tmp_path)[0])


def test_it_waits_as_long_as_the_endpoint_says(server, tmp_path):
    put(tmp_path, ["a !429"])  # Retry-After: 0.2
    start = time.monotonic()
    assert main(arguments(tmp_path, server.url)) == 0
    assert time.monotonic() - start > 0.2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("prose", "the answer is not JSON"),
        ("range", "the answer's grades are none that there are"),
        ("half", "the answer's educational value is not whole"),
        ("extra", "the answer is no object of educational, content, domain"),
    ],
)
def test_answers_that_are_no_grades_are_set_aside(server, tmp_path, capsys, fault, reason):
    """And not asked for again: the same question has the same answer."""
    put(tmp_path, ["a", f"b !{fault}"])
    for _ in range(2):
        assert main(arguments(tmp_path, server.url)) == 0
        assert "2 read, 1 graded, 1 set aside, 0 without answer" in capsys.readouterr().out
        assert aside(tmp_path) == [(2, reason)]
    assert server.seen == {"a": 1, f"b !{fault}": 1}


def test_an_answer_in_a_fence_is_one(server, tmp_path):
    put(tmp_path, ["a !fenced"])
    assert main(arguments(tmp_path, server.url)) == 0
    assert right(graded(tmp_path)[0])


def test_what_is_never_answered_is_left_for_another_time(server, tmp_path, capsys):
    put(tmp_path, ["a", "b !always !500"])
    assert main(arguments(tmp_path, server.url, "-s", "attempts=2")) == 1
    said = capsys.readouterr()
    assert "2 read, 1 graded, 1 set aside, 1 without answer" in said.out
    assert "1 questions were not answered; the same command goes on" in said.err
    assert aside(tmp_path) == [(2, "no answer yet")]
    assert server.seen["b !always !500"] == 2


def test_a_dead_endpoint_ends_the_run(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grade, "IN_A_ROW", 5)
    put(tmp_path, [f"text {i}" for i in range(100)])
    url = server.url
    server.shutdown()
    server.server_close()
    assert main(arguments(tmp_path, url, "-s", "attempts=1", "-s", "concurrency=2")) == 1
    assert "given up: http://127.0.0.1" in capsys.readouterr().err


def test_a_refusal_ends_the_run_without_the_text(server, tmp_path, capsys):
    """The endpoint's message quotes the question."""
    put(tmp_path, ["private words !401"])
    assert main(arguments(tmp_path, server.url)) == 2
    error = capsys.readouterr().err
    assert "status 401: asked_for" in error
    assert "private" not in error


def test_no_more_is_spent_than_the_budget(server, tmp_path, capsys):
    """An answer costs 100 / 1e6 * 1000 + 20 / 1e6 * 5000 = 0.2; one question at a time."""
    put(tmp_path, [f"text {i}" for i in range(20)])
    prices = ("-s", "price_in=1000", "-s", "price_out=5000", "-s", "concurrency=1")
    assert main(arguments(tmp_path, server.url, *prices, "-s", "budget=1")) == 1
    assert "the budget of 1 is spent; the same command goes on" in capsys.readouterr().err
    assert len(server.answered) == 5
    assert main(arguments(tmp_path, server.url, *prices, "-s", "budget=1")) == 1  # it counts on
    assert len(server.answered) == 5
    assert main(arguments(tmp_path, server.url, *prices, "-s", "budget=10")) == 0
    assert len(server.answered) == 20


@pytest.mark.parametrize("limit", ["requests_per_minute=600", "tokens_per_minute=72000"])
def test_it_keeps_the_pace(server, tmp_path, limit):
    """Ten a second, as requests or as 120 tokens each: 8 take 0.7 seconds at least."""
    put(tmp_path, [f"text {i}" for i in range(8)])
    start = time.monotonic()
    assert main(arguments(tmp_path, server.url, "-s", limit, "-s", "concurrency=1")) == 0
    assert time.monotonic() - start > 0.69


def test_the_key_is_sent_and_kept_nowhere(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LLM_KEY", "sesame")
    put(tmp_path, ["a"])
    assert main(arguments(tmp_path, server.url, "-s", "key_variable=LLM_KEY")) == 0
    assert server.keys == {"Bearer sesame"}
    said = capsys.readouterr()
    written = [p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert not any("sesame" in text for text in (said.out, said.err, *written))


def test_some_are_asked_twice_and_compared(server, tmp_path, capsys):
    put(tmp_path, [f"text {i}" for i in range(100)])
    assert main(arguments(tmp_path, server.url, "--again", "0.3")) == 0
    again = len(server.answered) - 100
    assert 15 <= again <= 45  # 30, and more than 3 standard deviations
    assert f"{again} records graded twice" in capsys.readouterr().out
    assert (tmp_path / "out" / "agreement.html").exists()
    assert main(arguments(tmp_path, server.url, "--again", "0.3")) == 0
    assert len(server.answered) == 100 + again


def test_a_share_is_asked_and_a_larger_one_holds_it(server, tmp_path, capsys):
    put(tmp_path, [f"text {i}" for i in range(400)])
    more = arguments(tmp_path, server.url)
    assert main([*more, "--share", "0.1"]) == 0
    first = {record["text"] for record in graded(tmp_path)}
    assert 400 * 0.1 - 4 * 6 < len(first) < 400 * 0.1 + 4 * 6  # four standard deviations
    said = capsys.readouterr().out
    assert f"400 read, {len(first)} graded, 0 set aside, 0 without answer" in said
    assert f"{400 - len(first)} not drawn" in said
    assert main([*more, "--share", "0.3"]) == 0
    assert first < {record["text"] for record in graded(tmp_path)}
    assert len(server.seen) == len(graded(tmp_path))  # those of the first share are not asked again


def test_a_batch_is_the_same_as_asking(server, tmp_path, capsys):
    """Requests to files; results, two of them failed, to grades; the failed ones once more."""
    texts = [f"text {i}" for i in range(12)]
    put(tmp_path, texts)
    assert main(arguments(tmp_path, server.url, command="requests")) == 0
    (file,) = (tmp_path / "out" / "requests").iterdir()
    requests = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["body"]["messages"][1]["content"] for r in requests] == texts
    assert main(arguments(tmp_path, server.url, command="requests")) == 2
    assert "holds requests; read their results, or take them away" in capsys.readouterr().err
    results = []
    for i, request in enumerate(requests):
        said = json.dumps(fake_llm.expected(texts[i]))
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        body = {"choices": [{"message": {"content": said}}], "usage": usage}
        response = {"status_code": 500 if i == 2 else 200, "body": {} if i == 3 else body}
        results.append({"custom_id": request["custom_id"], "response": response})
    done = tmp_path / "done.jsonl"
    done.write_text("".join(json.dumps(result) + "\n" for result in results))
    command = arguments(tmp_path, server.url, command="results")
    assert main([*command[:1], str(done), *command[1:]]) == 1
    said = capsys.readouterr().out
    assert "10 taken, 0 known before, 2 failed" in said
    assert "12 read, 10 graded, 2 set aside, 2 without answer" in said
    assert all(map(right, graded(tmp_path)))
    file.unlink()
    assert main(arguments(tmp_path, server.url, command="requests")) == 0
    (file,) = (tmp_path / "out" / "requests").iterdir()
    assert len(file.read_text().splitlines()) == 2
    assert main(arguments(tmp_path, server.url)) == 0  # or live, for the rest
    assert sorted(server.answered) == ["text 2", "text 3"]


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "done.jsonl:1: no result of a request"), ('{"custom_id": "x"}', ":1: of no text in ")],
)
def test_results_of_something_else_are_refused(server, tmp_path, capsys, line, said):
    put(tmp_path, ["a"])
    (tmp_path / "done.jsonl").write_text(line + "\n")
    command = arguments(tmp_path, server.url, command="results")
    assert main([*command[:1], str(tmp_path / "done.jsonl"), *command[1:]]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_grader_goes_on_where_it_was(tmp_path, capsys):
    """Five kills: what was on the disk is never asked for again, and the end is the same."""
    server = fake_llm.Server(delay=0.01)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    texts = [f"text {i}" + " !500" * (i % 7 == 0) + " !prose" * (i % 11 == 5) for i in range(300)]
    put(tmp_path, texts)
    command = arguments(tmp_path, server.url, "-s", "concurrency=4")
    script = "import sys; from cpt_jax.curate.grade import main; sys.exit(main(sys.argv[1:]))"
    journal = tmp_path / "out" / "journal.jsonl"
    for kill in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *command], stderr=subprocess.DEVNULL
        )
        enough = len(server.answered) + 20 + 7 * kill
        while len(server.answered) < enough and process.poll() is None:
            time.sleep(0.002)
        assert process.poll() is None, "it ended before it was killed"
        process.kill()
        process.wait()
        time.sleep(0.1)  # answers on their way
        raw = journal.read_bytes()
        lines = raw[: raw.rfind(b"\n") + 1].splitlines()[1:]
        answered = {json.loads(line)["key"] for line in lines}
        if kill == 2:  # and a line that was cut
            journal.write_bytes(raw + b'{"key": "abc", "te')
        before = dict(server.seen)
        by_key = {grade.question_of({"text": t, "metadata": {}}).key: t for t in texts}
        kept = {by_key[key]: before[by_key[key]] for key in answered}
    assert main(command) == 0
    assert {text: server.seen[text] for text in kept} == kept
    assert len(server.answered) <= 300 + 5 * 4  # those on their way at a kill, 4 at a time
    found, other = tmp_path / "out", tmp_path / "other"
    capsys.readouterr()
    whole = command.copy()
    whole[whole.index("--out") + 1] = str(other)
    server.seen.clear()
    assert main(whole) == 0
    for name in ("graded/a.jsonl", "aside/a.jsonl"):
        assert (found / name).read_bytes() == (other / name).read_bytes()
    server.shutdown()
    server.server_close()


def test_a_journal_is_one_processes_and_of_one_thing(tmp_path):
    first = Journal(tmp_path / "j", {"model": "a"})
    first.add("k", text="t", tokens=[1, 2])
    with pytest.raises(ValueError, match="j: another process is writing it"):
        Journal(tmp_path / "j", {"model": "a"})
    first.close()
    with pytest.raises(ValueError, match=r"another model: 'a', now 'b'\. Give another --out"):
        Journal(tmp_path / "j", {"model": "b"})
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() + b'{"key": "cut')
    again = Journal(tmp_path / "j", {"model": "a"})
    assert again.answers == {"k": {"key": "k", "text": "t", "tokens": [1, 2]}}
    again.add("l", text="u", tokens=[0, 0])
    again.close()
    assert len((tmp_path / "j").read_text().splitlines()) == 3
    (tmp_path / "j").write_text('{"model": "a"}\nnonsense\n')
    with pytest.raises(ValueError, match="j:2: damaged"):
        Journal(tmp_path / "j", {"model": "a"})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-s", "concurrency=0"), "settings.concurrency: 0 is not 1 or more"),
        (("-s", "concurency=2"), "unknown field; did you mean settings.concurrency?"),
        (("-s", "budget=5"), "settings.budget: without price_in and price_out nothing is"),
        (("-s", "timeout=0"), "settings.timeout: 0.0 is not a number above 0"),
        (("-s", "temperature=-1"), "settings.temperature: -1.0 is not a number from 0"),
        (("-s", "key_variable=NO_SUCH"), "key_variable: NO_SUCH is not set in the environment"),
        (("--url", "localhost"), "'localhost' begins with neither http:// nor https://"),
        (("--share", "-1"), "share: -1.0 is not a share, from 0 to 1"),
        (("--again", "2"), "again: 2.0 is not a share, from 0 to 1"),
        (("--rubric", "/no/such"), "/no/such"),
        (("--out", "{root}/raw/out"), "raw/out lies within {root}/raw, or around it"),
        (("--records", "{root}/none"), "{root}/none: no such directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(server, tmp_path, capsys, more, said):
    put(tmp_path, ["a"])
    given = [one.format(root=tmp_path) for one in more]
    assert main(arguments(tmp_path, server.url, *given)) == 2
    assert said.format(root=tmp_path) in capsys.readouterr().err
    assert not server.seen
    assert not (tmp_path / "out").exists()


def test_another_rubric_needs_another_out(server, tmp_path, capsys):
    put(tmp_path, ["a"])
    assert main(arguments(tmp_path, server.url)) == 0
    (tmp_path / "rubric.txt").write_text("Grade it.")
    assert main(arguments(tmp_path, server.url, "--rubric", str(tmp_path / "rubric.txt"))) == 2
    assert "holds answers of another rubric" in capsys.readouterr().err


def test_the_section_is_read_too():
    record = {"text": "It helps.", "metadata": {"section": "Results"}}
    assert grade.question_of(record).message == "Section: Results\n\nIt helps."
    alone = grade.question_of({"text": "It helps.", "metadata": {}})
    assert alone.message == "It helps."
    assert alone.key != grade.question_of(record).key


def test_rubrics_are_of_the_grades_that_there_are(repo):
    for name in ("en", "fr"):
        text = (repo / "cpt_jax" / "curate" / "rubrics" / f"{name}.txt").read_text()
        for label in (*fake_llm.CONTENTS, *fake_llm.DOMAINS):
            assert f"\n{label}" in text
    assert grade_in('{"educational": 4, "content": "study", "domain": "other"}') == Grade(
        4, "study", "other"
    )


def test_retry_after_may_be_a_date():
    def told(value: str) -> float | None:
        return _told(client.httpx2.Response(429, headers={"retry-after": value}))

    assert told("3") == 3
    assert told("-1") == 0
    assert told("86400") == client.LONGEST_WAIT
    assert told("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert told("soon") is None
    assert told("") is None


@pytest.mark.parametrize(
    "body", [None, [], {}, {"choices": [{"message": {"content": None}}]}, {"choices": "abc"}]
)
def test_bodies_that_are_none_are_told(body):
    with pytest.raises(ValueError, match=r"choices\[0\].message.content"):
        answer_of(body)


def test_no_limit_is_no_wait():
    pace = Pace(None)
    pace.note(1e9)
    assert Endpoint("http://x", "m").faults() == []
