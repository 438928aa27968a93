"""Names of parameters: patterns over dotted paths.

Parameters, gradients and Adam moments are flat dicts from path to array, for example
``model.layers.3.attn.Wqkv.kernel``. Whatever speaks of some of them (freezing, weight decay,
conversion, placement) does so with patterns on those paths, and a pattern that matches nothing
is an error: it is how a typo in an intervention would pass for a null result.
"""

import difflib
import functools
import re
from collections.abc import Iterable


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*|\*)", pattern)
    glob = {"**": ".*", "*": "[^.]*"}
    return re.compile("".join(glob.get(piece, re.escape(piece)) for piece in pieces))


def matches(pattern: str, path: str) -> bool:
    """Whether ``pattern`` names ``path``: ``*`` stays within a segment, ``**`` crosses dots."""
    return _compiled(pattern).fullmatch(path) is not None


def select(paths: Iterable[str], patterns: Iterable[str]) -> frozenset[str]:
    """Returns the paths that at least one pattern names.

    Raises:
      ValueError: for every pattern that names none of ``paths``, with the nearest ones that exist.
    """
    paths = list(paths)
    chosen: set[str] = set()
    faults = []
    for pattern in patterns:
        named = [path for path in paths if matches(pattern, path)]
        if not named:
            nearest = difflib.get_close_matches(pattern.replace("*", ""), paths, n=3, cutoff=0.3)
            faults.append(f"{pattern!r} (nearest parameters: {', '.join(nearest) or 'none'})")
        chosen.update(named)
    if faults:
        raise ValueError(f"patterns that match no parameter: {'; '.join(faults)}")
    return frozenset(chosen)


def layer_patterns(layers: str) -> tuple[str, ...]:
    """Returns one pattern per layer of a set such as ``0-7`` or ``0-2+5`` (both ends included).

    Raises:
      ValueError: for anything that is not numbers and ranges joined by ``+``.
    """
    numbers: list[int] = []
    for part in layers.split("+"):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ValueError(f"layer set {layers!r}: expected numbers or ranges like 0-7 or 0-2+5")
        numbers.extend(range(first, last + 1))
    return tuple(f"model.layers.{number}.**" for number in numbers)
