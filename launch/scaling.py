"""How a run scales: compiled for accelerators that need not be there, or timed on those that are.

    python -m launch.scaling --config=configs/en_large_50b.py --topology h100:1x1x8 --compile-only
    python -m launch.scaling --config=configs/en_base_50b.py --topology h100:1x1x8,v5e:4x4 \\
        --mesh 8x1x1,1x8x1 --rows largest --remat true,false --compile-only --out scaling
    python -m launch.scaling --config=configs/en_base_50b.py --rows 1,2,4      # on the devices here

Every layout of the grid (topology, mesh, rows, remat, attention) is compiled. With --compile-only
its memory, its exchanges and a roofline with its assumptions are told; otherwise steps of random
tokens are timed. No data and no weights are read. With --out every line is appended to
OUT/scaling.csv as it comes, and table and plots are of that whole file.
"""

import itertools
import math
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from cpt_jax import command
from cpt_jax import config as config_lib

if typing.TYPE_CHECKING:
    from launch.layouts import Layout

_TOPOLOGY = flags.DEFINE_list(
    "topology", ["present"], "Devices: present, present:N, or those of launch/topologies.py."
)
_COMPILE_ONLY = flags.DEFINE_bool("compile-only", False, "Compile and predict; run nothing.")
_MESH = flags.DEFINE_list("mesh", [], "REPLICAxFSDPxTENSOR, several; default config.mesh.")
_ROWS = flags.DEFINE_list(
    "rows", ["1"], "Rows of a micro-batch on a device; 'largest', or 'largest:32' to begin there."
)
_PIECES = flags.DEFINE_integer("microbatches", 1, "Micro-batches of a step.", lower_bound=1)
_REMAT = flags.DEFINE_list("remat", [], "true, false or both; default config.model.remat.")
_ATTENTION = flags.DEFINE_list("attention", [], "Kernels; default config.model.attention.")
_PHASE = flags.DEFINE_string("phase", None, "Of the config; default its first.")
_DOCUMENT = flags.DEFINE_integer(
    "document", None, "Tokens of a document; default a whole row.", lower_bound=1
)
_ATTAINED = flags.DEFINE_float("attained", 0.5, "Share of a chip's peak that products reach.", 0, 1)
_STEPS = flags.DEFINE_integer("steps", 5, "Steps that are timed.", lower_bound=1)
_OUT = flags.DEFINE_string("out", None, "Directory for scaling.csv, scaling.md and plots.")


def main(config: config_lib.Config) -> int:
    """Walks the grid and prints the table.

    Returns 1 where a program holds tokens x tokens, 2 where every layout was refused.
    """
    import jax

    if _COMPILE_ONLY.value:
        cpus = [name[4:] for name in _TOPOLOGY.value if name.startswith("cpu:")]
        jax.config.update("jax_platforms", "cpu")
        counts = [math.prod(map(int, n.split("x"))) for n in cpus if re.fullmatch(r"\d+(x\d+)*", n)]
        jax.config.update("jax_num_cpu_devices", max(counts, default=1))

    from launch import scaling_lines, scaling_table

    with command.refusing(ValueError, FileNotFoundError):
        what = scaling_lines.experiment(config, _PHASE.value, _DOCUMENT.value)
        ask = scaling_lines.Ask(_COMPILE_ONLY.value, _ATTAINED.value, _STEPS.value)
        table = scaling_table.Table(Path(_OUT.value) if _OUT.value else None)
        for name in _TOPOLOGY.value:
            topology = scaling_lines.devices_of(name, ask.compile_only)
            for layout, rows in itertools.product(_layouts(config), _ROWS.value):
                for line in scaling_lines.lines(what, topology, layout, rows, ask):
                    table.add(line)
    print(f"\n{table.finish(ask.attained if ask.compile_only else None)}")
    square = [line for line in table.lines if line.square not in (None, scaling_lines.NO_SQUARE)]
    refused = [line for line in table.lines if line.note.startswith(scaling_lines.REFUSED)]
    return 1 if square else command.BAD_INPUT if len(refused) == len(table.lines) else 0


def _layouts(config: config_lib.Config) -> "Iterator[Layout]":
    """Yields the grid's layouts, but for their rows.

    Raises: ValueError for a mesh or a choice that cannot be read.
    """
    from launch.layouts import Layout

    meshes = [_mesh(text) for text in _MESH.value] or [config.mesh]
    remats = [_boolean(text) for text in _REMAT.value] or [config.model.remat]
    kernels: list[config_lib.AttentionBackend | None] = [*map(_kernels, _ATTENTION.value)]
    kernels = kernels or [config.model.attention]
    for mesh, remat, kernel in itertools.product(meshes, remats, kernels):
        yield Layout(mesh, 1, _PIECES.value, remat, kernel)


def _mesh(text: str) -> config_lib.Mesh:
    sizes = text.split("x")
    if len(sizes) != 3 or not all(size.isdigit() and int(size) for size in sizes):
        raise ValueError(f"--mesh={text}: not three numbers, REPLICAxFSDPxTENSOR")
    return config_lib.Mesh(*map(int, sizes))


def _kernels(text: str) -> config_lib.AttentionBackend:
    for known in typing.get_args(config_lib.AttentionBackend):
        if text == known:
            return known
    known = ", ".join(typing.get_args(config_lib.AttentionBackend))
    raise ValueError(f"--attention={text}: not one of {known}")


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"--remat={text}: neither true nor false")
    return text == "true"


if __name__ == "__main__":
    command.run(main)
