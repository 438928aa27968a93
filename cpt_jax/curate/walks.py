"""Seeded walks over a table of codes, along its relations.

A walk begins at a code and goes on to one that it has not been to, related to the one where it
stands: first the kind of relation is drawn, of those that lead on (to the parent, to a child, to a
sibling: another child of the same parent), then the code, of those of that kind in the order of the
table. Where nothing leads on, it stands again at the code before. A table's codes are begun at in a
drawn order, all of them before one is again, but those in too small a part of it.

Walk i follows from the table, the seed and i, and from nothing else: it is the same on any machine,
and however many are made. One with the codes of a walk before it is passed over, and its number
with it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cpt_jax.curate.codings import Table
from cpt_jax.seeds import hash_seed

RELATIONS = ("parent", "child", "sibling")
IN_VAIN = 1000  # walks in a row that were there, after which there are no more


class Step(NamedTuple):
    """``to`` is the ``relation`` of ``at``: its parent, a child of it, a sibling."""

    at: str
    relation: str
    to: str


class Walk(NamedTuple):
    """The number of a walk, and its codes in their order, with what leads to each but the first."""

    number: int
    codes: tuple[str, ...]
    steps: tuple[Step, ...]


def related(table: Table, code: str, relation: str) -> list[str]:
    """The codes that are such relations of a code, in the order of the table."""
    parent = table.parents.get(code)
    if relation == "child":
        return list(table.children.get(code, ()))
    if parent is None:
        return []
    if relation == "parent":
        return [parent]
    return [sibling for sibling in table.children[parent] if sibling != code]


def walk_from(
    table: Table, start: str, length: int, draw: Callable[[int], int]
) -> tuple[tuple[str, ...], tuple[Step, ...]]:
    """The codes and the steps of a walk.

    Args:
      table: of the codes.
      start: a code in a part of the table of ``length`` codes at least.
      length: codes.
      draw: of a number n gives one from 0 to n - 1.
    """
    codes, steps, trail = [start], [], [start]
    while len(codes) < length:
        at = trail[-1]
        leads = {
            relation: [code for code in related(table, at, relation) if code not in codes]
            for relation in RELATIONS
        }
        kinds = [relation for relation in RELATIONS if leads[relation]]
        if not kinds:
            trail.pop()
            continue
        relation = kinds[draw(len(kinds))]
        to = leads[relation][draw(len(leads[relation]))]
        codes.append(to)
        trail.append(to)
        steps.append(Step(at, relation, to))
    return tuple(codes), tuple(steps)


def drawing(*parts: str | int) -> Callable[[int], int]:
    """What draws, the same for the same parts: the n-th draw is their hash with n."""
    count = -1

    def draw(n: int) -> int:
        nonlocal count
        count += 1
        return hash_seed(*parts, count) * n >> 32

    return draw


def walks(table: Table, seed: int, length: int) -> Iterator[Walk]:
    """The walks, of different codes each, for as long as there are such.

    It ends after `IN_VAIN` numbers in a row whose codes were there before.
    """
    starts = connected(table, length)
    seen, in_vain, number = set[bytes](), 0, 0
    order: list[str] = []
    while starts and in_vain < IN_VAIN:
        turn, place = divmod(number, len(starts))
        if place == 0:
            order = sorted(starts, key=lambda code: (hash_seed(seed, "start", turn, code), code))
        codes, steps = walk_from(table, order[place], length, drawing(seed, "walk", number))
        same = hashlib.blake2b("\n".join(sorted(codes)).encode(), digest_size=12).digest()
        if same in seen:  # a set of codes itself would take ten times the memory
            in_vain += 1
        else:
            in_vain = 0
            seen.add(same)
            yield Walk(number, codes, steps)
        number += 1


def connected(table: Table, least: int) -> Sequence[str]:
    """The codes of those parts of a table that have so many at least, in its order."""
    tops: dict[str, str] = {}
    for code in table.labels:
        top = code
        while top in table.parents:
            top = table.parents[top]
        tops[code] = top
    sizes: dict[str, int] = {}
    for top in tops.values():
        sizes[top] = sizes.get(top, 0) + 1
    return [code for code, top in tops.items() if sizes[top] >= least]
