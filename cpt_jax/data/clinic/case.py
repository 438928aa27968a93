"""The facts of an invented patient, before any language: a disease and what it brings along."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from cpt_jax.data.clinic.grammar import Rng, load

T = TypeVar("T")

# What a patient of any specialty may also have.
_CHRONIC = ("htn", "t2dm", "hypot", "gout", "ida", "depr", "knee", "copd", "ckd", "af")
# Over within weeks: nobody keeps a record of years about them.
_BRIEF = {"append", "chole", "hernia", "gout", "pneumonia", "pyelo", "cellul", "colic", "pericard"}
_ROUTINE = ("na", "k", "hb", "plt", "creat", "glucose", "alt", "wbc", "urea", "ca")
_FIRST_DAY = datetime.date(2011, 1, 3).toordinal()

# What a patient allergic to it cannot be given, by a word of the allergy in either language.
ALLERGENS = {
    "nicil": ("coamoxiclav", "piptazo", "cloxacillin"),
    "sul": ("cotrimoxazole",),
    "code": ("morphine", "tramadol"),
    "codé": ("morphine", "tramadol"),
    "tramadol": ("morphine", "tramadol"),
    "AINS": ("ibuprofen", "ketoprofen", "aspirin"),
    "NSAID": ("ibuprofen", "ketoprofen", "aspirin"),
}


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


@cache
def _options(specialty: str, disease: str | None) -> tuple[list[str], list[str], list[str]]:
    """Returns the specialty's diseases, and the symptoms and tests that are not the disease's."""
    diseases = load("en").diseases  # keys and links do not depend on the language
    own = {key: entry for key, entry in diseases.items() if entry.specialty == specialty}
    symptoms = {s for entry in own.values() for s in entry.symptoms}
    labs = {lab for entry in own.values() for lab, _ in entry.labs} | set(_ROUTINE)
    if disease is not None:
        symptoms -= set(diseases[disease].symptoms)
        labs -= {lab for lab, _ in diseases[disease].labs}
    return list(own), sorted(symptoms), sorted(labs)


def draw_case(rng: Rng, specialty: str, *, operative: bool, lasting: bool) -> Case:
    """Returns a case of the specialty.

    An operative one has a disease with an operation, a lasting one a disease followed for years.
    """
    tables = load("en")
    keys = _options(specialty, None)[0]
    able = [key for key in keys if tables.diseases[key].operation or not operative]
    key = pick(rng, [key for key in able if key not in _BRIEF or not lasting])
    disease = tables.diseases[key]
    _, absent, other_labs = _options(specialty, key)
    home = [
        (other, pick(rng, tables.diseases[other].drugs[:2]), 1995 + int(rng() * 15))
        for other in sample(rng, [c for c in _CHRONIC if c != key], 1 + int(rng() * 3))
    ]
    doses = {
        name: (int(rng() * len(drug.doses)), pick(rng, drug.frequencies))
        for name in dict.fromkeys(disease.drugs + [drug for _, drug, _ in home])
        for drug in (tables.drugs[name],)
    }
    return Case(
        specialty=specialty,
        disease=key,
        male=disease.sex == "male" if disease.sex else rng() < 0.5,
        age=40 + int(rng() * 53),
        first_day=_FIRST_DAY + int(rng() * 5000),
        stay=3 + int(rng() * 18),
        draws=tuple(int(rng() * 840) for _ in range(3)),
        seed=int(rng() * 2**32),
        symptoms=sample(rng, disease.symptoms, 3 + int(rng() * 2)),
        absent=sample(rng, absent, 5),
        excluded=sample(rng, [k for k in keys if k not in {key, *(c for c, *_ in home)}], 3),
        doses=doses,
        comorbidities=home,
        labs={lab: (sign, rng()) for lab, sign in disease.labs},
        routine={lab: rng() for lab in other_labs},
    )
