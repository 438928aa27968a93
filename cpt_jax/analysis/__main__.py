"""Analyses of models.

    python -m cpt_jax.analysis cka A B --control C D --texts 'heldout/*.jsonl' --out cka/
    python -m cpt_jax.analysis needle A B --language fr --texts 'notes/*.jsonl' --out needle/
    python -m cpt_jax.analysis probe A B --task ncbi_disease --data tasks/ --out probe/
    python -m cpt_jax.analysis transplant --donor A --recipient B --preset 0-7 --out mixed/

Exit codes: 0 done; 1 something outside (a full disk); 2 refused; 130 Ctrl-C, after which the same
command goes on with the states that are kept.
"""

import sys
from collections.abc import Callable, Mapping, Sequence

import jax

from cpt_jax import memory
from cpt_jax.analysis import divergence, needle, probing, transplant

COMMANDS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "cka": divergence.main,
    "needle": needle.main,
    "probe": probing.main,
    "transplant": transplant.main,
}


def main(arguments: Sequence[str]) -> int:
    """Runs one of the commands; returns the exit code."""
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__ if arguments[:1] in (["--help"], ["-h"]) else f"error: {__doc__}")
        return 0 if arguments[:1] in (["--help"], ["-h"]) else 2
    if jax.default_backend() == "cpu":
        memory.keep_freed()
    try:
        COMMANDS[arguments[0]](arguments[1:])
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
