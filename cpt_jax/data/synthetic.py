"""An invented bilingual clinic: seeded clinical notes in French and English, with gold entities.

    python -m cpt_jax.data.synthetic --out DIR --count 2000 --seed 0 --language mixed
    python -m cpt_jax.data.synthetic --out DIR --count 500 --tokenizer-vocab 4096 --tokenizer-out T

The embedded corpus of the demo and the tests. No text is copied from anywhere: tables of terms and
sentences (`cpt_jax.data.clinic`) are filled from an invented case. What a language model can learn
from it: each specialty's own words; diseases' links with drugs, tests, signs and findings;
agreement in French; and, over a whole note, the patient, disease, side, doses and dates that are
named again.
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
    "nursing_note": NoteType("nursing! nursing*", 1, 90, 45),
    "progress_note": NoteType("dayhead! day! day*", 1, 160, 50),
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
_FALLBACK = NoteType("day! day*", 1, 10**9, 10**9)
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
    max_words: int = 4800,
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
        max_words: longest note; lengths in between are heavy-tailed (median near 170 words).
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
    case = draw_case(
        facts,
        specialty,
        operative=note_type == "operative_note",
        lasting=note_type == "longitudinal_record",
    )
    marked = ""
    # A draw may come out too long or too short; a progress note's entries always fit.
    for attempt in range(6):
        chart = Chart(load(code), case, _stream("words", seed, index, code, attempt))
        if attempt < 5:
            marked = _write(chart, NOTE_TYPES[note_type], target, high)
        else:
            note_type, marked = "progress_note", _write(chart, _FALLBACK, target, high)
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
    paragraphs: list[tuple[bool, int, str]] = []  # may it not be left out, its words, itself
    words = 0
    for position, item in enumerate(plan):
        name, required = item.rstrip("!*"), item.endswith("!")
        if item.endswith("*"):
            rest = sum(_CLOSING_WORDS for later in plan[position:] if later.endswith("!"))
            while words + rest < target:
                paragraph = _repeated(chart, name)
                size = len(paragraph.split())
                if words + rest + size > limit:
                    break
                paragraphs.append((False, size, paragraph))
                words += size
        elif required or chart.rng() < detail:
            paragraph = chart.section(name, detail)
            paragraphs.append((required, len(paragraph.split()), paragraph))
            words += paragraphs[-1][1]
    while words > limit and any(not required for required, *_ in paragraphs):
        spare = max(k for k, (required, *_) in enumerate(paragraphs) if not required)
        words -= paragraphs.pop(spare)[1]
    return "\n".join(paragraph for *_, paragraph in paragraphs)


def _repeated(chart: Chart, name: str) -> str:
    """Returns the next entry of a note that goes on; visits alternate with what lies between."""
    if name == "visit" and chart.rng() < 0.5:
        name = pick(chart.rng, _BETWEEN_VISITS)
    days = 20 + int(chart.rng() * 100) if name == "visit" else 1
    chart.advance(days)
    return chart.section(name, 0.6)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Returns a byte-level BPE tokenizer of at most `vocab_size` tokens, as ModernBERT's.

    The ids of SPECIAL_TOKENS are 0 to 4, and the template is `[CLS] text [SEP]`. The same texts in
    the same order give the same tokenizer. [MASK] takes the space before it (lstrip): otherwise a
    lone space token would stand before each mask, which no training text has.

    Raises:
        ValueError: a vocabulary that cannot hold the 256 bytes and the special tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(alphabet) + len(SPECIAL_TOKENS)
    if vocab_size < least:
        raise ValueError(f"vocab_size is {vocab_size}; at least {least} (bytes, special tokens)")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        tokenizers.AddedToken(token, special=True, normalized=False, lstrip=token == "[MASK]")
        for token in SPECIAL_TOKENS
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def save_tokenizer(tokenizer: tokenizers.Tokenizer, directory: Path | str, max_length: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json, which transformers 4 and 5 load.

    `max_length` is the model's limit in tokens; a tokenizer without one truncates nothing.

    Raises:
        FileExistsError: the directory holds a tokenizer.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / "tokenizer.json"
    if target.exists():
        raise FileExistsError(f"{target} exists; choose another directory")
    tokenizer.save(str(target))
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    config = {
        # transformers 4 reads the flags of the special tokens here, transformers 5 in the other.
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token,
                "lstrip": token == "[MASK]",
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token in SPECIAL_TOKENS
        },
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
    }
    text = json.dumps(config, indent=2, sort_keys=True)
    (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def write_notes(records: Iterable[dict[str, Any]], path: Path) -> list[str]:
    """Writes one JSON record a line and returns the texts.

    Raises:
        FileExistsError: the path exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = []
    with path.open("x", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            texts.append(record["text"])
    return texts


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.data.synthetic",
        description="Writes invented clinical notes to DIR/notes.jsonl, and a tokenizer for them.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--count", type=int, required=True, help="how many notes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first note")
    parser.add_argument("--language", choices=LANGUAGES, default="fr")
    parser.add_argument("--specialty", choices=SPECIALTIES, nargs="+")
    parser.add_argument("--min-words", type=int, default=20)
    parser.add_argument("--max-words", type=int, default=4800)
    parser.add_argument("--tokenizer-vocab", type=int, default=4096, metavar="SIZE")
    parser.add_argument("--tokenizer-out", type=Path, metavar="DIR", help="train a tokenizer too")
    parser.add_argument("--tokenizer-max-length", type=int, default=8192, metavar="TOKENS")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command; it overwrites nothing."""
    parser = _arguments()
    args = parser.parse_args(arguments)
    path = args.out / "notes.jsonl"
    taken = [path, *([args.tokenizer_out / "tokenizer.json"] if args.tokenizer_out else [])]
    for file in taken:
        if file.exists():
            parser.error(f"{file} exists; choose another directory")
    try:
        records = notes(
            args.seed,
            args.count,
            language=args.language,
            specialty=args.specialty,
            min_words=args.min_words,
            max_words=args.max_words,
            first=args.first,
        )
    except ValueError as error:
        parser.error(str(error))
    texts = write_notes(records, path)
    words = sum(len(text.split()) for text in texts)
    size = sum(len(text.encode()) for text in texts)
    print(f"{path}: {len(texts):,} notes, {words:,} words, {size:,} bytes")
    if args.tokenizer_out:
        tokenizer = train_tokenizer(texts, args.tokenizer_vocab)
        save_tokenizer(tokenizer, args.tokenizer_out, args.tokenizer_max_length)
        lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]
        print(
            f"{args.tokenizer_out}: {tokenizer.get_vocab_size():,} tokens of vocabulary;"
            f" the notes are {sum(lengths):,} tokens, the longest {max(lengths, default=0):,}"
        )


if __name__ == "__main__":
    main()
