"""Directories and files that are there whole or not at all."""

import contextlib
import fcntl
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, called `target` once all of it is there; a fault leaves nothing.

    It is `.NAME.PROCESS.partial` beside `target`. What killed processes left there is removed: that
    nobody writes to a directory any more is known by its lock, which the kernel gives back.

    Raises:
      FileExistsError: `target` is a file, or holds something.
      OSError: it could not be written; the message names `target`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target}: exists and is not empty; it is not overwritten")
    target = target.absolute()
    made = [parent for parent in target.parents if not parent.exists()]  # the deepest first
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with contextlib.ExitStack() as lock:
        try:
            for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
                with contextlib.suppress(OSError), _locked(left):
                    shutil.rmtree(left)
            shutil.rmtree(partial, ignore_errors=True)  # where there are no locks
            partial.mkdir(parents=True)
            with contextlib.suppress(OSError):
                lock.enter_context(_locked(partial))
            yield partial
            partial.rename(target)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            with contextlib.suppress(OSError):
                for parent in made:
                    parent.rmdir()
            if isinstance(error, OSError):
                message = f"{target}: not written, and nothing left behind: {error}"
                raise OSError(message) from error
            raise


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[TextIO]:
    """A text file to write, which replaces `target` once all of it is on the disk.

    Raises OSError where it cannot be written; what was at `target` is there still.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Raises OSError if another process holds it, or the file system has no such locks."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
