"""Passes TCP connections on to ``HOST:PORT``, and keeps them open when that end closes.

Whoever speaks through it hears nothing more then, instead of an error. It is a process of its own,
as JAX holds Python's lock while it waits for what passes here; and it ends with the one that
started it, however that ends.
"""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any


def start(host: str, port: int) -> tuple[str, subprocess.Popen]:
    """Returns a local address that leads to ``HOST:PORT``, and the process behind it.

    It runs for as long as its standard input is open.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-S", __file__, host, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        return f"127.0.0.1:{int(said.readline())}", process


def _main(host: str, port: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # meant for the run, which has yet to save
        signal.signal(number, signal.SIG_IGN)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    _daemon(_serve, listener, host, port)
    sys.stdin.read()


def _serve(listener: socket.socket, host: str, port: int) -> None:
    kept = []  # a socket that nobody holds is closed
    while True:
        near, _ = listener.accept()
        far = None
        while far is None:  # it may not listen yet
            try:
                far = socket.create_connection((host, port), timeout=5)
            except OSError:
                time.sleep(0.1)
        far.settimeout(None)
        kept.append((near, far))
        _daemon(_pump, far, near)
        _daemon(_pump, near, far)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)


def _daemon(target: Any, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
