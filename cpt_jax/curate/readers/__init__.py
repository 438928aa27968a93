"""From what people have to records: a reader for each form of file."""

from collections.abc import Mapping

from cpt_jax.curate.readers.items import Fault, Reader, Record
from cpt_jax.curate.readers.tables import chat, jsonl, parquet
from cpt_jax.curate.readers.texts import leaflet, noteevents, text
from cpt_jax.curate.readers.xml import e3c, jats, pubmed

READERS: Mapping[str, Reader] = {
    "jats": jats,
    "pubmed": pubmed,
    "e3c": e3c,
    "text": text,
    "leaflet": leaflet,
    "noteevents": noteevents,
    "chat": chat,
    "jsonl": jsonl,
    "parquet": parquet,
}

__all__ = ["READERS", "Fault", "Reader", "Record"]
