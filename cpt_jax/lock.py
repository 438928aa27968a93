"""One process writes a run directory at a time.

The owner holds ``fcntl.flock`` on ``WORKDIR/run.lock``. The kernel gives the lock back when the
process ends, however it ends, so a file left behind by ``kill -9`` is in nobody's way. Linux
carries the lock to other hosts over NFS (4, or 3 with its lock daemon) and over Lustre mounted with
``flock``; object stores have no locks, and there the start says so.
"""

import contextlib
import datetime
import fcntl
import json
import os
import socket
import sys
from pathlib import Path
from typing import IO, Any, TextIO

NAME = "run.lock"


class Lock:
    """Makes a run directory where there is none, and owns it until ``release``.

    Raises:
      BlockingIOError: another process owns it; says which, where and since when.
      OSError: the directory cannot be made or written.
    """

    def __init__(self, workdir: Path):
        self._file = workdir.absolute() / NAME
        above = [self._file.parent, *self._file.parent.parents]
        self._made = [directory for directory in above if not directory.exists()]
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            self._descriptor = self._acquire()
            self._sign()
        except BlockingIOError:
            raise
        except OSError as error:
            reason = error.strerror or error
            raise OSError(
                f"{workdir}: cannot be written ({reason}). A run needs a directory of its own that "
                "it may write: name another --workdir or change its permissions"
            ) from error

    def _sign(self) -> None:
        """Writes who the owner is, for others to read."""
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, json.dumps(signature()).encode())

    def _acquire(self) -> int:
        while True:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = describe(os.read(descriptor, 1000))
                os.close(descriptor)
                raise BlockingIOError(
                    f"{self._file.parent} is in use by {owner}. One process trains a run: wait for "
                    "that one, stop it (on SIGTERM it saves first), or name another --workdir"
                ) from None
            except OSError as error:
                say(
                    f"warning: {self._file.parent} is on a file system without locks "
                    f"({error.strerror}): make sure that no other process trains this run"
                )
            # The owner before may have taken the file away after we opened it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self._file.stat()):
                    return descriptor
            os.close(descriptor)

    def release(self) -> None:
        """Gives the directory back, and takes it away again if nothing came of it."""
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)
        for directory in self._made:
            try:
                directory.rmdir()
            except OSError:  # something came of it
                break


def signature() -> dict[str, Any]:
    """Returns who this process is, for others to read."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def describe(written: bytes) -> str:
    """Returns who wrote a ``signature``, in words."""
    try:
        owner = json.loads(written)
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except ValueError:  # it has the lock and has not written yet
        return "another process"


def say(text: str, to: TextIO | None = None) -> None:
    """Writes a line for whoever watches, to standard error or ``to``; or not, if nobody can read.

    A run outlives its readers: Ctrl-C ends the ``tee`` of ``2>&1 | tee log`` before it has saved.
    """
    stream = to or sys.stderr
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        silence(stream)
    except OSError:  # a log on a full disk
        pass


def tell(text: str) -> None:
    """Prints to standard output; or not, if nobody reads it any more (``| head -1``)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: IO[Any]) -> None:
    """Sends all that is written to a stream from now on nowhere, as nobody reads it any more.

    What it keeps back would fail again at the end of the program.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
