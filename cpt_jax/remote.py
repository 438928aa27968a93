"""Run directories in an object store: ``--workdir=gs://BUCKET/RUN``.

Orbax writes checkpoints there itself, from every host. All other files of a run are written to a
`Spool`, a directory of this machine, and put into the store whole at each checkpoint, before it is
complete, and when the run ends: what the store holds of metrics reaches as far as its latest
checkpoint, or further. The object ``run.lock`` says who may write (`Lease`).

Nothing in the spool is worth keeping: the next start begins with a new one, filled from the store.
"""

import contextlib
import importlib.util
import json
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path, PosixPath

import fsspec
import tensorstore as ts

from cpt_jax import lock
from cpt_jax.addresses import without_keys

CHECKPOINTS = "checkpoints"
COMMITTED = "commit_success.txt"  # Orbax's: written last into what is whole
EXPORT = "export/config.json"  # of an export, sent last
BEAT = 15.0  # seconds between signs of life
PATIENCE = 60.0  # seconds without one after which an owner counts as dead
SILENCE = 300.0  # seconds that a save waits for a store that does not answer


class Spool(PosixPath):
    """A directory here that stands for a run directory in a store.

    Attributes:
      url: where that is. Paths below this one are ordinary ones, and have none.
      seen: what was fetched of it: the generation of each file, by name.
      owner: set by `own`, in the process that writes.
    """

    url: str
    seen: dict[str, bytes]
    owner: "Owner | None"


def url_of(run: Path) -> str | None:
    """Returns the URL that a run directory stands for; None for one that is what it is."""
    return getattr(run, "url", None)


def shown(run: Path) -> str:
    """Returns what a run directory is called to people: its URL, or its path."""
    return url_of(run) or str(run)


def parse(workdir: str) -> str | None:
    """Returns the URL that ``--workdir`` names, without a slash at the end; None for a path.

    Raises:
      ValueError: a store that checkpoints cannot be written to.
    """
    if "://" not in workdir:
        return None
    url = workdir.rstrip("/")
    if without_keys(workdir) != workdir:
        raise ValueError(
            f"--workdir={without_keys(workdir)}: it carries a key or password (left out here): "
            "those come from the environment"
        )
    if not re.fullmatch(r"gs://[^/]+(/[^/]+)+", url):
        raise ValueError(
            f"--workdir={workdir}: a run directory in an object store is gs://BUCKET/RUN. Orbax "
            "writes checkpoints to no other kind of store; one may be mounted as a file system"
        )
    return url


@contextlib.contextmanager
def directory(workdir: str) -> Iterator[Path]:
    """Yields the run directory that ``--workdir`` names: itself, or a spool of a URL.

    Raises:
      ValueError: a store that checkpoints cannot be written to, or not from here.
      OSError: it does not answer, or may not be read.
    """
    url = parse(workdir)
    if url is None:
        yield Path(workdir)
        return
    if importlib.util.find_spec("gcsfs") is None:
        raise ValueError(f"--workdir={workdir}: gcsfs is not installed: pip install -e '.[gs]'")
    with tempfile.TemporaryDirectory(prefix="cpt_jax.") as folder:
        spool = Spool(folder, url.replace("://", "/"))  # what names it shows the run's name
        spool.url, spool.seen, spool.owner = url, {}, None
        spool.mkdir(parents=True)
        with _answering(url):
            _fetch(spool)
        yield spool


def saved_steps(url: str, items: Sequence[str]) -> list[int]:
    """Returns the steps of the complete checkpoints of a run in a store, in order.

    Raises:
      OSError: it does not answer, or may not be read.
    """
    with _answering(url):
        names = set(_names(f"{url}/{CHECKPOINTS}"))
    steps = {name.split("/")[0] for name in names}
    parts = ["", *(f"{item}/" for item in items)]
    return sorted(
        int(step)
        for step in steps
        if step.isdecimal() and all(f"{step}/{part}{COMMITTED}" in names for part in parts)
    )


def own(run: Path) -> "Owner | lock.Lock":
    """Takes possession of a run directory, until ``release``.

    Raises:
      BlockingIOError: another process owns it; says which, where and since when.
      OSError: it cannot be written, or the store does not answer.
    """
    if not isinstance(run, Spool):
        return lock.Lock(run)
    run.owner = Owner(run)
    return run.owner


def upload(run: Path) -> None:
    """Sends what changed in a spool that this process owns; does nothing for other directories."""
    if isinstance(run, Spool) and run.owner:
        run.owner.upload()


class Owner:
    """The right to write a run directory in a store, and the files of it that go there.

    Raises:
      BlockingIOError: another process has it; says which, where and since when.
      OSError: the store does not answer, or may not be written.
    """

    def __init__(self, spool: Spool):
        self._spool, self._url = spool, spool.url
        with _answering(self._url):
            self._store = _open(self._url)
            self._lease = Lease(self._store, self._url, beat=BEAT, patience=PATIENCE)
            _fetch(spool)  # the owner before may have written until a moment ago
        self._sent = _stamps(spool)

    def upload(self) -> None:
        """Puts the files that changed into the store, each whole.

        Raises:
          OSError: another process has taken the run over, or the store cannot be written.
        """
        self._lease.check()
        stamps = _stamps(self._spool)
        changed = [name for name in stamps if stamps[name] != self._sent.get(name)]
        with _answering(self._url):
            for name in sorted(changed, key=lambda name: name == EXPORT):
                self._store.write(name, (self._spool / name).read_bytes()).result()
                self._sent[name] = stamps[name]

    def release(self) -> None:
        """Sends what is left, and gives the directory back."""
        try:
            self.upload()
        finally:
            with _answering(self._url):
                self._lease.release()


class Lease:
    """Holds the object ``run.lock``, and shows by rewriting it that its holder lives.

    Each write demands the generation of the one before: of two processes that write at once, one
    is told that it came too late. A holder that has been silent for ``patience`` seconds is dead:
    another takes its place, and should it wake up, its next sign of life fails and it stops. No
    clock is compared with another machine's.
    """

    def __init__(self, store: ts.KvStore, url: str, *, beat: float, patience: float):
        self._store, self._url, self._beat, self._patience = store, url, beat, patience
        self._token = uuid.uuid4().hex
        self._beats = 0
        self._lost: str | None = None
        self._generation = self._acquire()
        self._last = time.monotonic()  # when it was seen to be ours
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run.lock", daemon=True)
        self._thread.start()

    def _acquire(self) -> bytes:
        seen, since = None, time.monotonic()
        while True:
            found = self._store.read(lock.NAME).result()
            held = found.state != "missing"
            if held and seen not in (None, found.stamp.generation):
                raise BlockingIOError(
                    f"{self._url} is in use by {lock.describe(found.value)}. One process trains a "
                    "run: wait for that one, stop it (on SIGTERM it saves first), or name another "
                    "--workdir"
                )
            if held and seen is None:
                seen, since = found.stamp.generation, time.monotonic()
                lock.say(
                    f"{self._url} was in use by {lock.describe(found.value)}: waiting up to "
                    f"{self._patience:.0f} s for a sign of it"
                )
            if (not held or time.monotonic() - since >= self._patience) and (
                generation := self._write(found.stamp.generation)
            ):
                return generation
            time.sleep(min(1.0, self._beat / 4))

    def _write(self, expected: bytes) -> bytes | None:
        """Returns the new generation, or None if another process wrote first."""
        self._beats += 1
        content = json.dumps({**lock.signature(), "token": self._token, "beats": self._beats})
        written = self._store.write(lock.NAME, content, if_equal=expected).result()
        if written.generation:
            return written.generation
        # An answer may have been lost, and the write asked for again after it had succeeded.
        found = self._store.read(lock.NAME).result()
        return found.stamp.generation if self._token.encode() in found.value else None

    def _keep(self) -> None:
        while not self._ended.wait(self._beat):
            asked = time.monotonic()
            try:
                generation = self._write(self._generation)
            except Exception:  # a network that is gone for a while: `check` sees the silence
                continue
            if generation is None:
                self._lost = f"{self._url}: another process has taken it over; nothing more is sent"
                lock.say(self._lost)
                return
            self._generation, self._last = generation, asked

    def check(self) -> None:
        """Returns while the directory is this process's; after a silence, once that is known.

        Raises:
          OSError: it is not, or that cannot be found out for minutes.
        """
        waits = time.monotonic()
        while not self._lost and time.monotonic() - self._last > self._patience / 2:
            if time.monotonic() - waits > SILENCE:
                raise OSError(f"{self._url}: {lock.NAME} could not be written for {SILENCE:.0f} s")
            time.sleep(self._beat / 4)
        if self._lost:
            raise OSError(self._lost)

    def release(self) -> None:
        """Takes the object away, if it is still this process's."""
        self._ended.set()
        self._thread.join()
        self._store.write(lock.NAME, None, if_equal=self._generation).result()


def _open(url: str) -> ts.KvStore:
    return ts.KvStore.open(f"{url}/").result()


def _names(url: str) -> list[str]:
    """Returns the names of all objects below a URL, relative to it.

    Not by TensorStore's `list`, which takes a store that refuses for one that is empty (0.1.86).
    """
    store = fsspec.filesystem("gs")
    store.invalidate_cache()  # it remembers listings, and others write
    start = f"{url.removeprefix('gs://')}/"
    return [str(name).removeprefix(start) for name in store.find(start)]


def _fetch(spool: Spool) -> None:
    """Brings a spool up to what the store has of a run, but for checkpoints and half an export."""
    store, names = _open(spool.url), _names(spool.url)
    for name in names:
        outside = name.startswith(f"{CHECKPOINTS}/") or name.endswith("/")
        if outside or (name.startswith("export/") and EXPORT not in names):
            continue
        found = store.read(name, if_not_equal=spool.seen.get(name)).result()
        if found.state == "value":  # another than the one fetched before
            file = spool / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(found.value)
            spool.seen[name] = found.stamp.generation


def _stamps(spool: Path) -> dict[str, tuple[int, int]]:
    """Returns size and time of every file of a run, by its name in the store, in order."""
    found = {}
    for folder, _, files in os.walk(spool):
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(Path(spool)).as_posix()
            if path.suffix not in (".tmp", ".new") and ".partial/" not in name:
                stat = path.stat()
                found[name] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(found.items()))


@contextlib.contextmanager
def _answering(url: str) -> Iterator[None]:
    """Turns what a store says into OSError."""
    try:
        yield
    except BlockingIOError:  # it did: that another process has the run
        raise
    except Exception as error:  # TensorStore's are ValueErrors, gcsfs' of many kinds
        raise OSError(
            f"{url}: {_first_line(error)}\nWhat was written before is whole: the same command goes "
            "on from there once the store may be read and written"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
