"""``python -m cpt_jax.report RUN [RUN ...] --out report.html``."""

import argparse
import sys
from pathlib import Path

from cpt_jax.report.page import render
from cpt_jax.report.runs import read_runs


def main(arguments: list[str] | None = None) -> int:
    """Writes the page; returns the exit code: 2 for what is no run, or cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m cpt_jax.report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page to write")
    options = parser.parse_args(arguments)
    try:
        page = render(read_runs(options.runs))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
