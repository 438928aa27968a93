"""Raw inputs of a small mixture, with what each record should become."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tiny_tokenizers

WORDS = """
the patient had pain in left arm and was given aspirin for two days while his blood pressure rose
nurse saw that he slept well after second dose of drug which is known to lower fever but not without
risk those who bleed or have an ulcer
""".split()  # noqa: SIM905
FRENCH = "le patient avait mal au bras gauche et prenait de l'aspirine depuis deux jours sans effet"
TESTED = "a sentence of a test split that must never be read by any model in training at all"

RECIPE = """
from cpt_jax.curate.recipe import MinHash, Recipe, Source
from cpt_jax.curate.rules import Repeat, Rules


def get_recipe():
    return Recipe(
        name="tiny",
        tokens=100_000,
        seq_len=64,
        heldout_fraction=0.05,
        near={near},
        decontaminate=("{task}",),
        sources=(
            Source("cases", "jsonl", ("cases/*.jsonl",), 3.0, licence="CC0 1.0", language="en",
                   least_words=5, rules=Rules(repeats=(Repeat(2.5),))),
            Source("others", "jsonl", ("others/*.jsonl.gz", "others/*.tar.gz"), 1.0),
        ),
    )
"""

TASK = """
name: tested
kind: classification
format: jsonl
options: {text: text, label: label}
folder: tested
files: {train: train.jsonl, dev: dev.jsonl, test: test.jsonl}
settings: {epochs: 1}
"""


class Raw(NamedTuple):
    """What `write` wrote.

    Attributes:
      folder: raw inputs, the recipe, tasks and a tokenizer are in it.
      fates: by id, what becomes of each record: unique, or the folder of aside/ that it goes to.
      pairs: ids of equal or nearly equal texts: of each one is kept.
    """

    folder: Path
    fates: dict[str, str]
    pairs: list[tuple[str, str]]


def sentence(rng: np.random.Generator, words: int) -> str:
    return " ".join(rng.choice(WORDS, words)) + "."


def write(folder: Path, near: str = "MinHash(buckets=4, hashes=3)") -> Raw:
    """Makes the folder: 60 records of its own words, and of each fate some."""
    rng = np.random.default_rng(8)
    fates, pairs = {}, []
    cases = [{"id": f"c{i}", "text": sentence(rng, 40)} for i in range(30)]
    others = [
        {"id": f"o{i}", "text": sentence(rng, int(n))}
        for i, n in enumerate(rng.integers(20, 60, 30))
    ]
    fates |= {record["id"]: "unique" for record in cases + others}
    cases += [
        {"id": "short", "text": "Four words are few."},
        {"id": "french", "text": f"{FRENCH}, {FRENCH}."},
        {"id": "tested", "text": f"{sentence(rng, 10)} {TESTED.upper()}"},
    ]
    fates |= dict.fromkeys(["short", "french", "tested"], "unfit")
    twin, like = cases[3], others[5]
    others.append({"id": "twin", "text": twin["text"]})
    pairs.append((twin["id"], "twin"))
    words = like["text"].split()
    others.append({"id": "like", "text": " ".join([*words, "and", "so", "on"])})
    pairs.append((like["id"], "like"))
    fates |= {"twin": "exact", "like": "near"}
    lines = [json.dumps(record) for record in others]
    (folder / "raw/cases").mkdir(parents=True)
    (folder / "raw/others").mkdir()
    for i in range(3):
        part = "".join(json.dumps(record) + "\n" for record in cases[i::3])
        (folder / f"raw/cases/{i}.jsonl").write_text(part + '{"id": "broken"\n' * (i == 1))
    with gzip.open(folder / "raw/others/a.jsonl.gz", "wt") as file:
        file.write("\n".join(lines[:20]) + "\n")
    with tarfile.open(folder / "raw/others/b.tar.gz", "w:gz") as archive:
        for number, line in enumerate(lines[20:]):
            member = tarfile.TarInfo(f"deep/{number}.jsonl")
            member.size = len(line)
            archive.addfile(member, io.BytesIO(line.encode()))
    (folder / "tested").mkdir()
    for split in ("train", "dev", "test"):
        rows = [f"{split} {WORDS[i]} a text that is small enough to be read" for i in range(2)]
        rows += [TESTED] * (split == "test")
        lines = [
            json.dumps({"id": f"{split}{i}", "text": t, "label": "ab"[i % 2]})
            for i, t in enumerate(rows)
        ]
        (folder / f"tested/{split}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tested.yaml").write_text(TASK)
    (folder / "recipe.py").write_text(RECIPE.format(near=near, task=folder / "tested.yaml"))
    tokenizer = tiny_tokenizers.byte_level().tokenizer
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return Raw(folder, fates, pairs)
