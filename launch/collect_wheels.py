"""A folder to take to a machine without network: wheels for `launch.device_check`, and rows.

    python -m launch.collect_wheels --out wheels --corpus data/en --rows 64

The wheels are what the kernels and the training step need beyond jax, flax, optax, orbax and numpy
with their own needs, for Python 3.12 on x86-64 Linux; `rows.npz` holds packed rows of a prepared
corpus. The folder may be copied beside the checkout.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MIB = 2**20
LIMIT = 60 * MIB  # of the whole folder
PYTHON = "3.12"
# pydantic asks for one version of pydantic_core; tokamax's is `kernels.gpu.VERSIONS`' for 3.12.
WHEELS = {
    "tokamax": "0.0.17",
    "qwix": "0.1.8",
    "einshape": "1.0",
    "immutabledict": "4.3.1",
    "pydantic": "2.14.4",
    "pydantic_core": "2.50.5",
    "annotated_types": "0.8.0",
    "typing_inspection": "0.4.5",
    "typing_extensions": "4.16.0",
    "jaxtyping": "0.3.11",
    "wadler_lindig": "0.1.8",
    "ml_collections": "1.1.0",
    "tqdm": "4.70.1",
}


def download(out: Path, wheels: dict[str, str]) -> None:
    """Downloads wheels, none of their needs; pip says what goes wrong, and the exit code is its."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [f"--python-version={PYTHON}", "--implementation=cp", f"--dest={out}"]
    command += [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_28", "_2_17", "2014")]
    command += [f"{name}=={version}" for name, version in wheels.items()]
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(done.returncode)


def write_rows(file: Path, corpus: Path, count: int) -> None:
    """Writes the first rows of a prepared corpus.

    Raises: FileNotFoundError or ValueError for what is none.
    """
    import numpy as np  # the wheels can be collected with no more than pip

    from cpt_jax.data.mixture import rows_at
    from cpt_jax.data.sources import open_source

    source = open_source(corpus)
    rows = list(rows_at(source, range(min(count, len(source)))))
    ids, segments = (np.stack([row[name] for row in rows]) for name in ("input_ids", "segment_ids"))
    np.savez_compressed(file, input_ids=ids, segment_ids=segments)


def check_size(out: Path, limit: int = LIMIT) -> int:
    """Returns the folder's bytes; ends the program where they are too many."""
    sizes = {path.name: path.stat().st_size for path in out.iterdir()}
    total = sum(sizes.values())
    if total > limit:
        largest = max(sizes, key=lambda name: sizes[name])
        sys.exit(
            f"error: {out} holds {total / MIB:.1f} MiB, allowed: {limit / MIB:.0f} "
            f"(the largest: {largest}, {sizes[largest] / MIB:.1f} MiB)"
        )
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Collects, and says how much it is."""
    parser = argparse.ArgumentParser(prog="python -m launch.collect_wheels", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument("--corpus", type=Path, help="output of cpt_jax.data.prepare")
    parser.add_argument("--rows", type=int, default=64, help="of the corpus, at most")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    download(options.out, WHEELS)
    if options.corpus:
        write_rows(options.out / "rows.npz", options.corpus, options.rows)
    total = check_size(options.out)
    print(f"{options.out}: {total / MIB:.1f} MiB of {LIMIT / MIB:.0f}")


if __name__ == "__main__":
    main()
