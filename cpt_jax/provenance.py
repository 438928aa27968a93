"""Where a run comes from: what was typed, which code ran, which weights it began with.

Every start of a run appends a line to ``WORKDIR/starts.jsonl``; ``config.json`` says what the run
is, these lines how it came about. Nothing of the environment is recorded, and no host name.
"""

import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cpt_jax import checkpoint
from cpt_jax.addresses import without_keys
from cpt_jax.data.sources import sha256
from cpt_jax.model import hub

STARTS = "starts.jsonl"
WEIGHTS = "*.safetensors"


def record_start(
    workdir: Path, init: dict[str, Any], *, step: int, argv: Sequence[str] = ()
) -> None:
    """Appends what is to be known of a start of the run in ``workdir``.

    Args:
      workdir: the run directory.
      init: ``describe_init`` of a run that begins; empty for one that goes on.
      step: where it starts from.
      argv: the command, default this process's; URLs in it are recorded without their keys.
    """
    line = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "step": step,
        "argv": [without_keys(word) for word in argv or sys.argv],
        "code": describe_code(),
        "versions": {p: importlib.metadata.version(p) for p in checkpoint.PACKAGES},
        **({"init": init} if init else {}),
    }
    path = workdir / STARTS
    written = path.read_bytes() if path.exists() else b""
    with path.open("ab") as file:
        file.truncate(written.rfind(b"\n") + 1)  # a last line that a crash tore
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_starts(workdir: Path) -> list[dict[str, Any]]:
    """Returns the starts of a run in order; none for a run older than this record.

    A last line that a crash tore is left out.

    Raises:
      ValueError: another line is not JSON, or not a start; names the file and the line.
    """
    path = workdir / STARTS
    if not path.is_file():
        return []
    *whole, _torn = path.read_bytes().split(b"\n")
    starts = []
    for number, line in enumerate(whole, 1):
        try:
            start = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(start, dict) or not isinstance(start.get("code", {}), dict):
            raise ValueError(f"{path}:{number}: not what a run writes of its start: delete it")
        starts.append(start)
    return starts


def describe_code() -> dict[str, Any]:
    """Returns the commit of the checkout that runs, and whether files of it were changed since.

    Empty for an installed package, whose version says what it is.
    """
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return {}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(changed)}
    except (OSError, subprocess.CalledProcessError):  # no git here, or not ours to read
        return {}


def describe_init(source: str) -> dict[str, Any]:
    """Returns what identifies the weights that ``config.init.source`` names, as JSON types.

    For a model the sha256 of its weight files, and the commit of one from the Hub; for a
    checkpoint its run, its step, and the sha256 of the run's ``config.json``.
    """
    if source == "scratch":
        return {"source": source}
    if checkpoint.names_checkpoint(source):
        run, step = checkpoint.find_checkpoint(source)
        return {"run": str(run), "step": step, "config_sha256": sha256(run / "config.json")}
    directory = hub.resolve(source)
    files = {file.name: sha256(file) for file in sorted(directory.glob(WEIGHTS))}
    fetched = directory.parent.name == "snapshots" and not Path(source).exists()
    commit = {"commit": directory.name} if fetched else {}
    return {"source": source, **commit, "sha256": files}
