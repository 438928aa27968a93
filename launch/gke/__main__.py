"""Submits a run to Kubernetes as a JobSet: one process per node.

GPUs:
  python -m launch.gke --config=configs/fr_large.py --workdir=gs://BUCKET/fr_large \\
    --image=IMAGE --nodes=4 --accelerator=nvidia-h100-80gb --chips-per-node=8

TPUs, whose topology says how many nodes there are:
  python -m launch.gke --config=configs/fr_large.py --workdir=/runs/fr_large \\
    --image=IMAGE --accelerator=tpu-v5-lite-podslice --topology=4x4 --chips-per-node=4 \\
    --volume=CLAIM:/runs --secret=WANDB_API_KEY=wandb:key

Paths in config and workdir are those within the image (launch/gke/Dockerfile) and its volumes.
"""

import argparse
import math
import re
from pathlib import Path
from typing import Any

import yaml

from launch import submission

TEMPLATE = Path(__file__).with_name("jobset.yaml")
PORT = 8476
# What must not be overwritten by a variable of the user's.
COORDINATION = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def manifest(options: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Returns the JobSet of a run.

    Raises:
      ValueError: nodes, topology and chips that do not go together; a workdir that would be lost.
    """
    submission.check_far_workdir([mount for _, mount in options.volume])
    nodes = _nodes(options)
    jobset = yaml.safe_load(TEMPLATE.read_text())
    jobset["metadata"]["name"] = options.name
    jobset["spec"]["failurePolicy"]["maxRestarts"] = options.max_restarts
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job |= {"parallelism": nodes, "completions": nodes}
    pod = job["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = options.grace
    (container,) = pod["containers"]
    container["image"] = options.image
    command = submission.train("python", options, words)
    container["command"] = [_literal(word) for word in command]
    if options.topology:  # GKE tells each pod of a slice which it is, and JAX reads that
        resource, container["env"] = "google.com/tpu", []
        pod["nodeSelector"] = {
            "cloud.google.com/gke-tpu-accelerator": options.accelerator,
            "cloud.google.com/gke-tpu-topology": options.topology,
        }
    else:
        resource = "nvidia.com/gpu"
        container["env"] = _coordination(container["env"], options.name, nodes)
        pod["nodeSelector"] = {"cloud.google.com/gke-accelerator": options.accelerator}
    container["resources"] = {"limits": {resource: options.chips_per_node}}
    for variable, secret, key in options.secret:
        reference = {"secretKeyRef": {"name": secret, "key": key}}
        container["env"].append({"name": variable, "valueFrom": reference})
    for i, (claim, mount) in enumerate(options.volume):
        name = f"volume-{i}"
        container["volumeMounts"].append({"name": name, "mountPath": mount})
        pod["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    if options.spot:
        pod["nodeSelector"]["cloud.google.com/gke-spot"] = "true"
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    return jobset


def _nodes(options: argparse.Namespace) -> int:
    """Returns the number of pods: as asked, or as the TPU topology has it."""
    if not options.topology:
        return options.nodes or 1
    chips = math.prod(map(int, options.topology.split("x")))
    nodes, left = divmod(chips, options.chips_per_node)
    if left:
        raise ValueError(
            f"--topology={options.topology} has {chips} chips, which --chips-per-node="
            f"{options.chips_per_node} does not divide"
        )
    if options.nodes not in (None, nodes):
        raise ValueError(
            f"--nodes={options.nodes}: --topology={options.topology} with "
            f"{options.chips_per_node} chips on a node is {nodes}"
        )
    return nodes


def _coordination(variables: list[dict[str, Any]], name: str, nodes: int) -> list[dict[str, Any]]:
    """Returns the variables that tell each pod of the others; none where there are none."""
    if nodes == 1:
        return []
    values = {
        "JAX_COORDINATOR_ADDRESS": f"{name}-workers-0-0.{name}:{PORT}",
        "JAX_NUM_PROCESSES": str(nodes),
    }
    return [v | {"value": values[v["name"]]} if v["name"] in values else v for v in variables]


def _literal(word: str) -> str:
    """Returns a word as it must be written to arrive as it is: $(NAME) is a variable, $$ a $."""
    return word.replace("$", "$$")


def _topology(text: str) -> str:
    if not re.fullmatch(r"\d+(x\d+){1,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected such as 4x4 or 2x2x4")
    return text


def _volume(text: str) -> tuple[str, str]:
    claim, _, mount = text.partition(":")
    if not claim or not mount.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected CLAIM:/DIRECTORY")
    return claim, mount


def _secret(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"([A-Za-z_]\w*)=([a-z0-9.-]+):([\w.-]+)", text)
    if not found:
        # The text itself is not repeated: it may be the secret.
        raise argparse.ArgumentTypeError("expected VARIABLE=SECRET:KEY, the name of a Secret in it")
    if found[1] in COORDINATION:
        raise argparse.ArgumentTypeError(f"{found[1]} is set by the launcher")
    return found[1], found[2], found[3]


def _parser() -> argparse.ArgumentParser:
    made = submission.parser("gke", __doc__)
    made.add_argument("--image", required=True, help="of launch/gke/Dockerfile")
    made.add_argument("--accelerator", required=True, help="the node label's value")
    made.add_argument("--chips-per-node", type=submission.positive, required=True, metavar="N")
    made.add_argument("--nodes", type=submission.positive, help="(default 1; TPUs: by topology)")
    made.add_argument("--topology", type=_topology, help="of a TPU slice, such as 4x4")
    made.add_argument("--spot", action="store_true", help="on Spot VMs")
    made.add_argument(
        "--volume",
        type=_volume,
        action="append",
        default=[],
        metavar="CLAIM:/DIR",
        help="mounts a PersistentVolumeClaim; may be repeated",
    )
    made.add_argument(
        "--secret",
        type=_secret,
        action="append",
        default=[],
        metavar="VARIABLE=SECRET:KEY",
        help="a variable from a Kubernetes Secret; may be repeated",
    )
    made.add_argument("--service-account", metavar="NAME", help="for access to an object store")
    made.add_argument(
        "--grace",
        type=submission.positive,
        default=300,
        metavar="SECONDS",
        help="between SIGTERM and the kill: a step, an evaluation and a save (default 300)",
    )
    made.add_argument(
        "--max-restarts", type=submission.positive, default=50, metavar="N", help="(default 50)"
    )
    return made


def _submit(options: argparse.Namespace, words: list[str]) -> int:
    text = yaml.safe_dump(manifest(options, words), sort_keys=False, width=100)
    if options.dry_run:
        print(text, end="")
        return 0
    return submission.execute(["kubectl", "create", "-f", "-"], dry_run=False, input=text.encode())


if __name__ == "__main__":
    submission.run(_parser(), _submit)
