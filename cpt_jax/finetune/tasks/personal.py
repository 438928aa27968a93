"""Character spans as JSON: the synthetic personal data of Presidio's evaluator (Microsoft)."""

from collections.abc import Sequence
from pathlib import Path

from cpt_jax.finetune.examples import Annotated, Example, Span
from cpt_jax.finetune.tasks.reading import fault, field_of, json_list_of, shown

TYPES = (
    "AGE",
    "CREDIT_CARD",
    "DATE_TIME",
    "DOMAIN_NAME",
    "EMAIL_ADDRESS",
    "GPE",
    "IBAN_CODE",
    "IP_ADDRESS",
    "NRP",
    "ORGANIZATION",
    "PERSON",
    "PHONE_NUMBER",
    "STREET_ADDRESS",
    "TITLE",
    "US_DRIVER_LICENSE",
    "US_SSN",
    "ZIP_CODE",
)


def read(files: Sequence[Path], split: str = "") -> list[Example]:
    """A list of objects with `full_text` and `spans`; an object an example.

    A span has `entity_type`, `start_position` and `end_position` (characters of the text, the end
    exclusive) and `entity_value`, which is checked. Ids are FILE:N, counted from 0.
    """
    del split
    examples: list[Example] = []
    for path in files:
        for number, (line, record) in enumerate(json_list_of(path)):
            text = field_of(path, line, record, "full_text")
            if not isinstance(record.get("spans"), list):
                fault(path, line, f"no list 'spans' among {', '.join(record)}")
            spans = sorted(_span(path, line, text, span) for span in record["spans"])
            name = f"{path.name}:{number}"
            examples.append(Annotated(name, text, tuple(spans), f"{path}:{line}"))
    return examples


def _span(path: Path, line: int, text: str, record: object) -> Span:
    if not isinstance(record, dict):
        fault(path, line, f"spans: {shown(str(record))} is not an object")
    start, end = record.get("start_position"), record.get("end_position")
    label = field_of(path, line, record, "entity_type")
    if not isinstance(start, int) or not isinstance(end, int):
        fault(path, line, f"{label}: no start_position or no end_position")
    if not 0 <= start < end <= len(text):
        fault(path, line, f"{label}: characters {start} to {end} of a text of {len(text)}")
    value = record.get("entity_value", text[start:end])
    if text[start:end] != value:
        found = f"{shown(text[start:end])} stands there, not {shown(str(value))}"
        fault(path, line, f"{label}: characters {start} to {end}: {found}")
    return Span(start, end, label)
