"""Reads the clinic's tables: terms with their grammatical forms, templates, sections.

An entity's surface is kept between two control characters until the note is finished (`mark`,
`unmark`), so that sentences are joined as plain strings and offsets are computed once.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from cpt_jax.data.clinic import diseases, english, french, lexicon

LABELS = {
    "D": "DISEASE",
    "S": "SYMPTOM",
    "N": "FINDING",
    "R": "DRUG",
    "O": "DOSE",
    "F": "FREQUENCY",
    "L": "LAB",
    "V": "VALUE",
    "P": "PROCEDURE",
}
_TOKEN = re.compile(r"\[(?:(\d):)?([^\]]*)\]|<([\d.]+)-([\d.]+)(?:/(\d+))?>")
_SENTENCE_START = re.compile(r"(^|[.?!] |\n)(\x02.)?([a-zà-ÿœ])")
_VOWELS = frozenset("aeiouhàâéèêëîïôûœ")
# Endings by gender and number: article, participle, adjective in -n, and the verb forms.
_FRENCH = {
    "m": ("un ", "le ", "du ", "ce ", "", "", False),
    "f": ("une ", "la ", "de la ", "cette ", "e", "ne", False),
    "mp": ("des ", "les ", "des ", "ces ", "s", "s", True),
    "fp": ("des ", "les ", "des ", "ces ", "es", "nes", True),
}

Template = tuple[Any, ...]
Rng = Callable[[], float]


def mark(code: str, surface: str) -> str:
    """Returns the surface marked as an entity; a lower-case code says that it is negated."""
    return f"\x02{code}{surface}\x03"


def unmark(marked: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the plain text and its entities, with start and end in characters of that text."""
    first, *rest = marked.split("\x02")
    pieces, entities, position = [first], [], len(first)
    for piece in rest:
        surface, _, after = piece[1:].partition("\x03")
        end = position + len(surface)
        label = LABELS[piece[0].upper()]
        entities.append(
            {"start": position, "end": end, "label": label, "negated": piece[0].islower()}
        )
        pieces += [surface, after]
        position = end + len(after)
    return "".join(pieces), entities


def capitalise(text: str) -> str:
    """Returns the marked text with a capital at the start of each sentence and line."""
    return _SENTENCE_START.sub(lambda m: m[1] + (m[2] or "") + m[3].upper(), text)


class Term:
    """One concept in one language: its marked surface with articles and agreement.

    `un`, `le`, `de`, `du`, `ce` and `de_un` are the surface after that word; `e`, `ne`, `s`, `a`,
    `est`, `met` and `refl` are what agrees with it. In English `un` keeps the article the table
    gives, `le` is `the`, and the others are the bare surface.
    """

    __slots__ = (
        *("bare", "ce", "code", "de", "de_un", "du", "language", "le", "text", "un"),
        *("a", "e", "est", "met", "ne", "refl", "s"),
    )

    def __init__(self, language: str, code: str, text: str):
        self.language, self.code, self.text = language, code, text
        if language == "en":
            article = re.match(r"(an? |the )?", text)
            surface = text[article.end() :] if article else text
            self.bare = self.de = self.du = self.ce = self.de_un = mark(code, surface)
            self.un = text[: len(text) - len(surface)] + self.bare
            self.le = "the " + self.bare
            self.e = self.ne = self.s = ""
            plural = " and " in surface or re.search("[^isu]s$", surface)
            self.a, self.est = ("have", "are") if plural else ("has", "is")
            self.met, self.refl = "", ""
            return
        gender, surface = text.split(" ", 1)
        un, le, du, ce, self.e, self.ne, plural = _FRENCH[gender]
        elides = surface[0].lower() in _VOWELS
        surface = surface.removeprefix("*")
        self.bare = mark(code, surface)
        self.de = ("d'" if elides else "de ") + self.bare
        if elides and not plural:
            le, du, ce = "l'", "de l'", "cet " if gender == "m" else "cette "
        self.un, self.le, self.du, self.ce = (w + self.bare for w in (un, le, du, ce))
        self.de_un = self.de if plural else f"d'{self.un}"
        self.s = "s" if plural else ""
        self.a, self.est, self.met, self.refl = (
            ("ont", "sont", "mettent", "se sont") if plural else ("a", "est", "met", "s'est")
        )

    def negated(self) -> "Term":
        """Returns the same term, marked as negated."""
        return Term(self.language, self.code.lower(), self.text)


def compile_template(text: str) -> Template:
    """Returns the parts of a template: strings, (group, alternatives), (low, count, step, digits).

    Alternatives are compiled templates; numbers are drawn as low + step * (0 .. count - 1), in
    units of the last digit written.
    """
    parts: list[Any] = []
    position = groups = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        number, options, low, high, step = match.groups()
        if options is None:
            digits = len(low.partition(".")[2])
            first, last = (round(float(x) * 10**digits) for x in (low, high))
            count = (last - first) // int(step or 1) + 1
            parts.append((first, count, int(step or 1), digits))
        else:
            parts.append((int(number or groups + 1) - 1, tuple(map(_option, options.split("|")))))
            groups += 1
    parts.append(text[position:])
    return tuple(part for part in parts if part != "")


def _option(text: str) -> Template:
    return compile_template(text) if "<" in text else (text,)


def fill(template: Template, rng: Rng, point: str, draws: tuple[int, ...] = ()) -> str:
    """Returns the template's text: alternatives taken from `draws` where given, else at random.

    `point` is the decimal point of the language.
    """
    out = []
    for part in template:
        if type(part) is str:
            out.append(part)
        elif len(part) == 2:
            group, options = part
            pick = draws[group] % len(options) if draws else int(rng() * len(options))
            out.append(fill(options[pick], rng, point, draws))
        else:
            low, count, step, digits = part
            out.append(decimal(low + step * int(rng() * count), digits, point))
    return "".join(out)


def decimal(units: int, digits: int, point: str) -> str:
    """Returns units / 10**digits written with that many decimals."""
    if not digits:
        return str(units)
    text = f"{units:0{digits + 1}d}"
    return f"{text[:-digits]}{point}{text[-digits:]}"


def lines(table: str) -> list[str]:
    """Returns the lines of a table, with the indented ones joined to the line above."""
    return re.sub(r"\n +", " ", table.strip("\n")).splitlines()


def items(table: str) -> Iterator[tuple[str, str]]:
    """Yields (key, rest) for each `key = rest` or `key|rest` of a table."""
    for item in " ; ".join(lines(table)).split(" ; "):
        key, separator, rest = item.partition(" = ")
        if separator:
            yield key, rest
        else:
            key, _, rest = item.partition("|")
            yield key, f"{key} / {key}|{rest}"


@dataclass(frozen=True, slots=True)
class Drug:
    """A drug in one language, with the doses it is given at (marked) in increasing order."""

    name: Term
    doses: list[str]
    route: str
    frequencies: list[str]


@dataclass(frozen=True, slots=True)
class Lab:
    """A laboratory test: ranges as (first, last) in units of the last decimal."""

    name: Term
    unit: str
    digits: int
    normal: tuple[int, int]
    high: tuple[int, int]
    low: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Disease:
    """A disease in one language; templates still hold their alternatives."""

    specialty: str
    operation: str | None
    sex: str | None
    name: Template
    short: Term
    symptoms: list[str]
    drugs: list[str]
    labs: list[tuple[str, str]]
    signs: list[Template] = field(default_factory=list)
    findings: list[tuple[str, Template]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a note: headings, and rows of (may be left out, wordings)."""

    headings: tuple[Template, ...]
    rows: list[tuple[bool, list[Template]]]


@dataclass(frozen=True, slots=True)
class Language:
    """Every table of the clinic in one language."""

    code: str
    point: str
    words: ModuleType
    drugs: dict[str, Drug]
    labs: dict[str, Lab]
    symptoms: dict[str, Term]
    procedures: dict[str, tuple[bool, Term]]
    diseases: dict[str, Disease]
    operations: dict[str, tuple[Term, list[Template]]]
    specialties: dict[str, dict[str, Any]]
    complications: list[Term]
    old_operations: list[Term]
    routes: dict[str, list[str]]
    frequencies: dict[str, list[str]]
    sections: dict[str, Section]


@cache
def load(code: str) -> Language:
    """Returns the clinic's tables in `fr` or `en`."""
    side = 0 if code == "fr" else 1

    def half(text: str) -> str:
        parts = text.split(" / ")
        return parts[side if len(parts) == 2 else 0].strip()

    def term(label: str, text: str) -> Term:
        return Term(code, label, half(text))

    def words(text: str) -> list[str]:
        return half(text).split("|")

    point = "," if code == "fr" else "."
    module = french if code == "fr" else english
    return Language(
        code=code,
        point=point,
        words=module,
        drugs={key: _drug(rest, half, code, point) for key, rest in items(lexicon.DRUGS)},
        labs={key: _lab(rest, half, code) for key, rest in items(lexicon.LABS)},
        symptoms={key: term("S", rest) for key, rest in items(lexicon.SYMPTOMS)},
        procedures={
            key: (rest[0] == "i", term("P", rest[2:] if side == 0 else rest))
            for key, rest in items(lexicon.PROCEDURES)
        },
        diseases=_diseases(half, code),
        operations=_operations(half, code),
        specialties=_specialties(half, code),
        complications=[term("D", text) for text in _bare_items(lexicon.COMPLICATIONS)],
        old_operations=[term("P", text) for text in _bare_items(lexicon.OLD_OPERATIONS)],
        routes={key: words(rest) for key, rest in items(lexicon.ROUTES)},
        frequencies={key: words(rest) for key, rest in items(lexicon.FREQUENCIES)},
        sections=_sections(module.SECTIONS),
    )


def _bare_items(table: str) -> list[str]:
    return " ; ".join(lines(table)).split(" ; ")


def _drug(rest: str, half: Callable[[str], str], code: str, point: str) -> Drug:
    names, doses, route, frequencies = rest.split("|")
    *amounts, unit = doses.split()
    if code == "en":
        unit = unit.replace("MUI", "million units").replace("UI", "units")
    name = half(names)
    return Drug(
        Term(code, "R", name if code == "en" else f"m {name}"),
        [mark("O", f"{amount.replace('.', point)} {unit}") for amount in amounts],
        route,
        frequencies.split(),
    )


def _lab(rest: str, half: Callable[[str], str], code: str) -> Lab:
    names, unit, *ranges = rest.split("|")
    if code == "en":
        unit = unit.replace("UI", "IU").replace(",", ".")
    digits = max(len(x.partition(".")[2]) for r in ranges for x in r.split("-"))
    bounds = [
        tuple(round(float(x) * 10**digits) for x in r.split("-")) if r != "-" else (0, 0)
        for r in ranges
    ]
    return Lab(Term(code, "L", half(names)), unit, digits, *bounds)


def _diseases(half: Callable[[str], str], code: str) -> dict[str, Disease]:
    table: dict[str, Disease] = {}
    key = ""
    for line in lines(diseases.DISEASES):
        tag, rest = line[0], line[1:].strip()
        if tag == "@":
            head, name, short = rest.split(" = ")
            key, specialty, *options = head.split()
            sex = next((x for x in options if x in ("male", "female")), None)
            operation = next((x for x in options if x != sex), None)
            name, short = compile_template(half(name)), Term(code, "D", half(short))
            table[key] = Disease(specialty, operation, sex, name, short, [], [], [])
        elif tag == ">":
            symptoms, drugs, labs = (part.split() for part in rest.split(" | "))
            table[key].symptoms.extend(symptoms)
            table[key].drugs.extend(drugs)
            table[key].labs.extend((lab[:-1], lab[-1]) for lab in labs)
        elif tag == "+":
            table[key].signs.extend(compile_template(half(x)) for x in rest.split(" ; "))
        else:
            procedure, findings = rest.split(": ", 1)
            table[key].findings.extend(
                (procedure, compile_template(half(x))) for x in findings.split(" ; ")
            )
    return table


def _operations(half: Callable[[str], str], code: str) -> dict[str, tuple[Term, list[Template]]]:
    table: dict[str, tuple[Term, list[Template]]] = {}
    steps: list[Template] = []
    for line in lines(lexicon.OPERATIONS):
        if line[0] == "@":
            key, name = line[1:].split(" = ")
            steps = []
            table[key] = (Term(code, "P", half(name)), steps)
        else:
            steps.append(compile_template(half(line)))
    return table


def _specialties(half: Callable[[str], str], code: str) -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    entry: dict[str, Any] = {}
    for line in lines(lexicon.SPECIALTY_SENTENCES):
        if line[0] == "@":
            key, unit = line[1:].split(" = ")
            # A ward is no entity: its marks are taken off.
            entry = table[key] = {"unit": unmark(Term(code, "P", half(unit)).bare)[0]}
        else:
            entry.setdefault(line[0], []).append(compile_template(half(line[2:])))
    return table


def _sections(text: str) -> dict[str, Section]:
    table: dict[str, Section] = {}
    rows: list[tuple[bool, list[Template]]] = []
    for line in lines(text):
        tag, rest = line[0], line[1:].strip()
        if tag == "#":
            name, _, headings = line[3:].partition(":")
            rows = []
            compiled = [compile_template(h.strip()) for h in headings.split(" | ") if h.strip()]
            table[name] = Section(tuple(compiled), rows)
        elif tag == "|":
            rows[-1][1].append(compile_template(rest.replace("\\n", "\n")))
        else:
            rows.append((tag == "?", [compile_template(rest.replace("\\n", "\n"))]))
    return table
