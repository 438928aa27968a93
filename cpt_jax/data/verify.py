"""Compares every file of a prepared corpus with the checksum in its manifest.

    python -m cpt_jax.data.verify data/notes data/web

Exit status 0 if all are as `prepare` wrote them, 1 if not, with a line per fault. Opening a corpus
checks sizes and numbers of records only; this reads all of it.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cpt_jax.data.sources import read_manifest, sha256


def faults(path: Path) -> Iterator[str]:
    """Yields what is missing or changed, a line per file.

    Raises:
      FileNotFoundError: no corpus there. ValueError: a damaged manifest or one of another version.
    """
    manifest, _ = read_manifest(path)
    expected = {shard["file"]: shard["sha256"] for shard in manifest["shards"]}
    expected |= manifest["files"] | {"tokenizer.json": manifest["tokenizer"]["sha256"]}
    for name, digest in expected.items():
        file = path / name
        try:
            found = sha256(file)
        except OSError as error:
            yield f"{file}: not readable: {error}"
            continue
        if found != digest:
            yield f"{file}: damaged or changed: sha256 {found[:12]}..., not {digest[:12]}..."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.data.verify",
        description="Compares every file of prepared corpora with their manifests.",
    )
    parser.add_argument("corpora", nargs="+", type=Path, metavar="PATH")
    status = 0
    for path in parser.parse_args(arguments).corpora:
        try:
            manifest, fingerprint = read_manifest(path)
            found = list(faults(path))
        except (ValueError, OSError) as error:
            found = [str(error)]
        else:
            if not found:
                print(
                    f"{path}: {len(manifest['shards'])} shards, {manifest['documents']:,} documents"
                    f" and {manifest['tokens']:,} tokens as prepared; fingerprint {fingerprint}"
                )
        for fault in found:
            print(f"error: {fault}", file=sys.stderr)
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
