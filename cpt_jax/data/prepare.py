"""Text to a prepared corpus: token shards, an index of documents, row plans, a manifest.

    python -m cpt_jax.data.prepare --input 'notes/*.jsonl.gz' --tokenizer TOK --out data/notes

Inputs: .jsonl (plain, .gz or .zst; a document per line), .parquet (a document per table row) and
.txt (a file is one document), here or in an object store, and data sets by name (see `inputs`).
The layout is described in `sources`. What is written depends on the inputs and the options alone,
never on the number of workers.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpt_jax.data.inputs import Fields, find_inputs, public_names
from cpt_jax.data.packing import POOL_DOCUMENTS, plan_rows
from cpt_jax.data.sources import SPLITS, VERSION, nothing_held_out, sha256
from cpt_jax.data.tokenise import Job, Tokenised, tokenise
from cpt_jax.data.tokenizer import FILES, find_tokenizer, read_tokenizer, template_ids, token_dtype
from cpt_jax.directories import whole_directory

SHARD_TOKENS = 1 << 28
TEMPLATE = "[CLS] text [SEP]"


def prepare(
    inputs: Sequence[str],
    tokenizer: str | Path,
    out: str | Path,
    *,
    seq_len: int = 8192,
    text_field: str = "text",
    id_field: str = "id",
    repeat_field: str | None = None,
    heldout_fraction: float = 0.005,
    seed: int = 0,
    template: str = TEMPLATE,
    workers: int = 1,
    shard_tokens: int = SHARD_TOKENS,
    pool_documents: int = POOL_DOCUMENTS,
) -> dict[str, Any]:
    """Prepares a corpus in the new directory `out` and returns its manifest.

    Documents keep the order of the sorted input files and of the lines in them. A document is held
    out by the hash of its text, so copies of a text stay on one side of the split, in every corpus
    and for every seed; repeat factors are for training, and a factor of 0 leaves a document out of
    both splits. Nothing is called `out` until all of it is written.

    Args:
      inputs: paths or glob patterns, `**` allowed; URLs; names of data sets (see `inputs`).
      tokenizer: a tokenizer.json, the directory that holds it, or a Hub id.
      workers: processes; above 1 the calling script needs the `__main__` guard that Python's
        multiprocessing asks for. One worker tokenises on all cores too, but parses on one.

    Raises:
      FileExistsError: `out` exists. FileNotFoundError: an input or the tokenizer does not.
      ValueError: a bad record (by file and line), tokenizer, template or option; no document to
        train on. OSError: `out` could not be written (full or read-only disk); nothing is left.
    """
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"{out} exists; give a new directory")
    if not 0 <= heldout_fraction < 1:
        raise ValueError(f"{heldout_fraction=}; allowed: 0 <= fraction < 1")
    least = {"seq_len": 2, "seed": 0, "workers": 1, "shard_tokens": 1, "pool_documents": 1}
    for (name, low), value in zip(
        least.items(), (seq_len, seed, workers, shard_tokens, pool_documents), strict=True
    ):
        if value < low:
            raise ValueError(f"{name}={value}; allowed: at least {low}")
    found = find_inputs(inputs)
    file = find_tokenizer(tokenizer)
    codec, info = read_tokenizer(file)
    template_ids(template, codec, info["special_ids"])
    options = {
        "version": VERSION,
        "template": template,
        "seq_len": seq_len,
        "seed": seed,
        "heldout_fraction": heldout_fraction,
        "pool_documents": pool_documents,
        "tokenizer": info,
        "dtype": token_dtype(info["vocab_size"]),
    }
    with whole_directory(out) as partial:
        (partial / "shards").mkdir()
        fields = Fields(text_field, id_field, repeat_field)
        results = tokenise(Job(file, template, fields, shard_tokens, partial), found, workers)
        counts = [count for result in results for count in result.documents]
        read = [
            {"name": name, "bytes": item.bytes, "documents": count}
            for name, item, count in zip(public_names(found), found, counts, strict=True)
        ]
        manifest = options | _write_index(partial, results, options) | {"inputs": read}
        for source, name in zip((file, file.with_name(FILES[1])), FILES, strict=True):
            if source.is_file():
                shutil.copyfile(source, partial / name)
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _write_index(out: Path, results: list[Tokenised], options: dict[str, Any]) -> dict[str, Any]:
    """Writes the documents and the row plans; returns what the manifest says of them."""
    documents = np.concatenate([result.index for result in results])
    documents["heldout"] = documents["text_hash"] / 2.0**64 < options["heldout_fraction"]
    np.save(out / "documents.npy", documents)
    splits = {split: _write_plan(out, documents, split, options) for split in SPLITS}
    if not splits["train"]["rows"]:
        empty = sum(result.empty for result in results)
        raise ValueError(
            f"no document to train on: {len(documents):,} documents with text, {empty:,} without;"
            f" {splits['heldout']['documents']:,} held out, those with factor 0 left out"
        )
    edges = 2 ** np.arange(33)
    return {
        "documents": len(documents),
        "tokens": int(documents["length"].sum(dtype=np.int64)),
        "empty": sum(result.empty for result in results),
        "duplicates": len(documents) - len(np.unique(documents["text_hash"])),
        "splits": splits,
        "length_histogram": {
            "edges": edges.tolist(),
            "counts": np.histogram(documents["length"], edges)[0].tolist(),
        },
        "shards": [shard._asdict() for result in results for shard in result.shards],
        "files": {file.name: sha256(file) for file in sorted(out.glob("*.npy"))},
    }


def _write_plan(
    out: Path, documents: np.ndarray, split: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Writes a split's row plan; returns its counts. Held-out documents are never repeated."""
    factors = documents["factor"] if split == "train" else np.sign(documents["factor"])
    mine = (documents["heldout"] == (split == "heldout")) & (factors > 0)
    sizes = options["seq_len"], options["seed"], options["pool_documents"]
    plan = plan_rows(documents["length"], np.where(mine, factors, 0), *sizes)
    np.save(out / f"{split}.pieces.npy", plan.pieces)
    np.save(out / f"{split}.row_offsets.npy", plan.row_offsets)
    return {
        "documents": int(mine.sum()),
        "tokens": int(documents["length"][mine].sum(dtype=np.int64)),
        "rows": len(plan.row_offsets) - 1,
        "row_tokens": plan.tokens,
        "efficiency": plan.efficiency,
        "cuts": plan.cuts,
        "copy_distance": plan.copy_distance,
    }


def main() -> None:
    """The command line: every argument of `prepare`, by its name."""
    parser = argparse.ArgumentParser("cpt_jax.data.prepare", description=__doc__)
    parser.add_argument(
        "--input", action="append", required=True, help="path, glob, URL or data set; may repeat"
    )
    parser.add_argument("--tokenizer", required=True, help="directory, tokenizer.json or Hub id")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--text-field", default="text")
    parser.add_argument("--id-field", default="id")
    parser.add_argument("--repeat-field")
    parser.add_argument("--heldout-fraction", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--template", default=TEMPLATE)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--shard-tokens", type=int, default=SHARD_TOKENS)
    parser.add_argument("--pool-documents", type=int, default=POOL_DOCUMENTS)
    options = vars(parser.parse_args())
    inputs = options.pop("input")
    try:
        manifest = prepare(inputs, **options)
    except (ValueError, OSError) as error:
        parser.exit(1, f"error: {error}\n")
    for split in SPLITS:
        print(split, json.dumps(manifest["splits"][split]))
    if not manifest["splits"]["heldout"]["rows"]:
        print(f"warning: {nothing_held_out(options['out'], manifest)}", file=sys.stderr)


if __name__ == "__main__":
    main()
