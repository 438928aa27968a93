"""The facts of an invented patient, before any language: a disease and what it brings along."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cpt_jax.data.clinic.grammar import Rng, load

T = TypeVar("T")

# What a patient of any specialty may also have.
_CHRONIC = ("htn", "t2dm", "hypot", "gout", "ida", "depr", "knee", "copd", "ckd", "af")
_ROUTINE = ("na", "k", "hb", "plt", "creat", "glucose", "alt", "wbc", "urea", "ca")
_FIRST_DAY = datetime.date(2011, 1, 3).toordinal()


def pick(rng: Rng, options: Sequence[T]) -> T:
    """Returns one of the options; only `random()` is used, whose stream Python guarantees."""
    return options[int(rng() * len(options))]


def sample(rng: Rng, options: Sequence[T], count: int) -> list[T]:
    """Returns `count` different options (all of them if there are fewer), in random order."""
    pool = list(options)
    return [pool.pop(int(rng() * len(pool))) for _ in range(min(count, len(pool)))]


@dataclass(slots=True)
class Case:
    """The facts of a patient, by keys of the tables and numbers; the same in every language."""

    specialty: str
    disease: str
    male: bool
    age: int
    first_day: int  # ordinal of a date
    stay: int  # days
    draws: tuple[int, ...]  # which alternative the n-th bracket of the disease's terms takes
    seed: int  # of the numbers in the disease's terms
    symptoms: list[str]
    absent: list[str]
    excluded: list[str]
    doses: dict[str, tuple[int, str]]  # drug: index of its dose, frequency; in order of mention
    comorbidities: list[tuple[str, str, int]]  # disease, its drug, year
    labs: dict[str, tuple[str, float]]  # test: "+" or "-", position in that range
    routine: dict[str, float]


def draw_case(rng: Rng, specialty: str, operative: bool) -> Case:
    """Returns a case of the specialty; an operative one has a disease with an operation."""
    tables = load("en")  # keys and links do not depend on the language
    own = {key: d for key, d in tables.diseases.items() if d.specialty == specialty}
    key = pick(rng, [key for key, d in own.items() if d.operation or not operative])
    disease = own[key]
    comorbidities = sample(rng, [c for c in _CHRONIC if c != key], 1 + int(rng() * 3))
    male = disease.sex == "male" if disease.sex else rng() < 0.5
    age = 40 + int(rng() * 53)
    present = sample(rng, disease.symptoms, 3 + int(rng() * 2))
    others = [s for d in own.values() for s in d.symptoms if s not in disease.symptoms]
    home = [(c, pick(rng, tables.diseases[c].drugs), 1995 + int(rng() * 15)) for c in comorbidities]
    drugs = disease.drugs + [drug for _, drug, _ in home]
    other_labs = [k for d in own.values() for k, _ in d.labs] + list(_ROUTINE)
    known = dict(disease.labs)
    return Case(
        specialty=specialty,
        disease=key,
        male=male,
        age=age,
        first_day=_FIRST_DAY + int(rng() * 5000),
        stay=3 + int(rng() * 18),
        draws=tuple(int(rng() * 840) for _ in range(3)),
        seed=int(rng() * 2**32),
        symptoms=present,
        absent=sample(rng, sorted(set(others)), 5),
        excluded=sample(rng, [k for k in own if k != key], 3),
        doses={
            drug: (
                int(rng() * len(tables.drugs[drug].doses)),
                pick(rng, tables.drugs[drug].frequencies),
            )
            for drug in dict.fromkeys(drugs)
        },
        comorbidities=home,
        labs={lab: (sign, rng()) for lab, sign in known.items()},
        routine={k: rng() for k in sorted(set(other_labs) - set(known))},
    )
