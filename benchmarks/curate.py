"""Tokenising with packing, and MinHash signatures, next to datatrove and Hugging Face `datasets`.

    python -m benchmarks.curate --input 'texts/*.jsonl' --tokenizer out/

All read the same files of JSON lines, on one core, each in a process of its own, in turn; the
median of --repeats. Tokens are those of the documents, special ones not counted twice.

- Tokenising: here `data.prepare` (tokens in shards, and the plan of full rows, best fit);
  datatrove's `DocumentTokenizer` (tokens in a file, nothing is packed); `datasets`: `load_dataset`,
  `map` of the tokenizer and `map` of concatenating and cutting, as transformers' examples do.
- MinHash: datatrove's `MinhashDedupSignature` in either case, here with the words of
  `curate.steps.Words`, there with its own of English, which ask for spaCy.
"""

import argparse
import glob
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cpt_jax.data.prepare import prepare
from cpt_jax.data.tokenizer import find_tokenizer

SEQ_LEN = 8192


def prepare_ours(files: list[str], tokenizer: str, out: Path) -> int:
    """Tokenises and packs; returns tokens."""
    return prepare(files, tokenizer, out / "corpus", seq_len=SEQ_LEN)["tokens"]


def tokenise_datatrove(files: list[str], tokenizer: str, out: Path) -> int:
    """Tokenises; returns tokens."""
    tokens: Any = importlib.import_module("datatrove.pipeline.tokens")
    step = tokens.DocumentTokenizer(
        str(out / "tokens"),
        tokenizer_name_or_path=str(find_tokenizer(tokenizer)),
        eos_token="[SEP]",
        shuffle_documents=False,
    )
    step.run(_documents(files), 0, 1)
    (file,) = (out / "tokens").glob("*.ds")
    return file.stat().st_size // 2  # uint16


def tokenise_datasets(files: list[str], tokenizer: str, out: Path) -> int:
    """Tokenises, concatenates and cuts; returns tokens."""
    datasets: Any = importlib.import_module("datasets")
    codec = Tokenizer.from_file(str(find_tokenizer(tokenizer)))
    loaded = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(out))

    def encode(group: dict[str, Any]) -> dict[str, Any]:
        return {"input_ids": [one.ids for one in codec.encode_batch(group["text"])]}

    def cut(group: dict[str, Any]) -> dict[str, Any]:
        ids = [token for document in group["input_ids"] for token in document]
        whole = len(ids) // SEQ_LEN * SEQ_LEN
        return {"input_ids": [ids[i : i + SEQ_LEN] for i in range(0, whole, SEQ_LEN)]}

    encoded = loaded.map(encode, batched=True, remove_columns=loaded.column_names)
    packed = encoded.map(cut, batched=True)
    assert len(packed)
    return sum(map(len, encoded["input_ids"]))


def sign_ours(files: list[str], tokenizer: str, out: Path) -> int:
    """Signs all documents with our words; returns how many."""
    words: Any = importlib.import_module("cpt_jax.curate.steps").Words()
    return _sign(files, out, words)


def sign_datatrove(files: list[str], tokenizer: str, out: Path) -> int:
    """Signs all documents with datatrove's words; returns how many."""
    return _sign(files, out, "eng")


def _sign(files: list[str], out: Path, language: Any) -> int:
    minhash: Any = importlib.import_module("datatrove.pipeline.dedup.minhash")
    hashing: Any = importlib.import_module("datatrove.utils.hashing")
    config = minhash.MinhashConfig(hash_config=hashing.HashConfig(hash_fc="sha1"))
    step = minhash.MinhashDedupSignature(str(out / "signatures"), config, language=language)
    documents = list(_documents(files))
    step.run(documents, 0, 1)
    return len(documents)


def _documents(files: list[str]) -> Any:
    document: Any = importlib.import_module("datatrove.data").Document
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                yield document(json.loads(line)["text"], str(number))


WORK: dict[str, Callable[[list[str], str, Path], int]] = {
    "tokenise, cpt_jax": prepare_ours,
    "tokenise, datatrove": tokenise_datatrove,
    "tokenise, datasets": tokenise_datasets,
    "minhash, cpt_jax": sign_ours,
    "minhash, datatrove": sign_datatrove,
}


def once(name: str, files: list[str], tokenizer: str) -> None:
    """Does one of the works on one core, and prints its amount and seconds."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter(), time.process_time()
        amount = WORK[name](files, tokenizer, Path(folder))
        print(json.dumps([amount, time.perf_counter() - start[0], time.process_time() - start[1]]))


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser("benchmarks.curate", description=__doc__)
    parser.add_argument("--input", required=True, help="files of JSON lines, a glob")
    parser.add_argument("--tokenizer", required=True, help="directory or tokenizer.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", choices=WORK, help="one of them, here")
    options = parser.parse_args()
    files = sorted(glob.glob(options.input))
    if options.once:
        once(options.once, files, options.tokenizer)
        return
    found: dict[str, list[list[float]]] = {name: [] for name in WORK}
    command = [sys.executable, "-m", "benchmarks.curate", "--input", options.input]
    command += ["--tokenizer", options.tokenizer, "--once"]
    for _ in range(options.repeats):
        for name in WORK:
            done = subprocess.run([*command, name], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    size = sum(map(os.path.getsize, files))
    print(f"{len(files)} files, {size:,} bytes; medians of {options.repeats}, one core\n")
    print("| | tokens or documents | a second | a CPU second |\n|---|---|---|---|")
    for name, runs in found.items():
        if runs:
            rates = [statistics.median(run[0] / run[i] for run in runs) for i in (1, 2)]
            print(f"| {name} | {runs[0][0]:,.0f} | {rates[0]:,.0f} | {rates[1]:,.0f} |")


if __name__ == "__main__":
    main()
