"""Where a process stands among those of its run, and the start of JAX over several of them.

A launcher says it in the environment: SLURM's ``srun``, Open MPI, the TPU runtime of a pod, or
three variables that anything can set (`EXPLICIT`; ``launch.local`` and the recipe for GKE do). What
the former set is read by JAX's own cluster detection, but for the GPUs of a SLURM task: JAX gives
every task one, however many it was allotted.

One process needs none of it: nothing is started, and JAX is not imported here.
"""

import dataclasses
import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cpt_jax import peers, relay

ADDRESS, COUNT, INDEX = EXPLICIT = (
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
)
TIMEOUT = "CPT_JAX_START_TIMEOUT"  # seconds until all processes must have come; default 300


@dataclasses.dataclass(frozen=True)
class Place:
    """One process among those of a run.

    Attributes:
      address: ``HOST:PORT`` at which process 0 waits for the others.
      process: this one's number.
      processes: how many there are.
      devices: ids of the GPUs that are this process's own; None: all it sees, or those that
        JAX_LOCAL_DEVICE_IDS names.
    """

    address: str
    process: int
    processes: int
    devices: tuple[int, ...] | None = None


def start() -> None:
    """Joins the processes of this run, if there are several, and starts JAX over them.

    To be called before anything of JAX is used.

    Raises:
      ValueError: an environment that says it by halves, or differently in two processes.
      OSError: the other processes were not found; names the address and who is missing.
    """
    environment = os.environ
    place = find_place(environment)
    if place is None:
        return
    import jax  # only now: it takes a second

    timeout = _number(environment, TIMEOUT, 300)
    link = peers.connect(place.address, place.process, place.processes, timeout)
    own = f"127.0.0.1:{link.port}"
    if place.process:
        own, link.relay = relay.start(link.host, link.port)
    if any(name.lower() in ("http_proxy", "https_proxy") for name in os.environ):
        direct = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        os.environ.setdefault("no_grpc_proxy", f"{direct},127.0.0.1".lstrip(","))
        jax.config.update("jax_check_proxy_envs", False)  # it warns of what the line above mends
    jax.distributed.initialize(
        own,
        place.processes,
        place.process,
        local_device_ids=place.devices,
        cluster_detection_method="deactivate",
        coordinator_bind_address=f"[::]:{link.port}",
        initialization_timeout=timeout,
    )
    peers.agree("start", {"devices of a process": jax.local_device_count()})


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """Returns where this process stands, or None if it is alone.

    Raises:
      ValueError: an environment that says it by halves.
      OSError: a pod's other hosts cannot be found.
    """
    if environment.get(COUNT) == "1":
        return None
    given = [name for name in EXPLICIT if environment.get(name)]
    if INDEX in given or COUNT in given:
        return _explicit(environment, given)
    if "SLURM_JOB_ID" in environment and _number(environment, "SLURM_NTASKS", 1) > 1:
        if "SLURM_STEP_NODELIST" not in environment:
            raise ValueError(
                f"this is a SLURM job of {environment['SLURM_NTASKS']} tasks, and this process is "
                f"none of them: start it by srun, or set {COUNT}=1 to train in one process"
            )
        return dataclasses.replace(_detected(environment), devices=_slurm_gpus(environment))
    if _number(environment, "OMPI_COMM_WORLD_SIZE", 1) > 1 or _in_tpu_pod(environment):
        return _detected(environment)
    if given:
        raise ValueError(
            f"{ADDRESS} is set, and neither {COUNT} and {INDEX} are nor is there a SLURM step, "
            "Open MPI or a TPU pod to say which process this is: set all three, or none"
        )
    if _number(environment, "JOB_COMPLETION_INDEX", 0):
        raise ValueError(
            "this is a further pod of an indexed Kubernetes Job (JOB_COMPLETION_INDEX="
            f"{environment['JOB_COMPLETION_INDEX']}) and {', '.join(EXPLICIT)} are not set: see "
            f"launch/gke, or set {COUNT}=1 to train one run in each pod"
        )
    return None


def _explicit(environment: Mapping[str, str], given: list[str]) -> Place:
    if missing := [name for name in EXPLICIT if name not in given]:
        raise ValueError(
            f"set in the environment: {', '.join(given)}; not set: {', '.join(missing)}. Set all "
            f"three, or none; {COUNT}=1 trains in one process"
        )
    address = environment[ADDRESS]
    count, index = (_number(environment, name, 0) for name in (COUNT, INDEX))
    if not re.fullmatch(r".+:\d{1,5}", address) or int(address.rpartition(":")[2]) > 65535:
        raise ValueError(f"{ADDRESS}={address}: not HOST:PORT")
    if index >= count:
        raise ValueError(f"{INDEX}={index}: not below {COUNT}={count}; processes count from 0")
    return Place(address, index, count)


def _detected(environment: Mapping[str, str]) -> Place:
    """Returns what JAX's cluster detection finds; it reads the environment of the process."""
    from jax._src.clusters import ClusterEnv  # there is no public way to ask it

    timeout = _number(environment, TIMEOUT, 300)
    try:
        address, count, index, _ = ClusterEnv.auto_detect_unset_distributed_params(
            environment.get(ADDRESS), None, None, (), None, timeout
        )
    except RuntimeError as error:
        raise OSError(f"the other hosts of this run cannot be found: {error}") from error
    if address is None or count is None or index is None:
        raise ValueError(
            "several processes were announced in the environment, and JAX's cluster detection "
            f"does not find which of them this is: set {', '.join(EXPLICIT)}"
        )
    return Place(address, index, count)


def _slurm_gpus(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Returns the GPUs of a SLURM task, as positions among those it sees.

    A task that SLURM has bound to its own sees those alone; tasks that see all of the node's share
    them evenly.
    """
    if "JAX_LOCAL_DEVICE_IDS" in environment:
        return None
    seen = len([gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu])
    on_node = _number(environment, "SLURM_GPUS_ON_NODE", seen)
    per_node = environment.get("SLURM_STEP_TASKS_PER_NODE", "1")  # such as 2(x4) or 2(x3),1
    tasks = int(re.split(r"\D", per_node)[0])
    if seen < on_node or tasks == 1:
        return None
    own = _number(environment, "SLURM_LOCALID", 0)
    if not seen:
        return (own,)
    if seen % tasks:
        raise ValueError(
            f"{tasks} tasks of this node cannot share its {seen} GPUs evenly: set "
            "--ntasks-per-node to a divisor, or JAX_LOCAL_DEVICE_IDS for each task"
        )
    each = seen // tasks
    return tuple(range(each * own, each * own + each))


def _in_tpu_pod(environment: Mapping[str, str]) -> bool:
    """Whether this host is one of several that hold the chips of a TPU slice, or of several."""
    hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
    if hosts:  # set by GKE
        return "," in hosts or _number(environment, "MEGASCALE_NUM_SLICES", 1) > 1
    # A TPU VM: Google's metadata server knows the others. JAX asks it nothing where this is set.
    chips = [*Path("/dev").glob("accel[0-9]*"), *Path("/dev/vfio").glob("[0-9]*")]
    asked = "TPU_SKIP_MDS_QUERY" not in environment
    return bool(chips) and asked and importlib.util.find_spec("libtpu") is not None


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name) or str(default)
    if not value.isdecimal():
        raise ValueError(f"{name}={value}: not a whole number")
    return int(value)
