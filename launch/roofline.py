"""How long a step would take at the least, from what the compiled program does and a data sheet.

A prediction to compare layouts by, not a measurement: nothing here has run. Its assumptions are
`ASSUMPTIONS`, which the tool prints under every table.
"""

import dataclasses
import math
from collections.abc import Sequence

from launch.hlo import Collective
from launch.topologies import Chip

# Shares of the data sheets' numbers that good programs reach. MaxText's published runs train dense
# models at 0.5 to 0.65 of the peak; NCCL's and XLA's rings reach some 0.8 of a link.
ATTAINED, MEMORY, LINK = 0.5, 0.8, 0.8

ASSUMPTIONS = """
FLOPs: of the documents and windows of the rows (model/flops.py), and a third of the layers' again \
with remat
compute: FLOPs over {attained} of the chip's dense bf16 peak; kernels do no more than these
memory: bytes that compiled instructions read and write, over {memory} of HBM's bandwidth; loops \
whose turns depend on data count one turn
a step: the longer of the two, then the exchanges; "overlapped": behind it as far as they can hide
exchanges: bytes by the count of a ring, in an island of chips first, then between islands, over \
{link} of the bandwidths; no latency
weak scaling: the step without its exchanges, over the step
strong scaling: the phase's whole batch on one device, over as many devices times their time
"""


def assumptions(attained: float) -> list[str]:
    """Returns the assumptions with their numbers."""
    return ASSUMPTIONS.strip().format(attained=attained, memory=MEMORY, link=LINK).splitlines()


@dataclasses.dataclass(frozen=True)
class Work:
    """What one device does in one step.

    Attributes:
      flops: that the mathematics needs.
      recomputed: FLOPs done a second time, in the backward pass.
      traffic: bytes between memory and cores.
      link: bytes received from devices of the same island.
      network: bytes received from other islands.
    """

    flops: float
    recomputed: float
    traffic: float
    link: float
    network: float


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Seconds of one step on one device, and what follows from them.

    Attributes:
      compute: if it only computed.
      memory: if it only read and wrote.
      exchange: in which it only waits for other devices.
      mfu: needed FLOPs over what the peak would do in `seconds`.
      weak: share of a device's speed that is left beside the others.
    """

    compute: float
    memory: float
    exchange: float
    mfu: float
    weak: float

    @property
    def alone(self) -> float:
        """Seconds of a step without exchanges."""
        return max(self.compute, self.memory)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.alone + self.exchange

    @property
    def overlapped(self) -> float:
        """Seconds of a step that hides its exchanges as far as they can be."""
        return max(self.alone, self.exchange)


def predict(work: Work, chip: Chip, peak: float, attained: float = ATTAINED) -> Prediction:
    """Returns the roofline of one step.

    Args:
      work: of one device.
      chip: its bandwidths.
      peak: its dense bf16 peak in FLOP/s.
      attained: share of the peak that products are taken to reach.
    """
    compute = (work.flops + work.recomputed) / (attained * peak)
    memory = work.traffic / (MEMORY * chip.hbm)
    exchange = (work.link / chip.link + work.network / chip.network) / LINK
    alone = max(compute, memory)
    seconds = alone + exchange
    return Prediction(compute, memory, exchange, work.flops / seconds / peak, alone / seconds)


def strong_scaling(
    prediction: Prediction, *, batch: int, shards: int, rows: int, microbatches: int
) -> float | None:
    """Returns the share of ideal speed-up over one device that a batch of a fixed size keeps.

    None where the batch has fewer rows than there are shards.

    Args:
      prediction: of a step of ``microbatches`` pieces with ``rows`` rows a device.
      batch: rows of the whole batch.
      shards: parts that a batch is spread in.
      rows: of a piece, on one device.
      microbatches: pieces of the compiled step.
    """
    if batch < shards:
        return None
    most = math.ceil(batch / shards)  # rows of the device that the others wait for
    pieces = math.ceil(most / rows)
    row = prediction.alone / (rows * microbatches)
    exchange = prediction.exchange * pieces / microbatches
    return batch / shards * row / (most * row + exchange)


def received(collective: Collective, islands: Sequence[int]) -> tuple[float, float]:
    """Returns the bytes that a device receives each time, from its own island and from others.

    Where a group spans islands the exchange is taken in two parts: reduced or gathered among the
    chips of an island over the fast links, each chip meeting its like in the other islands with
    its share. Together that is a ring's count, (n - 1) / n of the array (twice, to reduce it).

    Args:
      collective: the exchange.
      islands: the island of every device of the mesh, in its order.
    """
    groups = collective.groups or (tuple(range(len(islands))),)
    operand = collective.operand
    if collective.kind == "collective-permute":
        crosses = any(islands[a] != islands[b] for a, b in groups)
        return (0.0, operand) if crosses else (operand, 0.0)
    size = len(groups[0])
    apart = max(len({islands[i] for i in group}) for group in groups)
    near = size / apart
    if collective.kind in ("all-gather", "collective-broadcast"):
        whole = operand * (size if collective.kind == "all-gather" else 1)
        return whole * (near - 1) / near, whole / near * (apart - 1) / apart
    if collective.kind in ("all-to-all", "ragged-all-to-all"):
        return operand * (near - 1) / size, operand * (apart - 1) / apart
    passes = 2 if collective.kind == "all-reduce" else 1
    link, network = operand * (near - 1) / near, operand / near * (apart - 1) / apart
    return passes * link, passes * network
