"""Several processes on this machine, as on several hosts: for tests, and to try things.

``python -m launch.local -n 2 -- python -m cpt_jax.main --config=... --workdir=...``

Each line they write is shown with the number of its process before it. SIGTERM and Ctrl-C go to
all of them. When one fails, which and how is said, the others get a minute to end by themselves,
and the exit status is that of the first that failed: 128 and the signal's number where a signal
ended it, as shells report it.
"""

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from cpt_jax import lock, peers

_SAYING = threading.Lock()
PATIENCE = 60.0  # seconds for the others to end, once one has failed
MOST = 256  # processes of one machine: each keeps a pipe open, and JAX's memory


def environment(process: int, processes: int, port: int, devices: int) -> dict[str, str]:
    """Returns what tells a process which of how many it is, and which devices are its own."""
    first = process * devices
    return {
        **os.environ,
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(processes),
        "JAX_PROCESS_ID": str(process),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(first, first + devices))),  # GPUs
        "PYTHONUNBUFFERED": "1",
    }


def say(line: str | bytes, sink: IO[bytes] | None = None) -> None:
    """Writes a line, whole, to standard error or elsewhere."""
    where: IO[bytes] = sys.stderr.buffer if sink is None else sink
    with _SAYING:
        try:
            where.write((line if isinstance(line, bytes) else line.encode()) + b"\n")
            where.flush()
        except OSError:  # nobody reads it (`| head`): all goes on, unheard
            lock.silence(where)


def show(source: IO[bytes], process: int, sink: IO[bytes]) -> None:
    """Passes lines on until there are no more."""
    for line in source:
        say(b"[%d] %s" % (process, line.rstrip(b"\n")), sink)


def wait(children: Sequence[subprocess.Popen]) -> int:
    """Waits for all processes to end; returns the exit status of the first that failed."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def watch(process: int) -> None:
        children[process].wait()
        ended.put(process)

    for process in range(len(children)):
        threading.Thread(target=watch, args=(process,), daemon=True).start()
    running, failure, patience = set(range(len(children))), 0, None
    while running:
        try:
            process = ended.get(timeout=patience)
        except queue.Empty:
            for process in running:
                say(f"process {process} does not end: killed")
                children[process].kill()
            patience = None
            continue
        running.remove(process)
        status = children[process].returncode
        if status and not failure:
            how = f"ended with exit status {status}"
            if status < 0:
                known = -status in [*signal.Signals]  # those in real time have no name
                name = signal.Signals(-status).name if known else f"signal {-status}"
                how = f"was ended by {name}"
            say(f"process {process} of {len(children)} {how}")
            failure, patience = status if status > 0 else 128 - status, PATIENCE
    return failure


def main() -> int:
    """Starts the processes, and waits for them."""
    parser = argparse.ArgumentParser(prog="python -m launch.local", description=__doc__)
    parser.add_argument("-n", type=int, required=True, metavar="N", help="processes")
    parser.add_argument(
        "--devices-per-process", type=int, default=1, metavar="K", help="of the CPU, or GPUs"
    )
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="what each of them runs")
    given = parser.parse_args()
    if not 1 <= given.n <= MOST or given.devices_per_process < 1:
        parser.error(f"-n is from 1 to {MOST}, and --devices-per-process at least 1")
    if shutil.which(given.command[0]) is None:
        parser.exit(127, f"error: {given.command[0]}: no such command\n")
    port = peers.free_port()
    children, readers = [], []

    def forward(number: int, _) -> None:
        for child in children:
            child.send_signal(number)  # does nothing to one that has ended

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    for process in range(given.n):
        child = subprocess.Popen(
            given.command,
            env=environment(process, given.n, port, given.devices_per_process),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C of the terminal comes to them through us, once
        )
        children.append(child)
        for source, sink in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            assert source is not None
            reader = threading.Thread(target=show, args=(source, process, sink.buffer))
            reader.start()
            readers.append(reader)
    code = wait(children)
    for reader in readers:
        reader.join()
    return code


if __name__ == "__main__":
    sys.exit(main())
