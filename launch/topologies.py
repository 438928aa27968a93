"""Accelerators that need not be there: their devices to compile for, and what they can do.

    h100:1x1x8     slices x hosts x GPUs of a host (h200 as well)
    v5e:4x4        the chips of one TPU slice along each axis of its torus (v5p, v6e as well)
    cpu:8          as many devices of this CPU

Devices of a topology have no memory and run nothing; programs are lowered and compiled for them.
"""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """What one accelerator can do, by its maker's data sheet.

    Attributes:
      kind: JAX's `device_kind`, by which `model.flops.peak_flops` knows the peak.
      memory: bytes of HBM.
      usable: share of it that a program gets: the rest is the runtime's and the allocator's.
      hbm: bytes/s between HBM and the cores.
      link: bytes/s that a chip receives in a ring of the chips around it, both ways of the ring
        in use: NVLink inside a host, two of a TPU's links inside a slice.
      network: bytes/s of a chip's share in the network between hosts (GPUs) or slices (TPUs).
      source: where these numbers stand.
    """

    kind: str
    memory: float
    usable: float
    hbm: float
    link: float
    network: float
    source: str


_HOPPER = (
    "NVIDIA H100/H200 Tensor Core GPU data sheets (NVLink 900 GB/s, both directions together); "
    "NVIDIA DGX H100 user guide (one 400 Gb/s InfiniBand port for each GPU)"
)
_CLOUD = "Google Cloud documentation, TPU {} (ICI bandwidth per chip over its ports, both ways)"

CHIPS = {
    # JAX takes 75 % of a GPU unless XLA_PYTHON_CLIENT_MEM_FRACTION says 0.9, as it should here.
    "h100": Chip("NVIDIA H100 80GB HBM3", 84942979072, 0.9, 3.35e12, 450e9, 50e9, _HOPPER),
    "h200": Chip("NVIDIA H200", 151397597184, 0.9, 4.8e12, 450e9, 50e9, _HOPPER),
    # XLA's TPU compiler itself refuses what does not fit what it may use.
    "v5e": Chip("TPU v5 lite", 16 * GIB, 1.0, 819e9, 100e9, 3.1e9, _CLOUD.format("v5e")),
    "v5p": Chip("TPU v5", 95 * GIB, 1.0, 2765e9, 200e9, 6.25e9, _CLOUD.format("v5p")),
    "v6e": Chip("TPU v6 lite", 32 * GIB, 1.0, 1638e9, 200e9, 12.5e9, _CLOUD.format("v6e")),
}
# What XLA must know of a GPU to compile for it: the fields of its GpuTargetConfigProto, by
# NVIDIA's CUDA programming guide (compute capability 9.0) and xla/backends/gpu/target_config.
_HOPPER_TARGET = """
gpu_device_info {{
  cuda_compute_capability {{ major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }}
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 l2_cache_size: 52428800
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  memory_bandwidth: {bandwidth:.0f} device_memory_size: {memory:.0f}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{kind}"
"""


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices of one kind and how they hang together.

    Attributes:
      name: as on the command line, `h100:1x1x8`.
      chip: what each device can do; None for those that are not in `CHIPS`.
      devices: JAX devices, or such of a topology to compile for.
    """

    name: str
    chip: Chip | None
    devices: Sequence[Any]

    def island(self, device: Any) -> int:
        """The number of the device's island: those that `Chip.link` connects."""
        if device.platform == "tpu":
            return getattr(device, "slice_index", 0)
        return device.process_index


def open_topology(name: str) -> Topology:
    """Returns the devices that a name of this module's docstring stands for.

    Raises:
      ValueError: for a name that is none; a compiler that is not installed (with the command that
        installs it); a topology that the compiler does not know.
    """
    found = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if not found or found[1] not in (*CHIPS, "cpu"):
        forms = "h100:SLICESxHOSTSxGPUS, h200:..., v5e:4x4, v5p:2x2x2, v6e:4x4"
        raise ValueError(f"topology {name!r} is not one of {forms}")
    kind, shape = found[1], found[2]
    if kind == "cpu":
        return Topology(name, None, _cpu_devices(name, math.prod(map(int, shape.split("x")))))
    chip = CHIPS[kind]
    devices = _gpus(name, chip, shape) if kind[0] == "h" else _tpus(name, kind, shape)
    expected = math.prod(map(int, shape.split("x")))
    assert len(devices) == expected, f"{name}: {len(devices)} devices"
    return Topology(name, chip, devices)


def present_topology() -> Topology:
    """Returns the devices that this process has."""
    devices = jax.devices()
    kind = devices[0].device_kind
    chip = next((chip for chip in CHIPS.values() if chip.kind == kind), None)
    return Topology(f"{kind} x {len(devices)}", chip, devices)


def _cpu_devices(name: str, count: int) -> Sequence[Any]:
    devices = jax.devices("cpu")
    if count > len(devices):
        raise ValueError(f"topology {name!r}: this process has {len(devices)} CPU devices")
    return devices[:count]


def _gpus(name: str, chip: Chip, shape: str) -> Sequence[Any]:
    if shape.count("x") != 2:
        raise ValueError(f"topology {name!r}: GPUs are given as SLICESxHOSTSxGPUS, h100:1x1x8")
    if not any(_installed(f"jax_plugins.xla_cuda{version}") for version in (12, 13)):
        raise ValueError(
            f"topology {name!r}: compiling for a GPU needs XLA's CUDA plugin, not CUDA itself:\n"
            f"  pip install --no-deps jax-cuda12-plugin=={jax.__version__} "
            f"jax-cuda12-pjrt=={jax.__version__} 'nvidia-cuda-nvcc-cu12>=12.6,<13'"
        )
    target = _HOPPER_TARGET.format(bandwidth=chip.hbm, memory=chip.memory, kind=chip.kind)
    return topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=target, topology=shape
    ).devices


def _tpus(name: str, kind: str, shape: str) -> Sequence[Any]:
    if not _installed("libtpu"):
        raise ValueError(
            f"topology {name!r}: compiling for a TPU needs libtpu, not a TPU:\n"
            "  pip install 'jax[tpu]' -c constraints.txt"
        )
    # Not on a Google machine there is no metadata server to ask; two processes may compile.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=f"{kind}:{shape}").devices
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"topology {name!r}: {error}") from error


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False
