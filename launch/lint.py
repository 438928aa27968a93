"""Checks the launchers' scripts and manifests, as they lie here and as they are submitted.

Scripts and rendered command lines go through shellcheck; JobSets through the schema beside the
template, and the Jobs within them through Kubernetes' own. Nothing is submitted, no network needed.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

HERE = Path(__file__).parent
KUBERNETES = "1.33"  # the schema's version; the fields used here are older
SCRIPTS = (*sorted(HERE.rglob("*.sh")), *sorted(HERE.rglob("*.sbatch")), HERE.parent / ".ci/run")
RUN = ["--config=configs/demo.py:mlm", "--config.name=it's a $(test)", "--dry-run"]
SLURM = ["launch.slurm", *RUN, "--workdir=/scratch/a run", "--nodes=4", "--time=24:00:00"]
GKE = ["launch.gke", *RUN, "--image=cpt-jax:1", "--secret=WANDB_API_KEY=wandb:key"]
GPUS = ["--accelerator=nvidia-h100-80gb", "--chips-per-node=8"]
TPUS = ["--accelerator=tpu-v5-lite-podslice", "--topology=4x4", "--chips-per-node=4"]
JOBSETS = (
    [*GKE, *GPUS, "--workdir=gs://bucket/run", "--nodes=4", "--spot", "--service-account=train"],
    [*GKE, *GPUS, "--workdir=/runs/demo", "--volume=claim:/runs", "--compilation-cache=/runs/c"],
    [*GKE, *TPUS, "--workdir=gs://bucket/run"],
)
TPU = [
    *("launch.tpu", *RUN, "--workdir=gs://bucket/run", "--zone=us-west4-a"),
    *("--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite", "--spot"),
]


def shell_faults(script: str, name: str, *except_for: str) -> list[str]:
    """Returns what shellcheck has against a bash script, a line each, but for some of its rules."""
    command = ["shellcheck", "--shell=bash", "--format=gcc", "-"]
    command += [f"--exclude={rule}" for rule in except_for]
    beside = Path(sys.executable).with_name("shellcheck")  # the environment need not be active
    command[0] = str(beside) if beside.exists() else command[0]
    done = subprocess.run(command, input=script, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"shellcheck: {done.stderr}")
    return [line.replace("-:", f"{name}:", 1) for line in done.stdout.splitlines()]


def jobset_faults(jobset: Any, name: str) -> list[str]:
    """Returns where a JobSet departs from its schema, and its Jobs from Kubernetes'."""
    schema = json.loads((HERE / "gke" / "jobset.schema.json").read_text())
    found = jsonschema.Draft202012Validator(schema).iter_errors(jobset)
    faults = [f"{name}: {fault.json_path}: {fault.message}" for fault in found]
    if faults:
        return faults
    for job in jobset["spec"]["replicatedJobs"]:
        metadata = {"name": job["name"]}
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **job["template"]}
        try:
            kubernetes_validate.validate(whole, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{name}: {job['name']}: {'.'.join(map(str, error.path))}: {error}")
    return faults


def rendered(words: list[str]) -> str:
    """Returns what a launcher's dry run prints."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=HERE.parent, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"python -m {shlex.join(words)}: {done.stderr}")
    return done.stdout


def faults() -> Iterator[str]:
    """Yields what is wrong with anything in `launch`."""
    for script in SCRIPTS:
        yield from shell_faults(script.read_text(), str(script.relative_to(HERE.parent)))
    for words in (SLURM, TPU):
        # What looks like a variable is meant to arrive as it is.
        yield from shell_faults(rendered(words), f"{words[0]} --dry-run", "SC2016")
    template = HERE / "gke" / "jobset.yaml"
    yield from jobset_faults(yaml.safe_load(template.read_text()), template.name)
    for words in JOBSETS:
        yield from jobset_faults(yaml.safe_load(rendered(words)), shlex.join(words))


def main() -> None:
    """Prints what is wrong; exit status 1 if anything is."""
    found = list(faults())
    print("\n".join(found) if found else "launchers: scripts and manifests are sound")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
