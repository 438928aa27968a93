"""The launcher of several processes on this machine, with processes of a few lines."""

import json
import signal
import subprocess
import sys

import pytest

from launch import local

STARTED = """
import json, os, signal, sys, time
rank = int(os.environ["JAX_PROCESS_ID"])
"""


def launch(body: str, repo, *arguments: str, processes: int = 2) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "launch.local", "-n", str(processes), *arguments]
        + ["--", sys.executable, "-c", STARTED + body],
        cwd=repo,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_each_knows_its_place_and_its_lines_are_told_apart(repo):
    body = """
names = "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_NUM_CPU_DEVICES JAX_LOCAL_DEVICE_IDS"
print(json.dumps([os.environ[name] for name in names.split()]))
print("an error", file=sys.stderr)
print("no end of line", end="")
"""
    launched = launch(body, repo, "--devices-per-process", "2")
    out, err = launched.communicate(timeout=30)
    assert launched.returncode == 0
    lines = sorted(line for line in out.splitlines() if "no end" not in line)
    places = [json.loads(line.split("] ", 1)[1]) for line in lines]
    assert [line[:4] for line in lines] == ["[0] ", "[1] "]
    assert [place[1:] for place in places] == [["2", "2", "0,1"], ["2", "2", "2,3"]]
    assert places[0][0] == places[1][0]  # one address
    assert {line for line in out.splitlines() if "no end" in line} == {
        "[0] no end of line",
        "[1] no end of line",
    }
    assert sorted(err.splitlines()) == ["[0] an error", "[1] an error"]


@pytest.mark.parametrize(
    ("failure", "said", "status"),
    [
        ("sys.exit(3)", "ended with exit status 3", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL", 137),
    ],
)
def test_the_first_that_fails_gives_the_status(repo, failure, said, status):
    """Process 1 does; the others fail after it in another way, or end well."""
    body = f"""
if rank == 1: {failure}
time.sleep(1)
sys.exit(7 * rank)
"""
    launched = launch(body, repo, processes=3)
    _, err = launched.communicate(timeout=30)
    assert launched.returncode == status
    assert err == f"process 1 of 3 {said}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_all(repo, number):
    body = """
def stop(number, _): sys.exit(128 + number)
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, stop)
print("ready", flush=True)
time.sleep(60)
"""
    launched = launch(body, repo)
    assert launched.stdout is not None
    assert {launched.stdout.readline() for _ in range(2)} == {"[0] ready\n", "[1] ready\n"}
    launched.send_signal(number)
    launched.communicate(timeout=30)
    assert launched.returncode == 128 + number


def test_who_does_not_end_is_killed(monkeypatch, capfd):
    monkeypatch.setattr(local, "PATIENCE", 0.2)
    children = [
        subprocess.Popen([sys.executable, "-c", body])
        for body in ("import time; time.sleep(60)", "raise SystemExit(4)")
    ]
    assert local.wait(children) == 4
    assert [child.returncode for child in children] == [-signal.SIGKILL, 4]
    assert capfd.readouterr().err.splitlines() == [
        "process 1 of 2 ended with exit status 4",
        "process 0 does not end: killed",
    ]


def test_a_command_that_is_not_there(repo):
    command = [sys.executable, "-m", "launch.local", "-n", "2", "--", "no-such-command"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr == "error: no-such-command: no such command\n"


def test_signals_without_a_name(repo):
    launched = launch("os.kill(os.getpid(), signal.SIGRTMIN + 5)", repo, processes=1)
    _, err = launched.communicate(timeout=30)
    number = signal.SIGRTMIN + 5
    assert launched.returncode == 128 + number
    assert f"process 0 of 1 was ended by signal {number}" in err


def test_they_go_on_when_nobody_reads_any_more(repo):
    """More than a pipe holds, as with `| head -1`."""
    launched = launch("print(('line ' * 100 + chr(10)) * 1000)", repo, processes=1)
    with launched:
        assert launched.stdout is not None
        launched.stdout.readline()
        launched.stdout.close()
        try:
            assert launched.wait(timeout=30) == 0
        finally:
            launched.kill()


@pytest.mark.parametrize("processes", [0, -1, 257, 10**6])
def test_so_many_processes_are_refused(repo, processes):
    launched = launch("", repo, processes=processes)
    _, err = launched.communicate(timeout=30)
    assert launched.returncode == 2
    assert "-n is from 1 to 256" in err
