"""Tokens per second of packing and of loading, next to Hugging Face `datasets` doing the same.

    python -m benchmarks.data

Both get the same invented documents. Packing: here the plan of full rows, best fit, from the
lengths of the documents (rows are put together when they are read); there `Dataset.map` with numpy
arrays, which concatenates documents and cuts every --seq-len tokens, and writes the rows to Arrow.
Loading: a shuffled epoch in batches of int32 [B, L] input_ids and segment_ids, here through
`mixture.batches` with one reader, there `Dataset.shuffle` and slices in numpy format of the
memory-mapped rows that it packed. Files are in the page cache. Pairs in turn, the median of
--repeats; a core is a second of CPU time of the process, all its threads together.
"""

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from cpt_jax.data.mixture import Mixture, batches
from cpt_jax.data.packing import plan_rows
from cpt_jax.data.prepare import prepare
from cpt_jax.data.sources import Source, open_source

datasets: Any = importlib.import_module("datasets")  # an extra: pip install -e '.[datasets]'
SPECIAL = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]")
WORDS = 50_000


def make_corpus(folder: Path, tokens: int, mean_length: int, seq_len: int, seed: int) -> Source:
    """Prepares documents of log-normal lengths, a token per word, drawn by Zipf's law."""
    names = [*SPECIAL, *(f"w{i}" for i in range(WORDS))]
    vocabulary = {word: i for i, word in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(seed)
    count = tokens // mean_length
    lengths = rng.lognormal(np.log(mean_length) - 0.5, 1.0, size=count).astype(int) + 1
    with (folder / "a.jsonl").open("w") as file:
        for length in lengths.tolist():
            words = np.minimum(rng.zipf(1.2, size=length), WORDS) - 1
            file.write(f'{{"text": "{" ".join(f"w{word}" for word in words.tolist())}"}}\n')
    options: dict[str, Any] = {"seq_len": seq_len, "heldout_fraction": 0.0}
    prepare([str(folder / "a.jsonl")], folder / "tokenizer.json", folder / "corpus", **options)
    return open_source(folder / "corpus")


def documents_of(source: Source, folder: Path) -> Any:
    """The same token ids as an Arrow data set on disk: a document, or a piece of one, a record."""
    rows = [source[i] for i in range(len(source))]
    pieces = [row["input_ids"][row["segment_ids"] == s] for row in rows for s in segments_in(row)]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    column = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(pieces)))
    datasets.Dataset(pa.table({"input_ids": column})).save_to_disk(str(folder / "documents"))
    return datasets.load_from_disk(str(folder / "documents")).with_format("numpy")


def segments_in(row: dict[str, Any]) -> range:
    """The numbers of a row's segments."""
    return range(1, int(row["segment_ids"].max()) + 1)


def pack_ours(source: Source) -> int:
    """Plans the rows of an epoch; returns its tokens."""
    lengths = np.load(source.path / "documents.npy")["length"]
    return plan_rows(lengths, np.ones(len(lengths)), source.seq_len, seed=0).tokens


def pack_theirs(documents: Any, seq_len: int, file: Path) -> tuple[Any, int]:
    """Concatenates and cuts, as the examples of transformers do; returns the rows and the tokens.

    What is left of a group of 1,000 documents is dropped.
    """

    def cut(group: dict[str, Any]) -> dict[str, Any]:
        ids = np.concatenate(group["input_ids"])
        lengths = [len(document) for document in group["input_ids"]]
        segments = np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths)
        whole = len(ids) // seq_len * seq_len
        return {
            "input_ids": ids[:whole].reshape(-1, seq_len),
            "segment_ids": segments[:whole].reshape(-1, seq_len),
        }

    row = datasets.List(datasets.Value("int32"), length=seq_len)
    packed = documents.map(
        cut,
        batched=True,
        remove_columns=["input_ids"],
        features=datasets.Features({"input_ids": row, "segment_ids": row}),
        cache_file_name=str(file),
        load_from_cache_file=False,
    )
    return packed, len(packed) * seq_len


def load_ours(source: Source, batch_size: int, epoch: int) -> int:
    """Reads a shuffled epoch; returns its tokens."""
    mixture = Mixture({"corpus": source}, {"corpus": 1.0}, seed=epoch)
    steps = len(source) // batch_size
    stream = batches(
        mixture,
        batch_size=batch_size,
        first_ordinal=0,
        start_step=0,
        stop_step=steps,
        num_threads=1,
    )
    return sum(batch["input_ids"].size for batch in stream)


def load_theirs(packed: Any, batch_size: int, epoch: int) -> int:
    """Reads a shuffled epoch; returns its tokens."""
    shuffled, tokens = packed.shuffle(seed=epoch).with_format("numpy"), 0
    for start in range(0, len(shuffled) // batch_size * batch_size, batch_size):
        batch = shuffled[start : start + batch_size]
        assert batch["input_ids"].shape == batch["segment_ids"].shape
        tokens += batch["input_ids"].size
    return tokens


def rates(work: Callable[[], int]) -> tuple[float, float]:
    """Tokens per second of the clock, and per second of CPU time."""
    clock, core = time.perf_counter(), time.process_time()
    tokens = work()
    return tokens / (time.perf_counter() - clock), tokens / (time.process_time() - core)


def measure(
    ours: Callable[[int], int], theirs: Callable[[int], int], repeats: int
) -> list[list[float]]:
    """Medians of pairs in turn: [ours, theirs] x [per second, per core]."""
    pairs = [(rates(lambda k=k: ours(k)), rates(lambda k=k: theirs(k))) for k in range(repeats)]
    return [[statistics.median(p[side][kind] for p in pairs) for kind in (0, 1)] for side in (0, 1)]


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser("benchmarks.data", description=__doc__)
    parser.add_argument("--tokens", type=int, default=8_000_000)
    parser.add_argument("--mean-length", type=int, default=1000, help="of a document, in tokens")
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = make_corpus(folder, args.tokens, args.mean_length, args.seq_len, args.seed)
        documents = documents_of(source, folder)
        packed, _ = pack_theirs(documents, args.seq_len, folder / "rows.arrow")
        table = {
            "packing": measure(
                lambda k: pack_ours(source),
                lambda k: pack_theirs(documents, args.seq_len, folder / f"{k}.arrow")[1],
                args.repeats,
            ),
            "loading": measure(
                lambda k: load_ours(source, args.batch_size, k),
                lambda k: load_theirs(packed, args.batch_size, k),
                args.repeats,
            ),
        }
        print(
            f"{source.tokens:,} tokens, rows of {args.seq_len}, batches of {args.batch_size};"
            f" datasets {datasets.__version__}\n"
        )
        print(
            "| million tokens/s | ours, per core | datasets, per core | ratio | ours | datasets |"
        )
        print("|---|---|---|---|---|---|")
        for what, ((wall, core), (their_wall, their_core)) in table.items():
            figures = core / 1e6, their_core / 1e6, core / their_core, wall / 1e6, their_wall / 1e6
            print(f"| {what} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
