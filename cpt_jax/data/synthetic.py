"""An invented bilingual clinic: seeded clinical notes in French and English, with gold entities.

    python -m cpt_jax.data.synthetic --out DIR --count 2000 --seed 0 --language mixed
    python -m cpt_jax.data.synthetic --out DIR --count 500 --tokenizer-vocab 4096 --tokenizer-out T

The embedded corpus of the demo and the tests. No text is copied from anywhere: tables of terms and
sentences (`cpt_jax.data.clinic`) are filled from an invented case. What a language model can learn
from it: each specialty's own words; diseases' links with drugs, tests, signs and findings; agreement
in French; and, over a whole note, the same patient, disease, side, doses and dates named again.
"""

import argparse
import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from cpt_jax.data.clinic.case import draw_case, pick
from cpt_jax.data.clinic.chart import Chart
from cpt_jax.data.clinic.grammar import LABELS, Rng, load, unmark
from cpt_jax.data.clinic.lexicon import SPECIALTIES

LANGUAGES = ("fr", "en", "mixed")
ENTITY_LABELS = tuple(LABELS.values())
SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
# The room that the shortest entry needs between min_words and max_words.
WORD_SLACK = 60


class NoteType(NamedTuple):
    """How a type of note is built.

    `sections` in the order of the page; one marked ! is never left out, and one marked * is
    repeated until the note is long enough. Written for `shortest` to `longest` words; `full` is
    about what it holds when no section is left out.
    """

    sections: str
    shortest: int
    longest: int
    full: int


NOTE_TYPES = {
    "nursing_note": NoteType("nursing! nursing*", 20, 90, 45),
    "progress_note": NoteType("day! day*", 20, 160, 35),
    "prescription": NoteType("scripthead! script! scriptadvice", 25, 110, 80),
    "lab_report": NoteType("labhead! labtable! labcomment", 50, 140, 90),
    "radiology_report": NoteType(
        "filmhead! indication! technique film! filmconclusion!", 45, 130, 100
    ),
    "operative_note": NoteType(
        "letterhead ophead! anaesthesia steps! aftercare! sign", 70, 190, 150
    ),
    "consultation_letter": NoteType(
        "greeting! letter! history home allergy story exam labs imaging advice! closing!",
        90,
        320,
        250,
    ),
    "discharge_summary": NoteType(
        "letterhead! reason! history home habits allergy story exam labs imaging course day*"
        " outcome! outrx! followup! sign",
        110,
        800,
        370,
    ),
    "longitudinal_record": NoteType(
        "letterhead! reason! history! home! allergy! story! exam! labs! imaging! course! visit*"
        " outcome! synthesis! outrx! followup! sign",
        600,
        10**9,
        450,
    ),
}
# What follows a visit in a longitudinal record, besides the next visit.
_BETWEEN_VISITS = ("nursing", "day", "day", "results", "study")
# What the sections that end a note hold at least.
_CLOSING_WORDS = 25
# Lengths in words: (up to, share). Half of the notes are short and few are very long.
_LENGTHS = ((50, 13), (100, 24), (200, 27), (400, 18), (800, 9), (1600, 5), (3200, 3), (6400, 1))


def notes(
    seed: int,
    count: int,
    *,
    language: str = "fr",
    specialty: str | Sequence[str] | None = None,
    min_words: int = 20,
    max_words: int = 5000,
    first: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yields the notes first .. first + count - 1 of a seed.

    Each is {"id", "text", "language", "specialty", "note_type", "entities"}; an entity is {"start",
    "end", "label", "negated"} with text[start:end] its surface, label one of ENTITY_LABELS, and
    negated True where the note says that it is absent ("pas de fièvre"). Entities do not overlap
    and come in order. Note i depends on (seed, i, language, specialty, min_words, max_words) alone,
    on every platform, and the same (seed, i) describes the same patient in French and in English
    where their notes are of the same type.

    Args:
        seed: any integer.
        count: how many notes.
        language: "fr", "en", or "mixed" (each note one or the other).
        specialty: one of SPECIALTIES or several; all of them by default.
        min_words: shortest note, in words separated by whitespace.
        max_words: longest note; lengths in between are heavy-tailed (median near 130 words).
        first: index of the first note, to continue a corpus or to hold notes out.

    Raises:
        ValueError: an unknown language or specialty, or less than WORD_SLACK between the lengths.
    """
    names = _specialties(specialty)
    if language not in LANGUAGES:
        raise ValueError(f"language is {language!r}; allowed: {', '.join(LANGUAGES)}")
    if min_words < 1 or max_words < min_words + WORD_SLACK:
        raise ValueError(
            f"min_words is {min_words} and max_words {max_words}; min_words must be at least 1 and"
            f" max_words at least min_words + {WORD_SLACK}"
        )
    return (
        _note(seed, index, language, names, min_words, max_words)
        for index in range(first, first + count)
    )


def _specialties(specialty: str | Sequence[str] | None) -> tuple[str, ...]:
    if specialty is None:
        return SPECIALTIES
    names = (specialty,) if isinstance(specialty, str) else tuple(specialty)
    for name in names:
        if name not in SPECIALTIES:
            raise ValueError(f"specialty is {name!r}; allowed: {', '.join(SPECIALTIES)}")
    if not names:
        raise ValueError(f"specialty is empty; allowed: {', '.join(SPECIALTIES)}")
    return names


def _stream(*parts: object) -> Rng:
    """Returns a stream of numbers in [0, 1) that depends on the parts alone."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "little")).random


def _note(
    seed: int, index: int, language: str, names: tuple[str, ...], low: int, high: int
) -> dict[str, Any]:
    facts = _stream("clinic", seed, index)
    specialty = names[int(facts() * len(names))]
    code = language if language != "mixed" else ("fr", "en")[int(facts() * 2)]
    target = _length(facts, low, high)
    note_type = pick(facts, [k for k, t in NOTE_TYPES.items() if t.shortest <= target <= t.longest])
    case = draw_case(facts, specialty, operative=note_type == "operative_note")
    marked = ""
    # A draw may come out too long or too short for the limits; a progress note's entries always fit.
    for attempt in range(6):
        chart = Chart(load(code), case, _stream("words", seed, index, code, attempt))
        if attempt == 5:
            note_type = "progress_note"
        marked = _write(chart, NOTE_TYPES[note_type], target, high)
        if low <= len(marked.split()) <= high:
            break
    text, entities = unmark(marked)
    return {
        "id": f"{code}-{seed}-{index}",
        "text": text,
        "language": code,
        "specialty": specialty,
        "note_type": note_type,
        "entities": entities,
    }


def _length(rng: Rng, low: int, high: int) -> int:
    """Returns a length in words between the limits, by the shares of _LENGTHS that lie there."""
    start, bands = 0, []
    for stop, share in _LENGTHS:
        a, b = max(start, low), min(stop, high)
        if a < b:
            bands.append((a, b, share * (b - a) / (stop - start)))
        start = stop
    a, b = bands[-1][:2] if bands else (low, high)
    point = rng() * sum(weight for *_, weight in bands)
    for first, last, weight in bands:
        if point < weight:
            a, b = first, last
            break
        point -= weight
    return a + int(rng() * (b - a))


def _write(chart: Chart, note_type: NoteType, target: int, limit: int) -> str:
    """Returns the note's marked text, of about `target` words and, where it can be, <= `limit`."""
    detail = min(1.0, target / note_type.full)
    plan = note_type.sections.split()
    paragraphs: list[tuple[bool, str]] = []
    words = 0
    for position, item in enumerate(plan):
        name = item.rstrip("!*")
        if not item.endswith("*"):
            if item.endswith("!") or chart.rng() < detail:
                paragraphs.append((item.endswith("!"), chart.section(name, detail)))
                words += len(paragraphs[-1][1].split())
            continue
        rest = sum(_CLOSING_WORDS for later in plan[position:] if later.endswith("!"))
        while words + rest < target:
            paragraph = _repeated(chart, name)
            words += len(paragraph.split())
            if words + rest > limit:
                break
            paragraphs.append((False, paragraph))
    while sum(len(text.split()) for _, text in paragraphs) > limit:
        spare = [k for k, (required, _) in enumerate(paragraphs) if not required]
        if not spare:
            break
        del paragraphs[spare[-1]]
    return "\n".join(text for _, text in paragraphs)


def _repeated(chart: Chart, name: str) -> str:
    """Returns the next entry of a note that goes on; visits alternate with what lies between."""
    if name == "visit" and chart.rng() < 0.5:
        name = pick(chart.rng, _BETWEEN_VISITS)
    days = 20 + int(chart.rng() * 100) if name == "visit" else 1
    chart.advance(days)
    return chart.section(name, 0.6)
