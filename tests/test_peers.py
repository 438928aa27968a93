"""Processes that end together, and where one stands: without JAX, in processes of a few lines."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from cpt_jax import hosts, peers, relay

PROGRAM = """
import os, sys, time
from cpt_jax import peers
with peers.together():
    rank, count = int(os.environ["RANK"]), int(os.environ["COUNT"])
    link = peers.connect(os.environ["ADDRESS"], rank, count, timeout=float(os.environ["WAIT"]))
    print("joined", link.port, flush=True)
    exec(os.environ["BODY"])
"""


def start(
    body: str, ranks=(0, 1, 2), count: int = 3, wait: float = 60, repo=None, other=None
) -> dict:
    """Starts processes that join each other and run ``body``, which knows its ``rank``.

    ``other`` is what the environment of all but the first holds besides.
    """
    address = f"127.0.0.1:{peers.free_port()}"
    return {
        rank: subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=os.environ
            | {"RANK": str(rank), "COUNT": str(count), "ADDRESS": address}
            | {"WAIT": str(wait), "BODY": body}
            | (other or {} if rank else {}),
            cwd=repo,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    }


def ends(processes: dict, within: float = 30) -> tuple[dict[int, int], dict[int, str]]:
    """Returns exit codes and standard errors by rank."""
    deadline = time.monotonic() + within
    errors = {}
    for rank, process in processes.items():
        try:
            errors[rank] = process.communicate(timeout=deadline - time.monotonic())[1]
        finally:
            process.kill()
    return {rank: process.returncode for rank, process in processes.items()}, errors


@pytest.mark.parametrize("victim", [0, 2])
def test_when_one_is_killed_the_others_say_which_and_end(victim, repo):
    """At once, while they do something else, with exit status 1 and the message as last word."""
    processes = start("while True: time.sleep(0.1)", repo=repo)
    for process in processes.values():
        assert process.stdout.readline().startswith("joined")
    processes[victim].kill()
    began = time.monotonic()
    codes, errors = ends(processes)
    assert time.monotonic() - began < 10  # at most PARTING, and an interpreter that is slow to go
    for rank in codes.keys() - {victim}:
        assert codes[rank] == peers.FAULT
        (said,) = errors[rank].splitlines()
        assert f"process {victim} of 3 has died" in said
        assert "the same command goes on from the last checkpoint" in said
    assert codes[victim] == -signal.SIGKILL


@pytest.mark.parametrize("speaker", [0, 1])
def test_what_one_has_to_say_is_said_once_and_ends_all_alike(speaker, repo):
    body = f"""
if rank == {speaker}: peers.end(2, "error: no such field")
time.sleep(60)
"""
    codes, errors = ends(start(body, repo=repo))
    assert set(codes.values()) == {2}
    said = "".join(errors.values())
    assert said.count("no such field") == 1
    assert "no such field" in errors[0]
    if speaker:
        assert f"process {speaker} of 3: error" in said
    assert "died" not in said


@pytest.mark.parametrize("disagree", [True, False])
def test_the_first_cleans_up_before_it_ends(disagree, repo, tmp_path):
    """Another's end must not overtake it on its way out: a directory would be left behind."""
    body = f"""
import contextlib, pathlib
made = pathlib.Path({str(tmp_path / "made")!r})
with contextlib.ExitStack() as undo:
    if rank == 0:
        made.mkdir()
        undo.callback(made.rmdir)
        undo.callback(time.sleep, 0.5)
    try:
        if rank == 1 and not {disagree}: raise ValueError("no such field")
        peers.agree("seeds", dict(seed=rank))
    except ValueError as error:
        peers.end(2, f"error: {{error}}")
"""
    codes, errors = ends(start(body, ranks=(0, 1), count=2, repo=repo))
    assert set(codes.values()) == {2}
    said = "seed: 0 in process 0, 1 in process 1" if disagree else "process 1 of 2: error: no such"
    assert errors[0].count(said) == 1
    assert errors[1] == ""
    assert not (tmp_path / "made").exists()


def test_an_exception_of_one_ends_all(repo):
    body = """
if rank == 1: raise KeyError("a fault of the program")
time.sleep(60)
"""
    codes, errors = ends(start(body, repo=repo))
    assert set(codes.values()) == {1}
    assert "Traceback" in errors[1]
    assert "process 1 of 3: error: KeyError: 'a fault of the program'" in errors[0]
    assert errors[2] == ""


def test_the_same_values_or_none_go_on(repo):
    body = """
peers.agree("first", {"seed": 17})
try:
    peers.agree("second", {"seed": 17, "data": "ab" if rank == 2 else "cd"})
except ValueError as error:
    peers.finish()
    sys.exit(str(error))
"""
    codes, errors = ends(start(body, repo=repo))
    assert set(codes.values()) == {1}
    for said in errors.values():
        assert "data: 'cd' in process 0, 'ab' in process 2" in said
        assert "process 1" not in said
        assert "seed" not in said


def test_who_has_finished_may_leave(repo):
    body = """
peers.finish()
if rank == 0: sys.exit(0)
time.sleep(2.5)
"""
    codes, errors = ends(start(body, repo=repo))
    assert set(codes.values()) == {0}
    assert set(errors.values()) == {""}


def test_who_is_missing_is_named_with_the_address(repo):
    both = start("", ranks=(0, 1), count=3, wait=2, repo=repo)
    codes, errors = ends(both)
    assert set(codes.values()) == {1}
    assert re.search(r"processes \[2\] did not come to 127.0.0.1:\d+ within 2 s", errors[0])
    assert re.search(r"process 0 was not found at 127.0.0.1:\d+ within 2 s", errors[1])


@pytest.mark.parametrize("other", [{"COUNT": "3"}, {"RANK": "2"}])
def test_processes_that_count_differently_are_told(other, repo):
    """One of 2 and one of 3; or a number 2 of 2, which count from 0."""
    processes = start("", ranks=(0, 1), count=2, repo=repo, other=other)
    codes, errors = ends(processes)
    assert set(codes.values()) == {1}
    for said in errors.values():
        assert "and process 0 waits for 2 with numbers of their own" in said.splitlines()[-1]


def test_strangers_do_not_count(repo):
    """A connection that says nothing, or something else, is neither a process nor a fault."""
    address = f"127.0.0.1:{peers.free_port()}"
    environment = os.environ | {"COUNT": "2", "ADDRESS": address, "WAIT": "60"}
    environment |= {"BODY": "peers.finish()"}
    run = [sys.executable, "-c", PROGRAM]
    first = subprocess.Popen(run, env=environment | {"RANK": "0"}, cwd=repo, stderr=-1, text=True)
    strangers = []
    for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"process": 1}\n', b"[]\n"):
        while True:
            try:
                strangers.append(socket.create_connection(("127.0.0.1", int(address[10:]))))
                break
            except ConnectionRefusedError:
                assert first.poll() is None
                time.sleep(0.05)
        strangers[-1].sendall(greeting)
    second = subprocess.Popen(run, env=environment | {"RANK": "1"}, cwd=repo, stderr=-1, text=True)
    codes, errors = ends({0: first, 1: second})
    for stranger in strangers:
        stranger.close()
    assert (codes, errors) == ({0: 0, 1: 0}, {0: "", 1: ""})


def test_a_relay_stays_open_when_the_far_end_closes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, process = relay.start("127.0.0.1", server.getsockname()[1])
        port = int(address.rpartition(":")[2])
        near = socket.create_connection(("127.0.0.1", port), timeout=5)
        far, _ = server.accept()
        later = socket.create_connection(("127.0.0.1", port), timeout=5)
        server.accept()[0].close()
        near.sendall(b"ping")
        assert far.recv(10) == b"ping"
        far.sendall(b"pong")
        assert near.recv(10) == b"pong"
        far.close()
    for number in (signal.SIGTERM, signal.SIGINT):  # nor when a run is asked to stop
        process.send_signal(number)
    for _ in range(3):  # nor because nobody takes what is said
        near.sendall(b"ping")
        time.sleep(0.05)
    near.settimeout(0.5)
    with pytest.raises(TimeoutError):  # nothing comes, not even an end
        near.recv(10)
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does when the process that holds it ends
    assert process.wait(5) == 0
    near.close()
    later.close()


EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "node1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[07-10]",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
}
PORT = 65535 - 2**12 + 1 + 4711 % 2**12  # JAX's choice: one of the last 4,096, by job


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        (EXPLICIT, hosts.Place("node1:1234", 3, 4)),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, None),
        (SLURM | {"SLURM_NTASKS": "1"}, None),
        (SLURM | {"JAX_NUM_PROCESSES": "1"}, None),
        (SLURM, hosts.Place(f"gpu07:{PORT}", 5, 8, (1,))),
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "a:1"}, hosts.Place("a:1", 5, 8, (1,))),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"JOB_COMPLETION_INDEX": "0"}, None),
    ],
)
def test_a_process_finds_its_place(environment, place, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)  # JAX's detection reads the process's own
    assert hosts.find_place(environment) == place


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}, (2, 3)),  # all see all
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "4"}, None),  # bound to its own
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "2"}, (1,)),
        (
            {
                "CUDA_VISIBLE_DEVICES": "0,1,2,3",
                "SLURM_GPUS_ON_NODE": "4",
                "SLURM_STEP_TASKS_PER_NODE": "1(x8)",
                "SLURM_LOCALID": "0",
            },
            None,
        ),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "JAX_LOCAL_DEVICE_IDS": "0"}, None),
    ],
)
def test_tasks_of_a_node_share_its_gpus(environment, devices, monkeypatch):
    for name, value in (SLURM | environment).items():
        monkeypatch.setenv(name, value)
    place = hosts.find_place(SLURM | environment)
    assert place is not None
    assert place.devices == devices


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAX_PROCESS_ID": "0"}, "not set: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "neither JAX_NUM_PROCESSES and JAX_PROCESS_ID"),
        (EXPLICIT | {"JAX_PROCESS_ID": "4"}, "JAX_PROCESS_ID=4: not below JAX_NUM_PROCESSES=4"),
        (EXPLICIT | {"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID=-1: not a whole number"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "node1"}, "node1: not HOST:PORT"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "node1:99999"}, "node1:99999: not HOST:PORT"),
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"}, "start it by srun"),
        ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX=2"),
        (
            SLURM | {"SLURM_GPUS_ON_NODE": "3", "CUDA_VISIBLE_DEVICES": "0,1,2"},
            "2 tasks of this node cannot share its 3 GPUs",
        ),
    ],
)
def test_half_a_place_is_refused(environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        hosts.find_place(environment)
