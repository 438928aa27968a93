"""Which devices of a mesh exchange with one another in a collective, from XLA's text of it."""

import math
import re

import numpy as np

Groups = tuple[tuple[int, ...], ...]


def replica_groups(text: str) -> Groups:
    """Returns the groups that a collective's attributes name, in any of XLA's forms.

    Devices are numbered as in the program's mesh; the pairs of a permute are groups as well. No
    group at all means that all devices are one.

    Raises: ValueError for a form that is not known: it must not count as all devices.
    """
    if found := re.search(r"(?:replica_groups|source_target_pairs)=\{(\{.*?\})\}", text):
        return tuple(
            tuple(int(n) for n in group.split(",") if n)
            for group in re.findall(r"\{([\d,]*)\}", found[1].replace(" ", ""))
        )
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=(\[[\d,]+\](?:T\([\d,]+\))?)", text):
        return _rows(_iota(found[2]).reshape(ints(found[1])))
    form = r"replica_groups=mesh\[(.*?)\](?:, device_ids=\((.*?\)?)\))? \{(.*?)\}"
    if found := re.search(form, text):
        return _mesh_groups(found[1], found[2], found[3])
    if "replica_groups={}" in text or "replica_groups" not in text:
        return ()
    raise ValueError(f"replica groups of an unknown form: {text[:200]}")


def _iota(text: str) -> np.ndarray:
    """Numbers from 0 in an order that is written `[4,2]T(1,0)`: counted in 4 x 2, transposed."""
    found = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    assert found, text
    dims, order = ints(found[1]), ints(found[2])
    numbers = np.arange(math.prod(dims)).reshape(dims)
    return numbers.transpose(order) if order else numbers


def _mesh_groups(axes: str, devices: str | None, grouped: str) -> Groups:
    """Groups along some axes of a mesh: `'a'=2,'b'=4`, its devices, and `'b'` or `'b':(2)2`.

    The last is a part of an axis: of its 4 devices, 2 lie before that part and it has 2.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    wanted = {
        name: (int(before or 1), int(size or sizes[name]))
        for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", grouped)
    }
    dims, inside = [], []
    for name, size in sizes.items():
        before, part = wanted.get(name, (1, 1))
        inside.append(len(dims) + 1)
        dims += [before, part, size // before // part]
    if devices is None:
        numbers = np.arange(math.prod(dims))
    elif devices.startswith("["):
        numbers = _iota(devices).reshape(-1)
    else:
        numbers = np.array(ints(devices))
    outside = [dim for dim in range(len(dims)) if dim not in inside]
    size = math.prod(dims[dim] for dim in inside)
    return _rows(numbers.reshape(dims).transpose(*outside, *inside).reshape(-1, size))


def _rows(groups: np.ndarray) -> Groups:
    return tuple(map(tuple, groups.tolist()))


def ints(text: str | None) -> tuple[int, ...]:
    """Returns the numbers between commas; none of None."""
    return tuple(int(n) for n in text.split(",")) if text else ()
