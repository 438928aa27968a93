"""The scaling table: lines as they come, a CSV file that grows, Markdown, plots."""

import csv
import dataclasses
import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch import roofline
from launch.scaling_lines import NO_SQUARE, Line
from launch.topologies import GIB

FIELDS = [field.name for field in dataclasses.fields(Line)]
# What tells one layout from another: a line of the same replaces it.
KEY = ("run", "phase", "topology", "mesh", "rows", "microbatches", "remat", "attention", "measured")


class Table:
    """Lines of this call, and with a directory those of earlier calls in it.

    Raises: ValueError for a scaling.csv that another version of this tool wrote.
    """

    def __init__(self, out: Path | None):
        self._out = out
        self.lines: list[Line] = []
        if out:
            out.mkdir(parents=True, exist_ok=True)
            read(out / "scaling.csv")  # before anything is computed

    def add(self, line: Line) -> None:
        """Prints a line and appends it to the file."""
        self.lines.append(line)
        print(text(line), flush=True)
        if self._out:
            file = self._out / "scaling.csv"
            new = not file.exists()
            with file.open("a", newline="") as stream:
                writer = csv.DictWriter(stream, FIELDS)
                if new:
                    writer.writeheader()
                writer.writerow(dataclasses.asdict(line))

    def finish(self, attained: float | None) -> str:
        """Writes Markdown and plots of the whole file, and returns the table of this call."""
        if self._out:
            lines = latest(read(self._out / "scaling.csv"))
            (self._out / "scaling.md").write_text(markdown(lines, attained) + "\n")
            plot(lines, self._out)
        return markdown(self.lines, attained)


def read(file: Path) -> list[Line]:
    """Returns the lines of a file that `Table` wrote; none where there is no file."""
    if not file.exists():
        return []
    with file.open(newline="") as stream:
        reader = csv.DictReader(stream)
        if reader.fieldnames != FIELDS:
            raise ValueError(f"{file}: written by another version of this tool: name another --out")
        return [Line(**{name: _value(name, cell) for name, cell in row.items()}) for row in reader]


def _value(name: str, cell: str) -> Any:
    """A cell as its field's type; empty is None."""
    hint = typing.get_type_hints(Line)[name]
    kinds = typing.get_args(hint) or (hint,)
    if cell == "" and type(None) in kinds:
        return None
    return cell == "True" if kinds[0] is bool else kinds[0](cell)


def latest(lines: Sequence[Line]) -> list[Line]:
    """Returns each layout once, as it was compiled or timed last."""
    return list({tuple(getattr(line, name) for name in KEY): line for line in lines}.values())


def text(line: Line) -> str:
    """Returns one line of progress."""
    remat = "remat" if line.remat else "no remat"
    head = f"{line.run}, {line.topology}, mesh {line.mesh}, {line.rows} rows, {remat}, "
    head += f"{line.attention}: {_gib(line.need)} of {_gib(line.memory)} GiB"
    if not line.fits:
        return f"{head}, {line.note}"
    parts = [head, f"compiled in {line.compile_seconds:.0f} s"]
    if line.seconds is not None:
        parts.append(f"{'measured' if line.measured else 'predicted'} {1e3 * line.seconds:.1f} ms")
    if line.square not in (None, NO_SQUARE):
        parts.append(f"TOKENS x TOKENS: {line.square}")
    return ", ".join(parts)


COLUMNS = {
    "run": lambda x: x.run,
    "topology": lambda x: x.topology,
    "mesh": lambda x: x.mesh,
    "rows": lambda x: str(x.rows) + (f" x {x.microbatches}" if x.microbatches > 1 else ""),
    "remat": lambda x: "yes" if x.remat else "no",
    "attention": lambda x: x.attention,
    "GiB a device": lambda x: f"{_gib(x.need)} of {_gib(x.memory)}",
    "compiled in": lambda x: _number(x.compile_seconds, 1, "{:.0f} s"),
    "received MB": lambda x: _number(x.received, 1e-6, "{:.0f}"),
    "of it between hosts or slices": lambda x: _number(x.network, 1e-6, "{:.0f}"),
    "TFLOP": lambda x: _number(x.flops, 1e-12, "{:.2f}"),
    "step ms": lambda x: _number(x.seconds, 1e3, "{:.1f}"),
    "tokens/s": lambda x: _number(x.tokens_per_second, 1, "{:,.0f}"),
    "MFU": lambda x: _number(x.mfu, 100, "{:.0f} %"),
    "weak": lambda x: _number(x.weak, 100, "{:.0f} %"),
    "overlapped": lambda x: _number(x.overlapped, 100, "{:.0f} %"),
    "strong": lambda x: _number(x.strong, 100, "{:.0f} %"),
    "bound by": lambda x: x.bound or ("" if x.fits else x.note),
}


def markdown(lines: Sequence[Line], attained: float | None) -> str:
    """Returns the table; with the share of the peak that it assumes, its assumptions too."""
    rows = [[cell(line) for cell in COLUMNS.values()] for line in lines]
    used = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows)]
    names = [list(COLUMNS)[i] for i in used]
    made = [names, ["---"] * len(used), *([row[i] for i in used] for row in rows)]
    parts = ["\n".join("| " + " | ".join(row) + " |" for row in made)]
    if attained is not None:
        parts.append("Predicted, not measured:")
        parts.append("\n".join(f"- {line}" for line in roofline.assumptions(attained)))
        parts.append("\n".join(f"- {line}" for line in _sources(lines)))
    return "\n\n".join(parts)


def _sources(lines: Sequence[Line]) -> list[str]:
    """The chips of some lines, their numbers and where those stand."""
    from cpt_jax.model.flops import peak_flops
    from launch.topologies import CHIPS

    kinds = dict.fromkeys(line.topology.partition(":")[0] for line in lines)
    told = []
    for kind in kinds:
        if chip := CHIPS.get(kind):
            peak = peak_flops(chip.kind)
            told.append(
                f"{kind}: {f'{peak / 1e12:.0f} TFLOP/s, ' if peak else ''}"
                f"{chip.memory / GIB:.1f} GiB of which {chip.usable:.0%} are counted, HBM "
                f"{chip.hbm / 1e12:.2f} TB/s, links {chip.link / 1e9:.0f} GB/s, network "
                f"{chip.network / 1e9:.3g} GB/s a chip ({chip.source})"
            )
    return told


def _gib(count: float | None) -> str:
    return "?" if count is None else f"{count / GIB:.2f}"


def _number(value: float | None, scale: float, form: str) -> str:
    return "" if value is None else form.format(value * scale)


def plot(lines: Sequence[Line], out: Path) -> None:
    """Writes memory.png (bytes by rows) and efficiency.png (predicted, by devices)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def curve(line: Line) -> str:
        remat = "" if line.remat else ", no remat"
        return f"{line.run} {line.topology} {line.mesh}{remat}, {line.attention}"

    figure, axes = pyplot.subplots(figsize=(9, 5))
    groups: dict[str, list[Line]] = {}
    for line in lines:
        if line.need is not None and line.memory is not None:
            groups.setdefault(curve(line), []).append(line)
    for name, group in groups.items():
        group.sort(key=lambda line: line.rows)
        needs = [(line.need or 0) / (line.memory or 1) for line in group]
        axes.plot([line.rows for line in group], needs, "o-", label=name)
    axes.axhline(1, color="black", linestyle=":")
    axes.set(
        xlabel="rows of a micro-batch on a device", ylabel="memory needed, share of what is there"
    )
    _save(figure, axes, out / "memory.png")

    figure, axes = pyplot.subplots(figsize=(9, 5))
    best = _best(lines)
    for name in dict.fromkeys((line.run, line.topology.partition(":")[0]) for line in best):
        group = [line for line in best if (line.run, line.topology.partition(":")[0]) == name]
        group.sort(key=lambda line: line.devices)
        counts = [line.devices for line in group]
        weak = [math.nan if line.weak is None else line.weak for line in group]
        (drawn,) = axes.plot(counts, weak, "o-", label=f"{' '.join(name)}, weak")
        strong = [math.nan if line.strong is None else line.strong for line in group]
        axes.plot(counts, strong, "x--", color=drawn.get_color(), label=f"{' '.join(name)}, strong")
    axes.set(xlabel="devices", ylabel="predicted efficiency", ylim=(0, 1.05))
    _save(figure, axes, out / "efficiency.png")
    pyplot.close("all")


def _best(lines: Sequence[Line]) -> list[Line]:
    """The fastest layout of each run on each topology, among those with a prediction."""
    best: dict[tuple[str, str], Line] = {}
    for line in lines:
        key = line.run, line.topology
        fastest = best[key].tokens_per_second if key in best else None
        if line.weak is not None and (line.tokens_per_second or 0) >= (fastest or 0):
            best[key] = line
    return list(best.values())


def _save(figure: Any, axes: Any, file: Path) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.set_xscale("log", base=2)
        axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
