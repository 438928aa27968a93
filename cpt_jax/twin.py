"""Whether two runs are twins: ``python -m cpt_jax.twin A B`` proves it, or says what differs.

Twins saw identical rows in the same order, from the same parameters, and differ in nothing but
what they declare: by default the objective of phase 1 (``TWINS_DIFFER``), with ``--allow PATTERN``
more. The proof needs the two run directories alone:

- fields: everything in ``config.json`` (config, fingerprints of the data, model, origin), the
  weights of the first start, commit and versions of every start, compared leaf by leaf. Files
  changed since the commit are noted, as no record says how;
- rows: the digest of a batch's rows in every line of ``metrics.jsonl`` that both runs logged; the
  rows between follow from corpora, order, batch and steps, which are among the fields;
- start: the held-out losses before the first step, which tell other parameters apart;
- end: both runs came to the end of their last phase;
- two: neither is the other, or its copy.

Exit status: 0 for twins, 1 for others, 2 for what is no run.
"""

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cpt_jax import checkpoint, config, parsing, provenance, telemetry, trees

# Patterns on paths of the runs' descriptions (`trees.matches`) in which twins may differ.
TWINS_DIFFER = (
    "config.name",
    "config.phases.0.name",
    "config.phases.0.objective",
    "config.phases.0.mask_rate",
    "config.phases.0.mask_mode",
    *config.RESUMABLE,  # touch no number
)
COMPARED = ("config", "data", "model", "origin", "versions")
SAME_LOSS = 1e-3  # relative: two devices round bfloat16 sums in other orders


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What two runs have in common.

    Attributes:
      declared: differences that twins may have, "PATH: A -> B".
      faults: why they are no twins; empty for twins.
      notes: what the record leaves open.
      compared: steps whose rows were compared by digest.
      steps: steps of each run.
    """

    declared: tuple[str, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    compared: int
    steps: int


@dataclasses.dataclass(frozen=True)
class _Run:
    path: Path
    id: str | None  # None: it began before runs had one
    description: dict[str, Any]
    digests: dict[int, str]
    heldout: dict[str, dict[str, Any]]
    ended: bool
    changed: bool
    last: int
    steps: int


def compare(a: Path, b: Path, allow: Sequence[str] = ()) -> Verdict:
    """Compares two run directories.

    Args:
      a: one run.
      b: the other.
      allow: patterns on paths in which they may differ besides ``TWINS_DIFFER``.

    Raises:
      ValueError: a directory is no run, or its files are damaged.
    """
    runs = _read(a), _read(b)
    descriptions = [run.description for run in runs]
    found = parsing.differences(descriptions[0], descriptions[1])
    patterns = (*TWINS_DIFFER, *allow)
    for pattern in allow:
        if not any(trees.matches(pattern, path) for d in descriptions for path in _leaves(d)):
            raise ValueError(f"--allow {pattern}: neither run has such a field")
    declared = [x for x in found if any(trees.matches(p, x.split(":")[0]) for p in patterns)]
    faults = [line for line in found if line not in declared]
    if runs[0].id is not None and runs[0].id == runs[1].id:
        faults.append(f"{a} and {b} are one run, or a copy of it: nothing was compared")
    for run in runs:
        if not run.ended:
            faults.append(f"{run.path} was cut short: step {run.last} of {run.steps}")
    faults += _compare_start(*runs)
    both = runs[0].digests.keys() & runs[1].digests.keys()
    parted = [step for step in sorted(both) if runs[0].digests[step] != runs[1].digests[step]]
    if parted:
        faults.append(
            f"the rows of {len(parted)} of {len(both)} steps differ, step {parted[0]} the first"
        )
    if not both:
        faults.append("no step was logged by both runs: nothing shows that they saw the same rows")
    notes = [
        f"{run.path} ran code with changes that were not committed: what they were is not recorded"
        for run in runs
        if run.changed
    ]
    steps = max(run.steps for run in runs)
    return Verdict(tuple(declared), tuple(faults), tuple(notes), len(both), steps)


def _compare_start(a: _Run, b: _Run) -> list[str]:
    """Returns what the held-out losses before the first step say."""
    if not a.heldout or a.heldout.keys() != b.heldout.keys():
        return ["the held-out losses before the first step are not those of the same sources"]
    faults = []
    for source, objective in itertools.product(a.heldout, ("mlm", "clm")):
        ours, theirs = (run.heldout[source].get(f"{objective}_loss") for run in (a, b))
        if not (
            isinstance(ours, float)
            and isinstance(theirs, float)
            and math.isclose(ours, theirs, rel_tol=SAME_LOSS)
        ):
            faults.append(
                f"they start from other parameters: {objective} loss on {source} before the first "
                f"step {ours} -> {theirs}"
            )
    return faults


def _read(path: Path) -> _Run:
    """Reads a run directory; raises ValueError naming the file that is missing or damaged."""
    description = checkpoint.read_run(path)
    metrics = path / telemetry.METRICS
    if not metrics.is_file():
        raise ValueError(f"{metrics}: no such file; has the run begun?")
    lines = telemetry.read_metrics(metrics)
    parsed = config.parse(description["config"])
    steps = sum(config.phase_steps(phase, parsed.data.seq_len) for phase in parsed.phases)
    starts = provenance.read_starts(path)
    first = next(iter(starts), {})
    compared = {key: description.get(key, {}) for key in COMPARED}
    compared["init"] = first.get("init", {})
    for key in ("code", "versions"):  # of all starts: a resume may have run under others
        values = [start[key] for start in starts if start.get(key)]
        distinct = [value for i, value in enumerate(values) if value not in values[:i]]
        compared[key] = distinct[0] if len(distinct) == 1 else distinct or compared.get(key, {})
    train = [line for line in lines if line["kind"] == "train"]
    return _Run(
        path=path,
        id=description.get("id"),
        description=compared,
        digests={line["step"]: line["rows"] for line in train if "rows" in line},
        heldout={str(x.get("source")): x for x in lines if x["kind"] == "eval" and x["step"] == 0},
        ended=any(x.get("event") == "end" and x["step"] == steps for x in lines),
        changed=any(start.get("code", {}).get("changed") for start in starts),
        last=max((line["step"] for line in lines), default=0),
        steps=steps,
    )


def _leaves(tree: Any, path: str = "") -> list[str]:
    """Returns the paths that ``parsing.differences`` gives the leaves of a description."""
    if isinstance(tree, list):
        tree = {str(i): item for i, item in enumerate(tree)}
    if not isinstance(tree, dict):
        return [path]
    return [
        leaf
        for key, value in tree.items()
        for leaf in _leaves(value, f"{path}.{key}" if path else key)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Prints the verdict; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.twin",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", type=Path, metavar="A", help="a run directory")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PATTERN",
        help="a field in which they may differ too, such as config.phases.0.freeze.**",
    )
    options = parser.parse_args(arguments)
    try:
        verdict = compare(options.a, options.b, options.allow)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    about = f"{options.a} and {options.b}"
    if verdict.faults:
        print(f"no twins: {about}\n  " + "\n  ".join(verdict.faults))
    else:
        print(
            f"twins: {about} saw the same rows in the same order: {verdict.steps} steps, "
            f"{verdict.compared} of them compared by digest"
        )
    for note in verdict.notes:
        print(f"note: {note}")
    if verdict.declared:
        print("differ as declared in\n  " + "\n  ".join(verdict.declared))
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
