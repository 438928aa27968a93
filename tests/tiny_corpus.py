"""A tiny tokenizer and texts for the tests of the data path."""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cpt_jax.data.prepare import prepare

SYLLABLES = ["ba", "do", "ki", "lu", "me", "no", "pi", "ra", "su", "ti"]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES[:5]]
SPECIALS = ["[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"]


def write_tokenizer(directory: Path) -> Path:
    """A byte-level BPE whose specials are not at their usual ids; with a tokenizer_config.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 5, trainer)
    directory.mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "cls", "sep", "mask")}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory


def texts(count: int, longest: int, seed: int) -> list[str]:
    """Texts of 1 to `longest` words, all different."""
    rng = random.Random(seed)
    return [
        " ".join([f"{seed}.{i}", *rng.choices(WORDS, k=rng.randint(1, longest))])
        for i in range(count)
    ]


def write_jsonl(path: Path, records: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def corpus(
    directory: Path, tokenizer: Path, documents: Sequence[str], repeat: float = 1, **options
) -> Path:
    """Prepares texts, none held out unless asked, and returns the corpus's path."""
    records = [{"text": text, "repeat": repeat} for text in documents]
    source = write_jsonl(directory.with_suffix(".jsonl"), records)
    settings = {"seq_len": 64, "heldout_fraction": 0.0, "repeat_field": "repeat"} | options
    prepare([str(source)], tokenizer, directory, **settings)
    return directory
