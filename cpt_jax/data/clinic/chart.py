"""One invented patient's chart: the words that a note's sentences ask for.

A `Case` knows no language: the same case can be written in French and in English. A `Chart` is a
case in one language; it is a mapping whose missing keys are the slots of the sentences, drawn when
a sentence asks for them and kept until the sentence ends. What must stay the same through a note
(names, dates, doses, values, sides) is kept in the chart.
"""

import datetime
import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from cpt_jax.data.clinic.case import ALLERGENS, Case, pick, sample
from cpt_jax.data.clinic.grammar import (
    Drug,
    Language,
    Rng,
    Template,
    Term,
    capitalise,
    decimal,
    fill,
    mark,
)

T = TypeVar("T")

# "a" before a number that is read with a vowel, which may be the start of an entity.
_ARTICLE = re.compile(r"\b([Aa])( (?:\x02.)?(?:8\d*|11|18|eight|eleven)\b)")


class Chart(dict[str, Any]):
    """A case in one language; see the module's docstring."""

    def __init__(self, language: Language, case: Case, rng: Rng):
        super().__init__()
        self.language, self.case, self.rng = language, case, rng
        self.french = language.code == "fr"
        self.disease = language.diseases[case.disease]
        self.dose = {drug: index for drug, (index, _) in case.doses.items()}
        self.severity = dict.fromkeys(case.labs, 1.0)
        self.acute = 1.0  # what the vital signs show of the disease, falling with time
        self.today = case.first_day
        self.style = int(rng() * 6)
        self.turns: dict[str, int] = {}
        self.volatile: list[str] = []
        self._resolve()
        self._introduce()
        self._write_constants()

    # -- facts in words ------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Draws the numbers and alternatives of the disease's terms, once per patient."""
        case, code = self.case, self.language.code
        numbers = random.Random(case.seed).random

        def term(label: str, template: Template) -> Term:
            return Term(code, label, fill(template, numbers, self.language.point, case.draws))

        self["dx"] = term("D", self.disease.name)
        self["ref"] = self.disease.short
        self.signs = [term("N", sign) for sign in self.disease.signs]
        self.findings = [(name, term("N", found)) for name, found in self.disease.findings]
        if self.disease.operation:
            self["op"], steps = self.language.operations[self.disease.operation]
            filled = (fill(step, numbers, self.language.point, case.draws) for step in steps)
            self["steps"] = " ".join(filled)
        procedures = self.language.procedures
        films = [f for f in self.findings if procedures[f[0]][0]] or self.findings
        name, self["filmfinding"] = pick(numbers, films)
        self["film"] = procedures[name][1]

    def _introduce(self) -> None:
        """Names the people and the places, with the pronouns and endings that agree."""
        case, rng, words = self.case, self.rng, self.language.words
        male = case.male
        patient, doctor, other = sample(rng, words.LASTNAMES.split(), 3)
        self["age"], self["hospital"] = str(case.age), pick(rng, words.HOSPITALS.split("|"))
        self["unit"] = self.language.specialties[case.specialty]["unit"]
        self["ipp"] = f"{int(rng() * 9_000_000) + 1_000_000}"
        self["drname"] = f"Dr {doctor}"
        if self.french:
            self["dr"], self["gp"] = f"le Dr {doctor}", f"le Dr {other}"
            self["M"] = f"{'M.' if male else 'Mme'} {patient}"
            endings = {"e": "", "ne": "", "se": "r", "se2": "x", "ere": "er", "un": "un"}
            if not male:
                endings = {"e": "e", "ne": "ne", "se": "se", "se2": "se", "ere": "ère", "un": "une"}
            self.update(endings, il="il" if male else "elle")
            self["le"] = "le patient" if male else "la patiente"
            self["spouse"] = "son épouse" if male else "son époux"
        else:
            self["dr"], self["gp"] = f"Dr {doctor}", f"Dr {other}"
            self["M"] = f"{'Mr' if male else 'Mrs'} {patient}"
            he, him, his = ("he", "him", "his") if male else ("she", "her", "her")
            self.update(he=he, him=him, his=his, man="man" if male else "woman")

    def _write_constants(self) -> None:
        """Writes what is said the same way each time it is said."""
        case, rng, words = self.case, self.rng, self.language.words
        day = case.first_day
        self["date"] = self["datein"] = self.date(day)
        self["day"] = "0"
        self["opyear"] = str(datetime.date.fromordinal(day).year - 2 - int(rng() * 30))
        self["before"] = self.date(day - 9 - int(rng() * 80))
        self["birth"] = self.date(day - case.age * 365 - 25 - int(rng() * 330), numeric=True)
        number, unit = pick(rng, words.NUMBERS.split()), pick(rng, ("day", "week", "month"))
        self["dur"] = f"{number} {words.UNITS[unit][1]}"
        self["durhyphen"] = f"{number}-{unit}"
        self["allergy"] = self._allergy()
        self["como"] = self.join([self._comorbidity(*entry) for entry in case.comorbidities])

    def _allergy(self) -> str:
        """Returns an allergy to none of the patient's drugs."""
        given = set(self.case.doses)
        while True:
            text = self.phrase("allergy_kind")
            if not any(k in text and given.intersection(v) for k, v in ALLERGENS.items()):
                return text

    def _comorbidity(self, key: str, drug: str, year: int) -> str:
        self["c"], self["cdrug"] = self.language.diseases[key].short, self._drug(drug).name.bare
        self["year"] = str(year)
        return self.phrase("comorbidity")

    def _drug(self, key: str) -> Drug:
        return self.language.drugs[key]

    def date(self, ordinal: int, numeric: bool = False) -> str:
        """Returns a date as this note writes dates."""
        day = datetime.date.fromordinal(ordinal)
        if numeric or self.style % 2:
            return f"{day.day:02d}/{day.month:02d}/{day.year}"
        first = "1er" if self.french and day.day == 1 else str(day.day)
        return f"{first} {self.language.words.MONTHS.split()[day.month - 1]} {day.year}"

    def advance(self, days: int) -> None:
        """Moves to a later day, on which the disease is less acute."""
        self.today += days
        self.acute *= 0.6 if days < 5 else 0.1
        self["date"] = self.date(self.today)
        self["day"] = str(self.today - self.case.first_day)

    def join(self, parts: Sequence[str], last: str | None = None) -> str:
        """Returns `a, b and c` in the chart's language; `last` replaces its `and`."""
        word = last or ("et" if self.french else "and")
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"

    def turn(self, name: str, options: Sequence[T]) -> T:
        """Returns the options one after the other, from a random first one."""
        turn = self.turns.get(name, int(self.rng() * len(options)))
        self.turns[name] = turn + 1
        return options[turn % len(options)]

    # -- sections ------------------------------------------------------------------------------

    def phrase(self, name: str) -> str:
        """Returns one wording of a section that is a single sentence, without its full stop."""
        wording = pick(self.rng, self.language.sections[name].rows[0][1])
        return fill(wording, self.rng, self.language.point).format_map(self)

    def section(self, name: str, detail: float) -> str:
        """Returns a section with its heading; sentences that may be left out stay with `detail`."""
        section, point = self.language.sections[name], self.language.point
        sentences = []
        for optional, wordings in section.rows:
            if optional and self.rng() >= detail:
                continue
            sentence = fill(pick(self.rng, wordings), self.rng, point).format_map(self)
            for key in self.volatile:
                self.pop(key, None)
            self.volatile.clear()
            sentences.append(sentence.rstrip(" "))
        # A list starts and ends with a line break of its own.
        text = " ".join(s for s in sentences if s).replace(" \n", "\n").replace("\n ", "\n")
        body = capitalise(text.strip())
        if not self.french:
            body = _ARTICLE.sub(r"\1n\2", body)
        if not section.headings:
            return body
        heading = fill(pick(self.rng, section.headings), self.rng, point).format_map(self)
        return self._headed(heading, body, "\n" if text[0] == "\n" else " ")

    def _headed(self, heading: str, body: str, gap: str) -> str:
        colon = " :" if self.french else ":"
        if self.style < 2:
            return f"{heading}{colon}{gap}{body}"
        if self.style < 4 and not any(map(str.isdigit, heading)):
            heading = heading.upper()
        return f"{heading}{colon if self.style == 3 else ''}\n{body}"

    def __missing__(self, key: str) -> Any:
        slot = getattr(self, f"_slot_{key}", None)
        value = slot() if slot else self.phrase(key)
        self[key] = value
        self.volatile.append(key)
        return value

    # -- symptoms, signs, findings -------------------------------------------------------------

    def _symptom(self, key: str) -> Term:
        return self.language.symptoms[key]

    def _slot_sx(self) -> str:
        return self.join([self._symptom(key).un for key in self.case.symptoms])

    def _slot_sx0(self) -> str:
        return self.join([self._symptom(key).bare for key in self.case.symptoms])

    def _slot_sx1(self) -> str:
        return self._symptom(self.turn("sy", self.case.symptoms)).bare

    def _slot_sy(self) -> Term:
        return self._symptom(self.turn("sy", self.case.symptoms))

    def _slot_gone(self) -> str:
        return self._symptom(self.turn("sy", self.case.symptoms)).negated().de

    def _slot_nox(self) -> Term:
        return self._symptom(self.turn("nox", self.case.absent)).negated()

    _slot_nox2 = _slot_nox

    def _slot_nosx1(self) -> str:
        return self._slot_nox().de

    def _slot_nosx(self) -> str:
        absent = [self._slot_nox().de for _ in range(1 + int(self.rng() * 3))]
        return self.join(absent, "ni" if self.french else "or")

    def _slot_nodx(self) -> Term:
        key = self.turn("nodx", self.case.excluded)
        return self.language.diseases[key].short.negated()

    def _slot_sign(self) -> Term:
        return self.turn("sign", self.signs)

    def _slot_signs(self) -> str:
        return self.join([sign.un for sign in self.signs])

    def _slot_proc(self) -> Term:
        name, self["finding"] = self.turn("proc", self.findings)
        return self.language.procedures[name][1]

    def _slot_morefound(self) -> str:
        return self.phrase("more") if len(self.findings) > 1 else ""

    def _slot_opsentence(self) -> str:
        return self.phrase("opsentence") if self.disease.operation else ""

    def _slot_oldop(self) -> Term:
        return pick(self.rng, self.language.old_operations)

    def _slot_complication(self) -> Term:
        return pick(self.rng, self.language.complications)

    def _specialty(self, kind: str) -> str:
        sentences = self.language.specialties[self.case.specialty][kind]
        return fill(self.turn(kind, sentences), self.rng, self.language.point)

    def _slot_exam_s(self) -> str:
        return self._specialty("e")

    def _slot_course_s(self) -> str:
        return self._specialty("c")

    def _slot_plan_s(self) -> str:
        return self._specialty("p")

    def _slot_family(self) -> str:
        text, link, whom = re.split("( chez | in |$)", self._specialty("f"), maxsplit=1)
        return f"{Term(self.language.code, 'D', text).un}{link}{whom}"

    # -- drugs ---------------------------------------------------------------------------------

    def _line(self, key: str) -> str:
        drug, (_, frequency) = self._drug(key), self.case.doses[key]
        routes, often = self.language.routes[drug.route], self.language.frequencies[frequency]
        route, frequency = routes[self.style % len(routes)], often[self.style % len(often)]
        return f"{drug.name.bare} {drug.doses[self.dose[key]]} {route} {mark('F', frequency)}"

    def _slot_drug(self) -> str:
        return self._line(self.turn("drug", self.disease.drugs))

    def _slot_drugname(self) -> Term:
        return self._drug(self.turn("drug", self.disease.drugs)).name

    def _slot_rx(self) -> str:
        return self.join([self._line(key) for key in self.disease.drugs[:3]])

    def _slot_homerx(self) -> str:
        return self.join([self._line(key) for key in dict.fromkeys(self._home())])

    def _slot_rxlist(self) -> str:
        keys = dict.fromkeys(self.disease.drugs[:5] + self._home())
        return "\n" + "\n".join(f"- {self._line(key)}" for key in keys) + "\n"

    def _home(self) -> list[str]:
        return [drug for _, drug, _ in self.case.comorbidities]

    def _slot_change(self) -> str:
        key = self.turn("change", self.disease.drugs)
        drug, old = self._drug(key), self.dose[key]
        self["drugname"] = drug.name
        if len(drug.doses) == 1:
            return self._forget("keep", "drugname")
        self.dose[key] = new = old - 1 if old and self.rng() < 0.5 else (old + 1) % len(drug.doses)
        self["dose"], self["dose2"] = drug.doses[old], drug.doses[new]
        return self._forget("raise" if new > old else "lower", "drugname")

    def _forget(self, phrase: str, *keys: str) -> str:
        """Returns the phrase, and forgets the slots that were set for it."""
        text = self.phrase(phrase)
        for key in keys:
            self.pop(key, None)
        return text

    # -- laboratory and vital signs ------------------------------------------------------------

    def _value(self, key: str) -> str:
        lab = self.language.labs[key]
        first, last = lab.normal
        if key in self.case.labs:
            sign, position = self.case.labs[key]
            low, high = lab.high if sign == "+" else lab.low
            middle = (first + last) // 2
            # Squared: most values lie near the normal end, a few are extreme.
            far = low + (high - low) * position * position
            units = int(middle + (far - middle) * self.severity[key])
        else:
            units = int(first + (last - first) * self.case.routine[key])
        close = not lab.unit or lab.unit[0] == "/" or (lab.unit == "%" and not self.french)
        space = "" if close else " "
        return mark("V", f"{decimal(units, lab.digits, self.language.point)}{space}{lab.unit}")

    def _measured(self, keys: Sequence[str]) -> str:
        at = " à " if self.french else " "
        labs = self.language.labs
        return self.join([f"{labs[key].name.bare}{at}{self._value(key)}" for key in keys])

    def _slot_labs(self) -> str:
        return self._measured(sample(self.rng, list(self.case.labs), 2 + int(self.rng() * 3)))

    def _slot_normlab(self) -> str:
        return self._measured(sample(self.rng, list(self.case.routine), 1 + int(self.rng() * 2)))

    def _slot_labname(self) -> Term:
        return self.language.labs[self.turn("lab", list(self.case.labs))].name

    def _slot_labtrend(self) -> str:
        key = self.turn("lab", list(self.case.labs))
        self["labname"], self["old"] = self.language.labs[key].name, self._value(key)
        lower = self.severity[key] * (0.3 + 0.4 * self.rng())
        self.severity[key] = lower if lower > 0.1 else 0.7
        self["new"] = self._value(key)
        return self._forget("labtrend", "labname")

    def _slot_labtable(self) -> str:
        normal = sample(self.rng, list(self.case.routine), 3 + int(self.rng() * 5))
        colon = " : " if self.french else ": "
        rows = []
        for key in [*self.case.labs, *normal]:
            lab = self.language.labs[key]
            low, high = (decimal(x, lab.digits, self.language.point) for x in lab.normal)
            rows.append(f"{lab.name.bare}{colon}{self._value(key)} (N {low}-{high})")
        return "\n" + "\n".join(rows) + "\n"

    def _has(self, *symptoms: str) -> bool:
        return self.acute > 0.3 and any(key in self.case.symptoms for key in symptoms)

    def _slot_temp(self) -> str:
        tenths = 381 + int(self.rng() * 17) if self._has("fever", "chills") else None
        return decimal(tenths or 362 + int(self.rng() * 12), 1, self.language.point)

    def _slot_hr(self) -> str:
        fast = 24 if self._has("fever", "palpitations", "dyspnoea") else 0
        return str(58 + fast + int(self.rng() * 32))

    def _slot_sys(self) -> str:
        return str(102 + int(self.rng() * 54) + (26 if self.case.disease == "htn" else 0))

    def _slot_dia(self) -> str:
        return str(56 + int(self.rng() * 32))

    def _slot_spo2(self) -> str:
        low = self._has("dyspnoea", "cough", "wheeze")
        return str(86 + int(self.rng() * 8) if low else 95 + int(self.rng() * 5))

    def _slot_dateout(self) -> str:
        self.today = max(self.today + 1, self.case.first_day + self.case.stay)
        return self.date(self.today)

    def _slot_delay(self) -> str:
        words = self.language.words
        unit = pick(self.rng, ("week", "month"))
        return f"{pick(self.rng, words.NUMBERS.split()[:5])} {words.UNITS[unit][1]}"
