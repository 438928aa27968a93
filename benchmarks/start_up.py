"""Seconds from a training command to its first step, with a cold and a warm compilation cache.

    python -m benchmarks.start_up            # the demo's base on this CPU, medians of three

A corpus of the invented clinic is made first. Then one command is started again and again, each
time in a new run directory, and ended once the first step stands in its metrics: every other time
with an empty cache, and then with what that start left there.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 300.0  # seconds that one start may take


def module(name: str, *arguments: str | Path) -> list[str]:
    """The command that runs one of our modules."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def make_corpus(root: Path) -> list[str]:
    """Makes text, tokenizer and corpus; returns the training command but for its workdir."""
    text, tokenizer, data = root / "text", root / "tokenizer", root / "data"
    synthetic = ("--count", "600", "--seed", "1", "--language", "mixed", "--max-words", "1000")
    learn = ("--tokenizer-vocab", "2048", "--tokenizer-out", tokenizer)
    cut = ("--seq-len", "256", "--heldout-fraction", "0.1", "--workers", "1")
    for command in (
        module("cpt_jax.data.synthetic", "--out", text, *synthetic, *learn),
        module("cpt_jax.data.prepare", "--input", text / "notes.jsonl", "--tokenizer", tokenizer)
        + [*cut, "--out", str(data)],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return module(
        *("cpt_jax.main", "--config=configs/demo.py:base", "--config.logging.every_steps=1"),
        *(f"--config.data.sources[0].path={data}", f"--config.data.tokenizer={tokenizer}"),
    )


def first_step(command: list[str], workdir: Path, cache: Path) -> float:
    """Returns the seconds until a run's first step is in its metrics, and ends the run."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        while process.poll() is None and time.perf_counter() - start < LIMIT:
            metrics = workdir / "metrics.jsonl"
            if metrics.exists() and '"kind": "train"' in metrics.read_text():
                return time.perf_counter() - start
            time.sleep(0.02)
    finally:
        process.kill()
        _, told = process.communicate()
    sys.exit(f"no step within {LIMIT:.0f} s:\n{told.decode()[-2000:]}")


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_up", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="starts of each kind")
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        command = make_corpus(root)
        for turn in range(repeats):
            cache = root / "cache"
            shutil.rmtree(cache, ignore_errors=True)
            for kind, taken in seconds.items():
                taken.append(first_step(command, root / f"{kind}{turn}", cache))
                print(f"{kind} {turn}: {taken[-1]:.1f} s", file=sys.stderr)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end\n")
    print("| compilation cache | median | all |\n|---|---|---|")
    for kind, taken in seconds.items():
        listed = ", ".join(f"{second:.1f}" for second in taken)
        print(f"| {kind} | {statistics.median(taken):.1f} s | {listed} |")


if __name__ == "__main__":
    main()
