"""Takes what stands in the tasks' test splits out of a corpus.

    python -m cpt_jax.curate.decontaminate --records raw/ --data tasks/          # only the report
    python -m cpt_jax.curate.decontaminate --records raw/ --data tasks/ --out clean/
    python -m cpt_jax.curate.decontaminate --records raw/ --texts 'secret/*.txt' --out clean/

Text is compared as words: runs of letters and digits, after NFKC, case aside. A record overlaps a
test example if they share ``--n`` words in a row or, of a shorter example, all its words in a row.
What says too little is not looked for: examples of fewer than ``--least`` words, and words in a row
that the training split has too. They are counted.
Overlapping records go to aside/ with the tasks' names as the reason, the others to a file for each
file. The report (decontamination.md) has counts and ids, and no text.

The test side is kept in memory, the corpus is read once. Exit codes: 0 done; 1 something outside (a
full disk); 2 refused, nothing written.
"""

import argparse
import glob
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cpt_jax.curate.records import ASIDE, files_of, lines_of, record_of, set_aside, whole_lines
from cpt_jax.directories import whole_file
from cpt_jax.finetune.tasks import TASKS, find
from cpt_jax.finetune.tasks.loading import load, text_of
from cpt_jax.pages.blocks import Block, Heading, Items, Paragraph, Table, markdown

REPORT = "decontamination.md"
N, LEAST = 13, 6  # words
MOST_SHOWN = 20  # ids of the report
HEAD = ["task", "test examples", "too short", "common", "found", "records that overlap"]
# Of a polynomial hash over words, odd: every word's power of it counts.
BASE = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    """The words that texts are compared by."""
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())


class Example(NamedTuple):
    """A test example: its task, its number in the split, and its words."""

    task: str
    number: int
    words: list[str]


class _Trained:
    """What a training split says: the hashes of its words in a row."""

    def __init__(self, texts: Iterable[list[str]]):
        self._texts = list(texts)
        self._hashes: dict[int, np.ndarray] = {}

    def has(self, hashes: np.ndarray, size: int) -> np.ndarray:
        """Which of these hashes, of so many words each, are among them."""
        if size not in self._hashes:
            found = [_hashes(words, size) for words in self._texts if len(words) >= size]
            last = np.array([2**64 - 1], np.uint64)  # so that there is one at any place
            self._hashes[size] = np.unique(np.concatenate([last, *found]))
        own = self._hashes[size]
        return own[np.searchsorted(own, hashes)] == hashes


class Index:
    """The test examples, to be found by what they share with a text.

    Args:
      texts: of the test splits, by task.
      known: of the training splits, by task.
      n: words in a row that are an overlap.
      least: words of the shortest example that is looked for.

    Attributes:
      examples: those that are looked for.
      short: by task, how many are not, as they have too few words;
      common: or as the training split has all their words in a row too: "click here for additional
        data file" says nothing of a leak.

    Raises:
      ValueError: ``least`` is not from 1 to ``n``; there is no example to look for.
    """

    def __init__(
        self,
        texts: Mapping[str, Iterable[str]],
        n: int = N,
        least: int = LEAST,
        known: Mapping[str, Iterable[str]] | None = None,
    ):
        if not 1 <= least <= n:
            raise ValueError(f"least: {least} is not from 1 to n, {n}")
        self.short: Counter[str] = Counter()
        self.common: Counter[str] = Counter()
        self.examples: list[Example] = []
        # For each number of words the hashes of its examples, and which of them tell something.
        found = defaultdict[int, list[tuple[int, np.ndarray, np.ndarray]]](list)
        for task, of_task in texts.items():
            trained = _Trained(map(words_of, (known or {}).get(task, ())))
            for number, words in enumerate(map(words_of, of_task)):
                if len(words) < least:
                    self.short[task] += 1
                    continue
                size = min(n, len(words))
                hashes = _hashes(words, size)
                tells = ~trained.has(hashes, size)
                if not tells.any():
                    self.common[task] += 1
                    continue
                found[size].append((len(self.examples), hashes, tells))
                self.examples.append(Example(task, number, words))
        if not self.examples:
            raise ValueError(f"no test example of {least} words or more in {', '.join(texts)}")
        self._tables = {size: _table(of_size) for size, of_size in found.items()}

    def found_in(self, text: str) -> list[int]:
        """Which of ``examples`` the text overlaps."""
        words, found = words_of(text), set[int]()
        for size, (hashes, owners, offsets) in self._tables.items():
            if len(words) < size:
                continue
            own = _hashes(words, size)
            first = np.searchsorted(hashes, own, "left")
            last = np.searchsorted(hashes, own, "right")
            for place in np.flatnonzero(last > first):
                here = words[place : place + size]
                for entry in range(first[place], last[place]):
                    owner, offset = int(owners[entry]), int(offsets[entry])
                    if self.examples[owner].words[offset : offset + size] == here:
                        found.add(owner)
        return sorted(found)

    def reason(self, owners: Iterable[int]) -> str:
        """Why a text that overlaps these examples is set aside."""
        tasks = sorted({self.examples[owner].task for owner in owners})
        return f"overlaps the test split of {', '.join(tasks)}"


def _hashes(words: Sequence[str], size: int) -> np.ndarray:
    """A hash of each row of so many words, uint64; of this process alone, as those of str are."""
    each = np.array([hash(word) & 0xFFFFFFFFFFFFFFFF for word in words], np.uint64)
    total = np.zeros(len(words) - size + 1, np.uint64)
    for k in range(size):
        total = total * BASE + each[k : k + len(total)]
    return total


def _table(
    found: Sequence[tuple[int, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hashes, rising, and whose and from which word on they are; of those that tell something."""
    hashes = np.concatenate([hashes[tells] for _, hashes, tells in found])
    owners = np.concatenate([np.full(tells.sum(), owner) for owner, _, tells in found])
    offsets = np.concatenate([np.flatnonzero(tells) for _, _, tells in found])
    order = np.argsort(hashes, kind="stable")
    return hashes[order], owners[order], offsets[order]


class Found(NamedTuple):
    """What a corpus shares with test examples.

    Attributes:
      counts: records read, clean, overlapping, and set aside as they are none.
      records: overlapping ones by task.
      examples: which of the index's examples, by task, are somewhere in the corpus.
      ids: of overlapping records, with their tasks; the first few.
    """

    counts: Counter[str]
    records: Counter[str]
    examples: defaultdict[str, set[int]]
    ids: list[tuple[str, str]]


def search(index: Index, records: Path, out: Path | None) -> Found:
    """Looks for the test examples in all records under a directory, and writes what is clean.

    Args:
      index: of the examples.
      records: the directory.
      out: where clean records and the report go; None: nowhere.

    Raises:
      ValueError, OSError: an input cannot be read, or it and ``out`` lie in one another.
    """
    if out is not None:
        inner, outer = out.resolve(), records.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise ValueError(
                f"{out}: within {records}, or around it; what is written would be read"
            )
    found = Found(
        Counter(read=0, clean=0, overlapping=0, faulty=0), Counter(), defaultdict(set), []
    )
    for file in files_of(records):
        name, kept = file.relative_to(records), []
        with nullcontext(len) if out is None else whole_lines(out / name) as put:
            for number, line in lines_of(file):
                reason = _judge(index, found, line)
                if reason is None:
                    put(line.decode("utf-8").rstrip("\r\n") + "\n")
                else:
                    kept.append(set_aside(file, number, line, reason))
        if out is not None and kept:
            with whole_lines(out / ASIDE / name) as put_aside:
                put_aside("".join(kept))
    if out is not None:
        with whole_file(out / REPORT) as page:
            page.write(markdown(report(index, found), "Decontamination"))
    return found


def _judge(index: Index, found: Found, line: bytes) -> str | None:
    """Why a line is set aside; None: it is clean."""
    found.counts["read"] += 1
    try:
        record = record_of(line)
    except ValueError as error:
        found.counts["faulty"] += 1
        return str(error)
    owners = index.found_in(record["text"])
    if not owners:
        found.counts["clean"] += 1
        return None
    found.counts["overlapping"] += 1
    tasks = sorted({index.examples[owner].task for owner in owners})
    for owner in owners:
        found.examples[index.examples[owner].task].add(owner)
    found.records.update(tasks)
    if len(found.ids) < MOST_SHOWN:
        found.ids.append((str(record.get("id", "")), ", ".join(tasks)))
    return index.reason(owners)


def report(index: Index, found: Found) -> list[Block]:
    """Counts by task, and ids; no text."""
    looked_for = Counter(example.task for example in index.examples)
    rows = [
        [task, *(f"{count[task]:,}" for count in (looked_for, index.short, index.common))]
        + [f"{len(found.examples.get(task, ())):,}", f"{found.records[task]:,}"]
        for task in sorted(looked_for | index.short | index.common)
    ]
    said = ", ".join(f"{count:,} {what}" for what, count in found.counts.items())
    blocks: list[Block] = [
        Paragraph(f"Records: {said}."),
        Table(
            ["task", "test examples", "too short", "common", "found", "records that overlap"], rows
        ),
    ]
    if found.ids:
        shown = [[name, tasks] for name, tasks in found.ids]
        blocks += [Heading("Records that overlap"), Table(["id", "task"], shown, text_columns=2)]
        left = found.counts["overlapping"] - len(found.ids)
        blocks += [Items([f"and {left:,} others"])] if left else []
    return blocks


def texts_of_tasks(
    names: Sequence[str], data: Path
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The texts of tasks' test and training splits; without names, of all tasks on disk.

    Raises:
      FileNotFoundError: a task that is named is not there; ValueError: nor is any.
    """
    texts: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for name in names or TASKS:
        task = find(name)
        try:
            splits = load(task, data).splits
        except FileNotFoundError:
            if names:
                raise
            continue
        for found, split in zip(texts, ("test", "train"), strict=True):
            found[task.name] = list(map(text_of, splits[split]))
    if not texts[0]:
        raise ValueError(f"{data}: no task is there (`python -m cpt_jax.finetune list` says which)")
    return texts


def main(arguments: Sequence[str]) -> int:
    """Searches, and writes where it is said to what; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cpt_jax.curate.decontaminate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--records", type=Path, required=True, help="directory of records")
    parser.add_argument("--data", type=Path, help="directory of tasks, as of cpt_jax.finetune")
    parser.add_argument("--tasks", nargs="+", default=[], help="which; default: all on disk")
    parser.add_argument("--texts", nargs="+", default=[], help="files, a test example a line")
    parser.add_argument(
        "--out", type=Path, help="where clean records go; without, the report alone"
    )
    parser.add_argument("--n", type=int, default=N, help=f"words of an overlap ({N})")
    parser.add_argument(
        "--least", type=int, default=LEAST, help=f"of the shortest example ({LEAST})"
    )
    options = parser.parse_args(arguments)
    try:
        if options.data is None and not options.texts:
            raise ValueError("--data or --texts: what is to be looked for?")
        if options.out is not None and options.out.exists() and any(options.out.iterdir()):
            raise FileExistsError(f"{options.out}: exists and is not empty; it is not overwritten")
        texts, known = texts_of_tasks(options.tasks, options.data) if options.data else ({}, {})
        for pattern in options.texts:
            files = sorted(glob.glob(pattern, recursive=True))
            if not files:
                raise FileNotFoundError(f"{pattern}: no such file")
            texts |= {name: Path(name).read_text("utf-8").splitlines() for name in files}
        index = Index(texts, options.n, options.least, known)
        print(markdown(report(index, search(index, options.records, options.out))))
    except (ValueError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
