"""What a compiled program does, read from its text: collectives, memory traffic, large buffers.

XLA's own analyses do not serve: they count the body of a loop once, know nothing of kernels called
by name, and are missing for devices that are not there. The text (`compiled.as_text()`) is one
device's program after partitioning, so every shape in it is that of a shard.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence

from launch.replica_groups import Groups, ints, replica_groups

_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = ")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|called_computations|branch_computations"
    r"|true_computation|false_computation)=(\{[^}]*\}|%?[\w.-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BITS = re.compile(r"[a-z]+(\d+)")

COLLECTIVES = (
    *("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)
# Instructions that move no bytes of their own.
_FREE = frozenset(
    """parameter constant tuple get-tuple-element bitcast while call conditional after-all
    partition-id replica-id opt-barrier iota async-update async-done add-dependency domain
    copy-done send-done recv-done""".split()  # noqa: SIM905 (a list would be half a page)
)
_SLICES = ("dynamic-slice", "gather", "slice")
# Those whose computations hold buffers; others (a fusion, a reduction) compute in registers.
_CALLERS = ("while", "call", "conditional", "async-start")


@dataclasses.dataclass(frozen=True)
class Shape:
    """One array: its dtype's bits, its dimensions, and XLA's layout of it."""

    bits: int
    dims: tuple[int, ...]
    layout: str

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """Bytes, without the padding that tiles may add."""
        return self.size * self.bits / 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of the program."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]  # of the result; several for a tuple
    operands: tuple[str, ...]
    attributes: str
    called: tuple[str, ...]  # computations

    @property
    def bytes(self) -> float:
        """Bytes of the result."""
        return sum(shape.bytes for shape in self.shapes)


@dataclasses.dataclass(frozen=True)
class Step:
    """An instruction as it is executed.

    Attributes:
      instruction: it.
      computation: that it stands in.
      times: how often one run of the program executes it; a loop of unknown length counts once.
      fused: whether it stands inside a fusion, where results are no buffers.
    """

    instruction: Instruction
    computation: str
    times: float
    fused: bool


class Program:
    """The computations of one compiled program.

    Attributes:
      computations: instructions by computation, then by name, in order.
      entry: the computation that is run.
      unknown_loops: loops whose number of turns the program does not say (it depends on data).
    """

    def __init__(self, text: str):
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            if found := _INSTRUCTION.match(line):
                current[found[1]] = _parse(found[1], line[found.end() :])
            elif found := _COMPUTATION.match(line):
                current = self.computations.setdefault(found[1], {})
                if line.startswith("ENTRY"):
                    self.entry = found[1]
        if not self.entry:
            raise ValueError("no ENTRY computation: is this the text of a compiled program?")
        self.unknown_loops = sorted(
            {
                step.instruction.name
                for step in self.steps()
                if step.instruction.opcode == "while" and self._trips(step.instruction) is None
            }
        )

    def steps(self) -> Iterator[Step]:
        """Yields every instruction of every computation, once for each place it is called from."""
        yield from self._steps(self.entry, 1.0, fused=False)

    def _steps(self, computation: str, times: float, fused: bool) -> Iterator[Step]:
        for instruction in self.computations[computation].values():
            yield Step(instruction, computation, times, fused)
            if _collective(instruction):
                continue  # what it calls is a sum of two numbers
            inside = fused or instruction.opcode not in _CALLERS
            turns = (self._trips(instruction) or 1) if instruction.opcode == "while" else 1
            for called in instruction.called:
                if called in self.computations:
                    yield from self._steps(called, times * turns, inside)

    def _trips(self, loop: Instruction) -> int | None:
        """Turns of a while loop, where XLA says so."""
        found = _TRIPS.search(loop.attributes)
        return int(found[1]) if found else None

    def operands(self, step: Step) -> list[Instruction]:
        """The instructions whose results this one reads."""
        inside = self.computations[step.computation]
        return [inside[name] for name in step.instruction.operands if name in inside]


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange between devices, as one device sees it.

    Attributes:
      kind: of `COLLECTIVES`.
      operand: bytes that the device puts in.
      groups: positions in the mesh's devices that exchange with one another; empty: all.
      times: how often a run of the program executes it.
    """

    kind: str
    operand: float
    groups: Groups
    times: float


def collectives(program: Program) -> list[Collective]:
    """Returns every exchange of a program in which more than one device takes part."""
    found = []
    for step in program.steps():
        if kind := _collective(step.instruction):
            operand = sum(instruction.bytes for instruction in program.operands(step))
            groups = replica_groups(step.instruction.attributes)
            if not groups or len(groups[0]) > 1:
                found.append(Collective(kind, operand, groups, step.times))
    return found


def can_tell(widths: Sequence[int], length: int, rows: int) -> bool:
    """Whether tokens x tokens can be told from tokens x width, or from one width x another.

    Args:
      widths: sizes of a model's dimensions.
      length: tokens of a row.
      rows: of a micro-batch, on one device.
    """
    return all(
        width % length and (width < length or rows * width % length) for width in widths
    ) and all(
        a * b < rows * length**2 or a * b % length**2
        for a, b in itertools.combinations_with_replacement(widths, 2)
    )


def square_buffers(program: Program, length: int, rows: int) -> list[str]:
    """Returns the buffers that hold tokens x tokens of one row or more: attention's scores, a mask.

    Such a buffer has two dimensions that are multiples of ``length``; or, where it was taken apart
    into blocks, a multiple of ``length`` squared elements, and as many for each of its rows. With
    the widths of some models that says nothing: `can_tell`.

    Args:
      program: compiled for rows of ``length`` tokens.
      length: tokens of a row.
      rows: of a micro-batch, on one device.
    """
    found = {}
    for step in program.steps():
        if step.fused or step.instruction.opcode in ("parameter", "get-tuple-element", "tuple"):
            continue
        for shape in step.instruction.shapes:
            multiples = [dim for dim in shape.dims if dim and dim % length == 0]
            blocks = shape.size >= rows * length**2 and shape.size % length**2 == 0
            if len(multiples) > 1 or blocks:
                found[step.instruction.name] = f"{step.instruction.opcode} {list(shape.dims)}"
    return [f"{name}: {text}" for name, text in found.items()]


def traffic(program: Program, fast_memory: str | None = None) -> float:
    """Returns the bytes between a device's memory and its cores: operands read, results written.

    Loops of unknown length count one turn, kernels each operand once: a lower bound there.

    Args:
      program: the compiled program.
      fast_memory: a mark in the layout of arrays that live elsewhere (`S(1)`: a TPU's VMEM).
    """
    total = 0.0
    for step in program.steps():
        if not step.fused and step.instruction.opcode not in _FREE:
            total += step.times * _moved(program, step, fast_memory)
    return total


def _moved(program: Program, step: Step, fast_memory: str | None) -> float:
    """Bytes that one instruction moves each time."""
    opcode, instruction = step.instruction.opcode, step.instruction

    def size(of: Instruction) -> float:
        return sum(s.bytes for s in of.shapes if not (fast_memory and fast_memory in s.layout))

    operands = program.operands(step)
    if opcode.endswith("-done"):
        return 0.0
    if opcode in _SLICES:
        return 2 * size(instruction)
    if opcode == "dynamic-update-slice":
        return 2 * size(operands[1])
    if opcode.endswith("-start"):  # the result repeats the operands
        return 2 * sum(map(size, operands))
    if opcode == "fusion":
        inside = program.computations[instruction.called[0]]
        read, written = _fusion_reads(inside), _fusion_writes(inside)
        reads = sum(min(size(o), read.get(i, math.inf)) for i, o in enumerate(operands))
        return reads + min(size(instruction), written)
    return size(instruction) + sum(map(size, operands))


def _fusion_reads(inside: dict[str, Instruction]) -> dict[int, float]:
    """Bytes read of those parameters of a fusion of which only slices are."""
    reads = {}
    for parameter in inside.values():
        if parameter.opcode != "parameter":
            continue
        users = [i for i in inside.values() if parameter.name in i.operands]
        if users and all(u.opcode in _SLICES and u.operands[0] == parameter.name for u in users):
            reads[int(parameter.attributes)] = sum(user.bytes for user in users)
        elif users and all(_updates(user, parameter) for user in users):
            reads[int(parameter.attributes)] = 0.0
    return reads


def _updates(user: Instruction, parameter: Instruction) -> bool:
    """Whether an instruction only overwrites a part of a parameter, in place."""
    return user.opcode == "dynamic-update-slice" and user.operands[0] == parameter.name


def _fusion_writes(inside: dict[str, Instruction]) -> float:
    """Bytes written by a fusion that ends by updating a slice in place; else no bound."""
    root = list(inside.values())[-1]
    if root.opcode == "dynamic-update-slice" and root.operands[1] in inside:
        return inside[root.operands[1]].bytes
    return math.inf


def _collective(instruction: Instruction) -> str | None:
    """The kind of exchange that an instruction does or starts."""
    kind = instruction.opcode.removesuffix("-start")
    return kind if kind in COLLECTIVES else None


def _parse(name: str, text: str) -> Instruction:
    """Reads what follows `NAME = `: the result's type, the opcode, operands and attributes."""
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    kind, rest = text[:end], text[end:].lstrip()
    opcode, _, rest = rest.partition("(")
    end = _closing("(" + rest, 0) - 1
    inside, attributes = rest[: end - 1], rest[end:]
    operands = tuple(re.findall(r"%([\w.-]+)", inside))
    if opcode == "parameter":
        attributes = inside  # its number
    called = tuple(
        called.strip(" %")
        for group in _CALLED.findall(attributes)
        for called in group.strip("{}").split(",")
    )
    return Instruction(name, opcode, _shapes(kind), operands, attributes, called)


def _closing(text: str, start: int) -> int:
    """The index after the parenthesis that closes the one at ``start``."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError(f"unbalanced parentheses in {text[:100]!r}")


@functools.cache
def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(
        Shape(_bits(kind), ints(dims), layout) for kind, dims, layout in _SHAPE.findall(text)
    )


def _bits(dtype: str) -> int:
    """Bits of one element: pred takes a byte, a token nothing."""
    if found := _BITS.match(dtype):
        return int(found[1])
    return 8 if dtype == "pred" else 0
