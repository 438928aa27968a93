"""Streams and batches: what a run reads is a function of its config and the step alone."""

import itertools
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_corpus

from cpt_jax.data.mixture import Interleaving, Mixture, batches, rows_at
from cpt_jax.data.sources import Source, open_source, shared_tokenizer
from cpt_jax.seeds import hash_seed


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return tiny_corpus.write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tok")


@pytest.fixture(scope="module")
def sources(tmp_path_factory, tokenizer) -> dict[str, Source]:
    """Sources of about 220, 40 and 6 rows of 64 tokens."""
    folder = tmp_path_factory.mktemp("corpora")
    counts = {"web": 400, "notes": 70, "leaflets": 10}
    return {
        name: open_source(
            tiny_corpus.corpus(
                folder / name, tokenizer, tiny_corpus.texts(count, longest=60, seed=count)
            )
        )
        for name, count in counts.items()
    }


WEIGHTS = {"web": 0.7, "notes": 0.2, "leaflets": 0.1}


def row_ids(mixture: Mixture, rows: range) -> list[tuple[str, int]]:
    return [(mixture.names[row["source"]], row["row"]) for row in (mixture[i] for i in rows)]


def read(mixture: Mixture, start: int, stop: int, size: int = 4, **options) -> list[dict]:
    return list(
        batches(
            mixture,
            batch_size=size,
            first_ordinal=options.pop("first_ordinal", 0),
            start_step=start,
            stop_step=stop,
            **options,
        )
    )


def ids_of(found: list[dict]) -> list[tuple[int, int]]:
    return [
        pair
        for batch in found
        for pair in zip(batch["sources"].tolist(), batch["rows"].tolist(), strict=True)
    ]


def same(left: list[dict], right: list[dict]) -> bool:
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)
        for a, b in zip(left, right, strict=True)
    )


def test_resume_at_every_step_repeats_and_skips_nothing(sources):
    """60 steps of 4 rows: many epochs of the smallest source and one end of the middle one."""
    straight = read(Mixture(sources, WEIGHTS, 7), 0, 60)
    assert ids_of(straight) == [
        (row["source"], row["row"])
        for row in map(Mixture(sources, WEIGHTS, 7).__getitem__, range(240))
    ]
    for stop in range(1, 51):
        resumed = read(Mixture(sources, WEIGHTS, 7), stop, min(60, stop + 2))
        assert same(resumed, straight[stop : stop + 2])
    assert same(read(Mixture(sources, WEIGHTS, 7), 50, 60), straight[50:])


def test_batches(sources):
    mixture = Mixture(sources, WEIGHTS, 7)
    (batch,) = read(mixture, 3, 4, first_ordinal=2**32 - 14)
    rows = [mixture[i] for i in range(12, 16)]
    assert {key: (value.dtype.name, value.shape) for key, value in batch.items()} == {
        "input_ids": ("int32", (4, 64)),
        "segment_ids": ("int32", (4, 64)),
        "ordinals": ("uint32", (4,)),
        "sources": ("int32", (4,)),
        "rows": ("int64", (4,)),
    }
    for key in ("input_ids", "segment_ids"):
        np.testing.assert_array_equal(batch[key], np.stack([row[key] for row in rows]))
    assert batch["ordinals"].tolist() == [2**32 - 2, 2**32 - 1, 0, 1]
    source = sources[mixture.names[rows[2]["source"]]]
    np.testing.assert_array_equal(source[rows[2]["row"]]["input_ids"], batch["input_ids"][2])


def test_any_number_of_hosts_reads_the_same_batches(sources):
    """4 hosts, then 2, then 8, then 1 again."""
    mixture = Mixture(sources, WEIGHTS, 7)
    alone = read(mixture, 0, 12, size=8, first_ordinal=5)
    for hosts, start in ((4, 0), (2, 4), (8, 8), (1, 2)):
        parts = [
            read(
                *(mixture, start, start + 4),
                size=8,
                first_ordinal=5,
                process_index=host,
                process_count=hosts,
            )
            for host in range(hosts)
        ]
        together = [
            {key: np.concatenate([part[key] for part in step]) for key in step[0]}
            for step in zip(*parts, strict=True)
        ]
        assert same(together, alone[start : start + 4])


def test_nothing_ends_with_the_smallest_source(sources):
    mixture = Mixture(sources, WEIGHTS, 7)
    rows = 30 * len(sources["leaflets"])
    seen = Counter(name for name, _ in row_ids(mixture, range(rows)))
    assert seen == mixture.cursors_after(rows)
    assert mixture.epochs_after(rows) == {name: seen[name] / len(sources[name]) for name in sources}
    assert mixture.epochs_after(rows)["leaflets"] > 2.5
    assert mixture.epochs_after(rows)["web"] < 1


def test_every_epoch_has_its_own_order_of_the_same_rows(sources):
    for name, source in sources.items():
        size = len(source)
        mixture = Mixture(sources, {name: 1}, 7)
        epochs = [
            [i for _, i in row_ids(mixture, range(e * size, (e + 1) * size))] for e in range(3)
        ]
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_neighbouring_seeds_and_sources_share_no_order(sources):
    """Grain adds the epoch to the seed: with seeds 42 and 43, one run's order would be shifted."""
    web = sources["web"]
    size = len(web)
    orders = {}
    for seed, name in itertools.product((42, 43, 44), ("a", "b")):
        mixture = Mixture({name: web}, {name: 1}, seed)
        for epoch in range(3):
            rows = row_ids(mixture, range(epoch * size, (epoch + 1) * size))
            orders[seed, name, epoch] = [row for _, row in rows]
    # 153 correlations of standard deviation 1 / sqrt(size): five of them leave no room for a copy.
    for one, other in itertools.combinations(orders.values(), 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(size)


def test_a_changed_mixture_and_batch_go_on_where_the_phase_before_stopped(sources):
    """Three phases: together they read a prefix of each source's stream, once, in its order."""
    phases = [
        ({"web": 0.7, "notes": 0.2, "leaflets": 0.1}, 13, 6),
        ({"web": 0.3, "notes": 0.7}, 17, 4),
        ({"web": 1, "leaflets": 2, "notes": 0}, 5, 8),
    ]
    cursors: dict[str, int] = {}
    read_rows = {name: [] for name in sources}
    for weights, steps, size in phases:
        mixture = Mixture(sources, weights, 7, cursors)
        for source, row in ids_of(read(mixture, 0, steps, size=size)):
            read_rows[mixture.names[source]].append(row)
        before, cursors = mixture.cursors, mixture.cursors_after(steps * size)
        for name in sources:
            if not weights.get(name):
                assert cursors[name] == before[name]
    for name, rows in read_rows.items():
        assert cursors[name] == len(rows)
        alone = Mixture({name: sources[name]}, {name: 1}, 7)
        assert rows == [row for _, row in row_ids(alone, range(len(rows)))]


def test_the_order_of_the_config_changes_nothing(sources):
    backwards = {name: sources[name] for name in reversed(sources)}
    one = Mixture(sources, WEIGHTS, 7)
    other = Mixture(backwards, dict(reversed(WEIGHTS.items())), 7)
    assert row_ids(one, range(50)) == row_ids(other, range(50))


def test_the_second_epoch_has_other_ordinals(sources):
    """Ordinals key the corruption: the same row must be masked anew each time it comes."""
    size = len(sources["leaflets"])
    found = read(Mixture(sources, {"leaflets": 1}, 7), 0, 3 * size, size=1)
    ordinals = [int(batch["ordinals"][0]) for batch in found]
    assert ordinals == list(range(3 * size))
    rows = Counter(int(batch["rows"][0]) for batch in found)
    assert set(rows.values()) == {3}


def test_weights_are_shares_of_tokens(tmp_path, tokenizer, sources):
    """A small corpus in twenty passes, each ending with a short row, against full rows."""
    texts = tiny_corpus.texts(9, longest=40, seed=1)
    padded = open_source(tiny_corpus.corpus(tmp_path / "p", tokenizer, texts, repeat=20))
    assert padded.tokens_per_row < 62
    both = {"padded": padded, "web": sources["web"]}
    mixture = Mixture(both, {"padded": 20, "web": 80}, 7)
    tokens = Counter()
    for row in (mixture[i] for i in range(2000)):
        tokens[mixture.names[row["source"]]] += int((row["segment_ids"] > 0).sum())
    share = tokens["padded"] / tokens.total()
    assert share == pytest.approx(0.2, abs=0.001)
    rows = mixture.cursors_after(2000)["padded"] / 2000
    assert rows > 0.202, "the check above would pass with weights of rows"


@pytest.mark.parametrize("weights", [[1], [0.8, 0.2], [0.7, 0.2, 0.06, 0.04], [1e-4, 1, 0.30303]])
def test_interleaving_is_exact_even_and_random_access(weights):
    scale = 1 << 40
    shares = [round(scale * weight / sum(weights)) for weight in weights]
    interleaving = Interleaving(shares)
    counts = [0] * len(shares)
    for index in range(3000):
        assert interleaving.counts(index) == counts
        source, place = interleaving[index]
        assert place == counts[source]
        counts[source] += 1
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count - (index + 1) * weight / sum(weights)) < len(weights)
    far = interleaving.counts(10**15)
    for count, weight in zip(far, weights, strict=True):
        assert count / 10**15 == pytest.approx(weight / sum(weights), rel=1e-7)


def test_an_unreadable_record_ends_the_run_and_is_named(tmp_path, tokenizer):
    texts = tiny_corpus.texts(80, longest=60, seed=6)
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, texts)
    (shard,) = (directory / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    content[2000:2064] = bytes(byte ^ 0xFF for byte in content[2000:2064])
    shard.write_bytes(content)
    source = open_source(directory)
    started = time.monotonic()
    with pytest.raises(OSError, match=rf"{shard}: record \d+: "):
        read(Mixture({"c": source}, {"c": 1}, 7), 0, len(source), num_threads=2, prefetch=2)
    assert time.monotonic() - started < 60


def test_hash_seed():
    parts = [(s, n, p) for s in range(50) for n in ("a", "b", "ab") for p in ("", "rows", "b")]
    seeds = {hash_seed(*part) for part in parts} | {hash_seed("a", "bc"), hash_seed("ab", "c")}
    assert len(seeds) == len(parts) + 2
    assert all(0 <= seed < 2**32 for seed in seeds)
    # printf '[42, "web", "rows"]' | b2sum -l 32; another value would reorder every run made so far.
    assert hash_seed(42, "web", "rows") == int.from_bytes(bytes.fromhex("3a367550"), "little")


@pytest.mark.parametrize(
    ("weights", "cursors", "words"),
    [
        ({"web": 1, "book": 1}, {}, r"\['book'\]; sources are"),
        ({"web": 1}, {"book": 3}, r"\['book'\]; sources are"),
        ({"web": -1, "notes": 2}, {"web": 3}, r"weights \{'web': -1\}; allowed: .*>= 0"),
        ({"web": 1}, {"web": -1}, r"cursors \{'web': -1\}; allowed: .*>= 0"),
        ({"web": 0}, {}, "sum to 0"),
        ({}, {}, "sum to 0"),
    ],
)
def test_mixture_errors(sources, weights, cursors, words):
    with pytest.raises(ValueError, match=words):
        Mixture(sources, weights, 7, cursors)


def test_sources_that_do_not_go_together(tmp_path, tokenizer, sources):
    web = sources["web"]
    assert shared_tokenizer(sources, 64) == web.tokenizer
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"seq_len": 32}, r"'other' .* has rows of 32 tokens .*seq_len is 64: .*--seq-len 64"),
        ({"template": "text [SEP]"}, r"different templates \(web: \[CLS\] text .*other: text"),
    )
    for options, words in cases:
        path = tiny_corpus.corpus(tmp_path / "c", tokenizer, ["ba do"], **options)
        with pytest.raises(ValueError, match=words):
            shared_tokenizer({"web": web, "other": open_source(path)}, 64)
        shutil.rmtree(path)


STALLED = """
import os, sys
from cpt_jax.data.mixture import Mixture, batches, rows_at
from cpt_jax.data.sources import open_source

source = open_source(sys.argv[1])
shard = source.path / "shards" / "00000-000.array_record"
shard.unlink()
os.mkfifo(shard)  # opening it waits for a writer, and none comes
try:
    next(rows_at(source, [0, 1], stall_seconds=0.5))
except TimeoutError as error:
    print(error)
mixture = Mixture({"c": source}, {"c": 1}, 7)
settings = {"batch_size": 2, "first_ordinal": 0, "start_step": 0, "stop_step": 9}
for batch in batches(mixture, stall_seconds=0.5, **settings):
    print("a batch")
"""


def test_a_stalled_reader_is_named_and_the_program_ends(tmp_path, tokenizer, repo):
    directory = tiny_corpus.corpus(tmp_path / "c", tokenizer, tiny_corpus.texts(90, 60, seed=6))
    done = subprocess.run(
        [sys.executable, "-c", STALLED, str(directory)],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    message = r"no data for 0.5 s.*00000-000.array_record: records? \d"
    assert re.search(f"TimeoutError: {message}", done.stderr)
    (line,) = done.stdout.splitlines()
    assert re.match(message, line)


def test_rows_at(sources):
    web = sources["web"]
    found = list(rows_at(web, [4, 0, 2]))
    assert [row["row"] for row in found] == [4, 0, 2]
    for row in found:
        np.testing.assert_array_equal(row["input_ids"], web[row["row"]]["input_ids"])


def test_readers_end_with_the_loop_that_reads(sources):
    before = threading.active_count()
    stream = batches(
        *(Mixture(sources, WEIGHTS, 7),),
        batch_size=4,
        first_ordinal=0,
        start_step=0,
        stop_step=99,
    )
    next(stream)
    assert threading.active_count() > before
    stream.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("hosts", [{"process_count": 3}, {"process_index": 2, "process_count": 2}])
def test_hosts_that_cannot_share_a_batch(sources, hosts):
    with pytest.raises(ValueError, match="batch_size=4"):
        read(Mixture(sources, WEIGHTS, 7), 0, 1, **hosts)
