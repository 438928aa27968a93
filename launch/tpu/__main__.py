"""Trains a run on a TPU slice of its own, and asks for another one when it is preempted.

  python -m launch.tpu --config=configs/fr_large.py --workdir=gs://BUCKET/fr_large \\
    --zone=us-west4-a --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot

Asks for a queued resource and waits for it, copies the commit that is checked out to its workers,
trains, and gives the slice back at the end. It runs for as long as the run does: start it where it
can (tmux). The same command goes on with the slice that an interrupted one left.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launch import submission

REPO = Path(__file__).parents[2]
ARCHIVE, STATUS = "cpt_jax.tar.gz", "cpt_jax.status"
WAITING = {"ACCEPTED", "CREATING", "PROVISIONING", "WAITING_FOR_RESOURCES"}
GONE = {"FAILED", "SUSPENDED", "SUSPENDING", "DELETING"}  # preempted, or never came
POLL = 30  # seconds between questions
REFUSED, NOT_FINITE, STOPPED = 2, 3, 143  # of cpt_jax.main


class Slice:
    """The gcloud commands about one queued resource and its only node."""

    def __init__(self, options: argparse.Namespace):
        self.name, self._options = options.name, options
        self._where = [f"--zone={options.zone}"]
        if options.project:
            self._where.append(f"--project={options.project}")

    def create(self) -> list[str]:
        """Asks for it; returns at once."""
        options = self._options
        return self._command(
            "create",
            self.name,
            f"--node-id={self.name}",
            f"--accelerator-type={options.accelerator_type}",
            f"--runtime-version={options.runtime_version}",
            *(["--spot"] if options.spot else []),
            *([f"--service-account={options.service_account}"] if options.service_account else []),
            "--async",
        )

    def state(self) -> list[str]:
        """Prints its state; fails where there is none."""
        return self._command("describe", self.name, "--format=value(state.state)")

    def delete(self) -> list[str]:
        """Gives it back, its node too."""
        return self._command("delete", self.name, "--force", "--quiet")

    def copy(self, *files: Path) -> list[str]:
        """Copies files to the home of every worker."""
        to = f"{self.name}:"
        return self._command("scp", *map(str, files), to, "--worker=all", "--node=all")

    def ssh(self, words: list[str], worker: str = "all") -> list[str]:
        """Runs a command on workers. ssh hands it to a shell there: it is quoted for that one."""
        return self._command(
            "ssh", self.name, f"--worker={worker}", "--node=all", f"--command={shlex.join(words)}"
        )

    def _command(self, verb: str, *words: str) -> list[str]:
        return ["gcloud", "compute", "tpus", "queued-resources", verb, *words, *self._where]


def train(tpu: Slice, command: list[str], secrets: list[str], *, poll: float = POLL) -> int:
    """Trains on slices, one after the other, until the run has ended; returns its exit code."""
    while True:
        _obtain(tpu, poll)
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / ARCHIVE
            subprocess.run(_archive(archive), check=True)
            copied = subprocess.run(tpu.copy(archive, _worker_script())).returncode == 0
        if copied:
            subprocess.run(tpu.ssh(_on_worker(command, secrets)))
        code = _status(tpu) if copied else None
        state = _state(tpu)
        if state == "ACTIVE" and code not in (None, STOPPED):
            said = {0: "finished", REFUSED: "refused", NOT_FINITE: "not finite"}
            print(f"{tpu.name}: {said.get(code, 'failed')} (exit code {code})", file=sys.stderr)
            return code
        print(f"{tpu.name}: {state or 'gone'}, exit code {code}: going on", file=sys.stderr)
        time.sleep(poll)


def _obtain(tpu: Slice, poll: float) -> None:
    """Returns once the slice is there, asking for it anew whenever it is gone."""
    while (state := _state(tpu)) != "ACTIVE":
        if state is None:
            subprocess.run(tpu.create(), check=True)
        elif state in GONE:
            subprocess.run(tpu.delete(), check=True)
            continue
        elif state not in WAITING:
            raise ValueError(f"{tpu.name}: state {state} of the queued resource is not known here")
        time.sleep(poll)


def _state(tpu: Slice) -> str | None:
    done = subprocess.run(tpu.state(), stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def _status(tpu: Slice) -> int | None:
    """Returns the exit code that the first worker left, or None where it left none."""
    asked = tpu.ssh(["cat", STATUS], worker="0")
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True)
    found = re.search(r"^\d+$", done.stdout, re.MULTILINE)
    return int(found[0]) if found else None


def _archive(to: Path) -> list[str]:
    return ["git", "-C", str(REPO), "archive", "--format=tar.gz", f"--output={to}", "HEAD"]


def _worker_script() -> Path:
    return Path(__file__).with_name("worker.sh")


def _on_worker(command: list[str], secrets: list[str]) -> list[str]:
    return ["bash", "worker.sh", ARCHIVE, *secrets, "--", *command]


def _secret(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*=[\w-]+", text):
        # The text itself is not repeated: it may be the secret.
        raise argparse.ArgumentTypeError("expected VARIABLE=SECRET, a name of the Secret Manager")
    return text


def _parser() -> argparse.ArgumentParser:
    made = submission.parser("tpu", __doc__)
    made.add_argument("--zone", required=True)
    made.add_argument("--project", help="(default: gcloud's)")
    made.add_argument("--accelerator-type", required=True, help="such as v5litepod-16")
    made.add_argument("--runtime-version", required=True, help="such as v2-alpha-tpuv5-lite")
    made.add_argument("--spot", action="store_true", help="cheaper, and preempted at any time")
    made.add_argument("--service-account", help="of the workers, for access to the object store")
    made.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="DIR",
        help="a shared file system that the workers have mounted; may be repeated",
    )
    made.add_argument(
        "--secret",
        type=_secret,
        action="append",
        default=[],
        metavar="VARIABLE=SECRET",
        help="a variable from the Secret Manager; may be repeated",
    )
    made.add_argument("--keep", action="store_true", help="do not give the slice back at the end")
    return made


def _submit(options: argparse.Namespace, words: list[str]) -> int:
    submission.check_far_workdir(options.mount)
    tpu, command = Slice(options), submission.train("python", options, words)
    if options.dry_run:
        archive = Path(ARCHIVE)
        for step in (
            tpu.create(),
            tpu.state(),
            _archive(archive),
            tpu.copy(archive, _worker_script()),
            tpu.ssh(_on_worker(command, options.secret)),
            *([] if options.keep else [tpu.delete()]),
        ):
            print(shlex.join(step))
        return 0
    code = train(tpu, command, options.secret)
    if not options.keep:
        subprocess.run(tpu.delete(), check=True)
    return code


if __name__ == "__main__":
    submission.run(_parser(), _submit)
