"""What a GPU makes of the kernels and of whole training steps, in minutes: one command.

    python -m launch.device_check --out check.json --wheels wheels/      # one GPU, eight minutes
    python -m launch.device_check --out check.json --small               # anywhere, a small form

Checks run in the order of `CHECKS` until the budget is spent: the chosen
attention kernels against XLA's, forward and backward, at 8,192 packed tokens; whole steps of base,
then of large, under both objectives; then the alternatives. Each result is in the JSON file as soon
as it is there, beside the figures of the paper. A check that hangs or kills its process is noted,
and the next one goes on in a new process.

It needs a checkout and Python with jax, flax, optax and numpy; whatever else is missing comes from
a folder of wheels (`launch.collect_wheels`), without network.
"""

import argparse
import importlib.metadata
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# What is known of a run that ends early: first what nothing else is worth without.
CHECKS = (
    "environment",
    *(
        f"attention:{layer}:{mode}"
        for layer in ("global", "local")
        for mode in ("bidirectional", "causal")
    ),
    *(f"step:{size}:{objective}" for size in ("base", "large") for objective in ("clm", "mlm")),
    *("step:base:mlm:attention=mosaic_banded", "step:base:mlm:unfenced", "step:base:mlm:remat"),
    *("step:base:clm:attention=mosaic_banded", "step:base:mlm:attention=xla"),
)
REPO = Path(__file__).parents[1]
BUDGET = 480.0  # seconds in all
LIMIT = 150.0  # seconds of one check: more than compiling the largest step takes
# Tokens per second of one H100, base at 8,192 tokens, by objective: the paper's.
PAPER = {"clm": 203_000, "mlm": 218_000}


class Results:
    """The JSON file: a list of results, whole after each of them."""

    def __init__(self, path: Path, **about: Any):
        self.path = path
        self.about = about
        self.results: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def add(self, result: dict[str, Any]) -> None:
        """Adds a result, shows it and writes the file anew."""
        self.results.append(result)
        print(json.dumps(result), flush=True)
        self._write()

    def _write(self) -> None:
        text = json.dumps({**self.about, "results": self.results}, indent=1)
        part = self.path.with_suffix(".part")
        part.write_text(text + "\n")
        part.replace(self.path)


def unpack(wheels: Path, site: Path) -> list[str]:
    """Unpacks the wheels of what is not installed here into `site`; returns their names.

    A wheel is a zip of what `pip install --no-deps --target` would put there.
    """
    names = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(site)
            names.append(f"{name} {version}")
    if any(name.startswith("tokamax") for name in names):
        _stand_in_for_xprof(site)
    return names


def _stand_in_for_xprof(site: Path) -> None:
    """tokamax 0.0.17 imports the profiler xprof (32 MB, and its needs) for benchmarks alone."""
    try:
        importlib.metadata.version("xprof")
    except importlib.metadata.PackageNotFoundError:
        folder = site / "xprof" / "cli" / "tools"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "get_kernel_stats_tool.py").write_text('"""Not here: see device_check."""\n')


class Child:
    """A process that runs checks one after another, and tells of each in a line of JSON."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._process = subprocess.Popen(
            command, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def result(self, seconds: float) -> dict[str, Any]:
        """The next result; one with an `error` if it does not come in time, or never will."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return {"error": f"killed after {seconds:.0f} s"}
            if line is None:
                return {"error": f"the process died with exit code {self._process.wait()}"}
            if line.startswith("{"):  # the rest is what libraries print
                return json.loads(line)

    def end(self) -> None:
        """Kills the process, if it is there."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


def measures(site: Path, arguments: Sequence[str]) -> Callable[[Sequence[str]], Child]:
    """What starts a child on some checks, with the packages in `site` where Python has none."""
    paths = (str(REPO), os.environ.get("PYTHONPATH"), str(site))
    # A child that follows one that died compiles nothing again.
    environment = {"JAX_COMPILATION_CACHE_DIR": str(site / "compiled"), **os.environ}
    environment.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")  # JAX takes 75 % of a GPU
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = [sys.executable, "-m", "launch.device_measures", *arguments]
    return lambda checks: Child([*command, *checks], environment)


def results(
    checks: Sequence[str],
    start: Callable[[Sequence[str]], Child],
    until: float,
    limit: float = LIMIT,
) -> Iterator[dict[str, Any]]:
    """Yields the result of each check in turn, an `error` for those that gave none.

    Args:
      checks: their names.
      start: starts a child on those that are left.
      until: when the budget is spent, by `time.monotonic`.
      limit: seconds of one check.
    """
    child = None
    try:
        for i, check in enumerate(checks):
            left = until - time.monotonic()
            if left <= 0:
                yield {"check": check, "error": "not run: the budget is spent"}
                continue
            if child is None:
                child = start(checks[i:])
            result = child.result(min(limit, left))
            if "check" not in result:  # the child's last word, spoken for it
                child.end()
                child = None
            yield {"check": check, **result}
    finally:
        if child is not None:
            child.end()


def table(found: Sequence[dict[str, Any]]) -> str:
    """The whole steps as markdown, beside the paper's tokens per second."""
    lines = [
        "| step | rows | seconds | tokens/s | MFU | of the paper's |",
        "|---|---|---|---|---|---|",
    ]
    for result in found:
        if "tokens_per_second" not in result:
            continue
        rate, mfu = result["tokens_per_second"], result["mfu"]
        paper = PAPER[result["objective"]] if result["model"] == "base" else None
        cells = [
            result["check"],
            str(result["rows"]),
            f"{result['seconds']:.4f}",
            f"{rate:,.0f}",
            "-" if mfu is None else f"{mfu:.1%}",
            "-" if paper is None else f"{rate / paper:.2f}x",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the checks; returns 1 if one of the kernels was wrong, or nothing ran."""
    parser = argparse.ArgumentParser(prog="python -m launch.device_check", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds in all")
    parser.add_argument("--wheels", type=Path, help="folder of what this Python lacks")
    parser.add_argument("--rows", type=Path, help="rows.npz of launch.collect_wheels")
    parser.add_argument("--base", type=int, default=8, help="rows of a step of base")
    parser.add_argument("--large", type=int, default=4, help="rows of a step of large")
    parser.add_argument("--remat", action="store_true", help="recompute layers in every step")
    parser.add_argument("--small", action="store_true", help="a small model, for any machine")
    parser.add_argument("--checks", nargs="+", help="these alone, in this order")
    options = parser.parse_args()
    until = time.monotonic() + options.budget
    arguments = [f"--base={options.base}", f"--large={options.large}"]
    arguments += [f"--{flag}" for flag in ("small", "remat") if getattr(options, flag)]
    arguments += [f"--rows={options.rows.absolute()}"] if options.rows else []
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        unpacked = unpack(options.wheels, site) if options.wheels else []
        file = Results(options.out, small=options.small, unpacked=unpacked, paper=PAPER)
        for result in results(options.checks or CHECKS, measures(site, arguments), until):
            file.add(result)
    print(table(file.results))
    wrong = [r["check"] for r in file.results if r.get("agrees") is False]
    if wrong:
        print(f"kernels that do not agree with XLA's: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong or all("error" in r for r in file.results) else 0


if __name__ == "__main__":
    sys.exit(main())
