"""The processes of one run end together.

Each process keeps a connection to process 0. However a process ends, the kernel closes its
connections: process 0 knows at once which one it was, tells the others, and all end with a message
and exit status 1 (`FAULT`). A machine that vanishes without a word is missed by TCP's keepalive, in
half a minute. What a process itself has to say before it ends (bad input, a full disk) travels the
same way: process 0 says it once, and all end with the same exit status.

JAX has a service for this, and its client ends its process with a C++ stack trace as soon as the
connection to process 0 breaks, or after a heartbeat is missed; its callback for that case cannot be
used from Python (std::bad_cast, up to jax 0.10.2 at least). So the heartbeat is left long, and the
connection goes through a relay that stays open when process 0 is gone (`cpt_jax.relay`).

Without `connect` a process is alone, and everything here is plain printing and exiting.
"""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NoReturn

FAULT = 1  # exit status where a process has died
IDLE, INTERVAL, PROBES = 10, 5, 4  # seconds, seconds, number: a dead machine is missed after 30 s
PARTING = 5.0  # seconds in which the others are to have heard why a run ends
GRACE = 2.0  # seconds in which one part of a process may learn from another why it ends
FINISH = "finish"  # where the processes meet last

_link: "Link | None" = None


def connect(address: str, process: int, processes: int, timeout: float) -> "Link":
    """Joins the processes of a run, and waits until all have come.

    Args:
      address: ``HOST:PORT`` at which process 0 waits for the others.
      process: this process's number, from 0.
      processes: how many there are.
      timeout: seconds to wait for the others.

    Raises:
      TimeoutError: some did not come; names the address that was tried, and which are missing.
      OSError: process 0 cannot listen at the address.
      ValueError: processes that disagree on how many there are, or two of one number.
    """
    global _link
    _link = Link(address, process, processes, timeout)
    return _link


def agree(what: str, values: Mapping[str, Any]) -> None:
    """Waits until all processes have come here, and makes sure that they hold the same values.

    Args:
      what: names the place; all processes come to the same places in the same order.
      values: of JSON types; compared by name.

    Raises:
      ValueError: in all processes, with the same message: which values differ, and where.
    """
    if _link is not None:
        _link.agree(what, values)


def finish() -> None:
    """Waits until all processes have come to their end; from here on one may leave."""
    agree(FINISH, {})


class Ending(SystemExit):
    """A process is about to end, and the others with it: `together` tells them why."""

    def __init__(self, code: int, message: str):
        super().__init__(code)
        self.message = message


def end(code: int, message: str) -> NoReturn:
    """Leaves the program; all processes of the run end, and the message is said once."""
    if _link is not None:
        raise Ending(code, message)  # what is to be cleaned up on the way is
    print(message, file=sys.stderr)
    sys.exit(code)


def free_port() -> int:
    """Returns a TCP port of this machine that nothing listens at."""
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


class Link:
    """The connections of one process to the others; made by `connect`.

    Attributes:
      process: this process's number.
      processes: how many there are.
      host: where process 0 is.
      port: for JAX's own service on that host.
      finished: whether all have come to their end.
      relay: the process that JAX's own connection leads through, if it does.
    """

    def __init__(self, address: str, process: int, processes: int, timeout: float):
        self.process, self.processes, self._address = process, processes, address
        self.host, _, port = address.rpartition(":")
        self.finished = False
        self.relay: subprocess.Popen | None = None
        self._ending = threading.Lock()  # held by the thread that ends the process
        self._peers: dict[int, _Peer] = {}
        deadline = time.monotonic() + timeout
        if process == 0:
            self.port = self._receive_all(int(port), deadline, timeout)
            self._tell({"port": self.port})
        else:
            self.port = self._report_to_first(int(port), deadline, timeout)
        for peer in self._peers.values():
            _daemon(self._listen, peer)

    def agree(self, what: str, values: Mapping[str, Any]) -> None:
        """See the function of this name."""
        mine = {"what": what, "values": json.loads(json.dumps(values))}
        if self.process:
            self._peers[0].send(mine)
            verdict = self._peers[0].inbox.get()["verdict"]
        else:
            theirs = {peer.process: peer.inbox.get() for peer in self._peers.values()}
            for other in theirs.values():
                if "end" in other:
                    raise Ending(other["end"], other["message"])
            verdict = _differences(mine, dict(sorted(theirs.items())))
            self.finished |= what == FINISH
            self._tell({"verdict": verdict, "finished": self.finished})
        if verdict:
            raise ValueError(verdict)

    def hear(self) -> None:
        """Waits a moment: what fails here may fail because another process is gone.

        Then the thread that learns of it ends this process with the reason.
        """
        time.sleep(GRACE)

    def end(self, code: int, message: str, heard: bool = False) -> NoReturn:
        """See the function of this name; ``heard`` if `hear` was called for what has failed."""
        if code == FAULT and not heard:
            self.hear()
        if self.process == 0:
            self._end_all(code, message)
        with contextlib.suppress(OSError):
            self._peers[0].send({"end": code, "message": message})
        time.sleep(2 * PARTING)  # process 0 answers all, and `_listen` ends this process
        _say(message)
        _exit(code)

    def _receive_all(self, port: int, deadline: float, timeout: float) -> int:
        """Waits for the others to come to a port, and returns another one that is free."""
        with _listener(self.host, port) as listener:
            while len(self._peers) < self.processes - 1:
                listener.settimeout(max(deadline - time.monotonic(), 0.01))
                try:
                    peer = _Peer(listener.accept()[0])
                    hello = peer.receive(5.0)
                    number, count = int(hello["process"]), int(hello["processes"])
                except TimeoutError:
                    if time.monotonic() < deadline:
                        continue  # a connection that says nothing is not of ours
                    missing = sorted(set(range(1, self.processes)) - self._peers.keys())
                    raise TimeoutError(
                        f"process 0 of {self.processes}: processes {missing} did not come to "
                        f"{self._address} within {timeout:g} s. Their own logs say why; "
                        "CPT_JAX_START_TIMEOUT is the time to wait, in seconds"
                    ) from None
                except (ValueError, KeyError, TypeError, OSError):
                    continue
                taken = number in self._peers or not 0 < number < count
                self._peers[len(self._peers) + 1 if taken else number] = peer
                if taken or count != self.processes:
                    fault = (
                        f"a process came to {self._address} as number {number} of {count}, and "
                        f"process 0 waits for {self.processes} with numbers of their own: "
                        "JAX_PROCESS_ID or JAX_NUM_PROCESSES is wrong on one host, or two runs "
                        "have the same address"
                    )
                    self._tell({"fault": fault})
                    raise ValueError(fault)
                peer.process = number
            return free_port()

    def _report_to_first(self, port: int, deadline: float, timeout: float) -> int:
        """Connects to process 0, and returns the port of JAX's service there, once all have."""
        problem: object = "no answer"
        while time.monotonic() < deadline:
            left = deadline - time.monotonic()
            try:
                peer = _Peer(socket.create_connection((self.host, port), timeout=min(5, left)))
                peer.send({"process": self.process, "processes": self.processes})
                # It answers once all have come, and gives up before we do, having begun earlier.
                welcome = peer.receive(left + PARTING)
            except (OSError, ValueError) as error:
                problem = error
                time.sleep(min(0.3, max(left, 0)))
                continue
            if "fault" in welcome:
                raise ValueError(welcome["fault"])
            peer.process = 0
            self._peers[0] = peer
            return welcome["port"]
        raise TimeoutError(
            f"process {self.process} of {self.processes}: process 0 was not found at "
            f"{self._address} within {timeout:g} s ({problem}). Its own log says why, unless the "
            "address is wrong or a firewall is between; CPT_JAX_START_TIMEOUT is the time to "
            "wait, in seconds"
        )

    def _listen(self, peer: "_Peer") -> None:
        """Reads what another process sends, until its connection is closed."""
        with contextlib.suppress(OSError, ValueError):
            for line in peer.file:
                message = json.loads(line)
                if "end" in message and self.process == 0:
                    whose = f"process {peer.process} of {self.processes}: "
                    text = message["message"] and whose + message["message"]
                    peer.inbox.put({"end": message["end"], "message": text})
                    _daemon(self._end_soon, message["end"], text)
                elif "end" in message:
                    self._exit_once(message["end"], message["message"])
                else:
                    self.finished |= message.get("finished", False)
                    peer.inbox.put(message)
        peer.gone.set()
        if self.finished:
            return
        died = (
            f"error: process {peer.process} of {self.processes} has died: its connection to "
            f"process {self.process} closed. The others end with it; the same command goes on "
            "from the last checkpoint"
        )
        if self.process == 0:
            self._end_all(FAULT, died, heard=died)
        self._exit_once(FAULT, died)

    def _end_soon(self, code: int, message: str) -> NoReturn:
        """Ends all, unless the main thread does: where it waits for the others it cleans up."""
        time.sleep(GRACE)
        self._end_all(code, message)

    def _end_all(self, code: int, message: str, heard: str = "") -> NoReturn:
        """Ends this process, the first, when the others have heard of it.

        ``message`` is what this process says, ``heard`` what the others say.
        """
        self._only_once()
        self._tell({"end": code, "message": heard})
        deadline = time.monotonic() + PARTING
        for peer in self._peers.values():
            peer.gone.wait(max(0, deadline - time.monotonic()))
        _say(message)
        _exit(code)

    def _exit_once(self, code: int, message: str) -> NoReturn:
        self._only_once()
        _say(message)
        _exit(code)

    def _only_once(self) -> None:
        """Returns to the first thread that comes here; the others wait for the end."""
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()

    def _tell(self, message: Mapping[str, Any]) -> None:
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # it is gone: `_listen` knows
                peer.send(message)


class _Peer:
    """A connection to another process: one JSON object a line, both ways."""

    def __init__(self, connection: socket.socket):
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (IDLE + INTERVAL * PROBES)),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        ):
            connection.setsockopt(level, option, value)
        self.process = -1  # known once it has said so
        self.inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.gone = threading.Event()
        self._connection = connection
        self.file: BinaryIO = connection.makefile("rb")

    def send(self, message: Mapping[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float) -> dict[str, Any]:
        """Returns the next message, before the reading thread has started."""
        self._connection.settimeout(timeout)
        line = self.file.readline(10_000)
        if not line.endswith(b"\n"):
            raise ConnectionError("it closed the connection")
        self._connection.settimeout(None)
        return json.loads(line)


def _differences(mine: Mapping[str, Any], theirs: Mapping[int, Mapping[str, Any]]) -> str:
    """Returns what differs between process 0 and the others, in one message; empty if nothing."""
    lines = []
    for process, other in theirs.items():
        if other["what"] != mine["what"]:
            return f"process 0 is at {mine['what']!r} and process {process} at {other['what']!r}"
        names = sorted(mine["values"].keys() | other["values"].keys())
        for name in names:
            ours, its = mine["values"].get(name), other["values"].get(name)
            if ours != its:
                lines.append(f"{name}: {ours!r} in process 0, {its!r} in process {process}")
    return "the processes of this run differ:\n  " + "\n  ".join(lines) if lines else ""


def _listener(host: str, port: int) -> socket.socket:
    """Returns a socket that process 0 hears the others at: on this machine only, or at large."""
    with contextlib.suppress(OSError):
        if socket.gethostbyname(host).startswith("127."):
            return socket.create_server((host, port), backlog=1024)
    with contextlib.suppress(OSError):
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
        )
    try:
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise OSError(f"process 0 cannot listen at port {port}: {error.strerror}") from error


def _daemon(target: Any, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def _say(message: str) -> None:
    """Writes a last message; not by print, as another thread may be within one."""
    if message:
        os.write(2, f"{message}\n".encode())


def _exit(code: int) -> NoReturn:
    """Ends the process now: no waiting for the others in JAX's shutdown, none for its threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Within it, a process that ends by an exception or an exit ends the others too."""
    try:
        yield
    except SystemExit as leaving:
        if _link is None:
            raise
        code, said = leaving.code or 0, getattr(leaving, "message", "")
        if not isinstance(code, int):  # as Python has it: a message
            code, said = FAULT, str(code)
        if _link.finished:  # all is written: JAX would wait for the others once more, and C++
            _say(said)  # threads that the interpreter's end finds at work may abort it
            _exit(code)
        _link.end(code, said)
    except BaseException as error:
        if _link is None:
            raise
        _link.hear()
        sys.excepthook(type(error), error, error.__traceback__)
        _link.end(FAULT, f"error: {type(error).__name__}: {error}", heard=True)
