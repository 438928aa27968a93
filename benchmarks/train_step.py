"""One training step of ModernBERT-base in float32 on this CPU: ours, and transformers' in PyTorch.

    python -m benchmarks.train_step                    # all cases, median of three, some 25 minutes
    python -m benchmarks.train_step --cases a --layers 4

Both sides start from the same weights, read the same documents and predict the same masked words
(30 %), with logits at those alone; both take a step of AdamW. The first losses are printed: they
agree where both sides do the same work. Each side is a process of its own that sleeps while the
other is timed; pairs are taken in turn, after two steps of each to warm up; in b and c one side
follows the other. Both keep the memory they free while there is enough of it (`cpt_jax.memory`),
which is faster for both; two sides that are large would leave none to keep. A table goes to
standard output.

  a  4 rows of 512 tokens, each one document
  b  8 documents of about 1,000 tokens, packed into one row here; there two at a time, the longer
     padding the shorter, as the activations of all eight take more than 21 GB
  c  one document of 8,192 tokens; PyTorch with gradient checkpointing, as without it takes more
     than 22 GB
"""

import argparse
import importlib.metadata
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

CASES = {
    "a": "4 x 512",
    "b": "8 documents of about 1,000 tokens, packed",
    "c": "1 x 8,192",
}
TORCH_PIECES = {"a": 1, "b": 4, "c": 1}  # micro-batches of the PyTorch side
APART = {"b", "c"}  # cases whose sides are not in memory at one time: none would keep its own
CHECKPOINTED = {"c"}  # cases in which PyTorch recomputes each layer
WARM_UP = 2  # steps of each side: PyTorch's second is still slower than its third
RATE = 0.3
MASK, SPECIAL = 50284, (50280, 50281, 50282, 50283, 50284)
LEARNING_RATE, BETAS, EPSILON, DECAY = 1e-4, (0.9, 0.98), 1e-6, 1e-5


def rows(case: str) -> dict[str, np.ndarray]:
    """The batch of a case: ids, document numbers from 1, ordinals."""
    rng = np.random.default_rng(0)
    if case == "a":
        lengths = [[512]] * 4
    elif case == "b":
        parts = rng.integers(900, 1150, 7)
        lengths = [[*parts, 8192 - parts.sum()]]
    else:
        lengths = [[8192]]
    segments = np.stack([np.repeat(np.arange(1, len(row) + 1), row) for row in lengths])
    return {
        "input_ids": rng.integers(1000, 50000, segments.shape, np.int32),
        "segment_ids": segments.astype(np.int32),
        "ordinals": np.arange(len(segments), dtype=np.uint32),
    }


def ours(pipe: Connection, case: str, layers: int, weights: Path) -> None:
    """Writes fresh weights, sends the targets, then takes a step whenever it is asked to."""
    import jax
    import jax.numpy as jnp

    from cpt_jax import memory
    from cpt_jax.config import LearningRate, Optimizer, Phase
    from cpt_jax.model import hub, modernbert
    from cpt_jax.model.spec import SIZES
    from cpt_jax.seeds import hash_seed
    from cpt_jax.training import objectives, optim
    from cpt_jax.training.step import State, compiler_options, make_train_step, phase_targets

    memory.keep_freed()
    spec = SIZES["base"].override({"num_hidden_layers": layers}, "--layers")
    vocabulary = objectives.Vocabulary(size=50368, mask_id=MASK, special_ids=SPECIAL)
    rate = LearningRate("warmup_constant", LEARNING_RATE)
    batch = {name: jnp.asarray(array) for name, array in rows(case).items()}
    phase = Phase("mlm", "mlm", 10**9, len(batch["ordinals"]), rate, mask_rate=RATE)
    optimizer = Optimizer(*BETAS, EPSILON, DECAY, decay_mode="adamw")
    tx = optim.make_tx(optimizer, LEARNING_RATE)
    params = modernbert.init_params(spec, jax.random.key(0))
    hub.save(weights, spec, params)
    key = jax.random.key(hash_seed(0, "corruption"))
    targets = jax.jit(lambda b: phase_targets(phase, b, vocabulary, key))(batch)
    pipe.send(jax.tree.map(np.asarray, targets._asdict()))
    step = make_train_step(
        modernbert.structure(spec, remat=False),
        phase,
        tx,
        first_step=0,
        tokens_per_step=batch["input_ids"].size,
        vocabulary=vocabulary,
        frozen=frozenset(),
        seed=0,
    )
    step = jax.jit(step, donate_argnums=0, compiler_options=compiler_options())
    state = State(jnp.int32(0), params, tx.init(params))
    while pipe.recv():
        start = time.perf_counter()
        state, metrics = step(state, batch)
        loss = float(metrics["loss"])
        jax.block_until_ready(state)
        memory.hand_back_if_short()
        pipe.send((time.perf_counter() - start, loss))


def theirs(
    pipe: Connection, case: str, targets: dict[str, Any], weights: Path, compiled: bool
) -> None:
    """The same steps through transformers and torch, each document a row of a padded batch."""
    import torch
    from transformers import AutoModelForMaskedLM

    from cpt_jax import memory

    memory.keep_freed()
    torch.set_num_threads(os.cpu_count() or 1)
    batch = rows(case)
    count = (targets["labels"] >= 0).sum()
    pieces = []
    documents = documents_of(batch["segment_ids"], targets)
    size = len(documents) // TORCH_PIECES[case]
    for first in range(0, len(documents), size):
        ids, labels, mask = padded(documents[first : first + size])
        piece = {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}
        if not mask.all():
            piece["attention_mask"] = torch.from_numpy(mask)
        pieces.append((piece, float((labels >= 0).sum() / count)))
    model = AutoModelForMaskedLM.from_pretrained(
        weights, dtype=torch.float32, attn_implementation="sdpa", sparse_prediction=True
    ).train()
    if case in CHECKPOINTED:
        model.gradient_checkpointing_enable()
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, fused=True)
    forward = torch.compile(model) if compiled else model
    while pipe.recv():
        start = time.perf_counter()
        total = 0.0
        for piece, share in pieces:
            loss = forward(**piece).loss * share
            loss.backward()
            total += loss.item()
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        memory.hand_back_if_short()
        pipe.send((time.perf_counter() - start, total))


def documents_of(segments: np.ndarray, targets: dict[str, Any]) -> list[tuple]:
    """Corrupted ids and labels of each document of packed rows, the shortest first."""
    dense = np.full(segments.shape, -100, np.int64)
    for row, positions, labels in zip(dense, targets["positions"], targets["labels"], strict=True):
        row[positions[labels >= 0]] = labels[labels >= 0]
    documents = [
        (targets["input_ids"][row][segments[row] == number], dense[row][segments[row] == number])
        for row in range(len(segments))
        for number in np.unique(segments[row])
    ]
    return sorted(documents, key=lambda document: len(document[0]))


def padded(documents: Sequence[tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, labels and attention mask [documents, longest]."""
    shape = len(documents), max(len(ids) for ids, _ in documents)
    ids, labels = np.zeros(shape, np.int64), np.full(shape, -100, np.int64)
    mask = np.zeros(shape, np.int64)
    for i, (document, expected) in enumerate(documents):
        ids[i, : len(document)], labels[i, : len(document)] = document, expected
        mask[i, : len(document)] = 1
    return ids, labels, mask


def measure(case: str, repeats: int, layers: int, compiled: bool, only: str | None):
    """Returns the seconds of each side's timed steps."""
    sides = [side for side in ("cpt_jax", "PyTorch") if only in (None, side)]
    turns = [(turn, side) for turn in range(-WARM_UP, repeats) for side in sides]
    if case in APART:
        turns.sort(key=lambda turn: sides.index(turn[1]))
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "model"
        workers = {"cpt_jax": Worker(ours, case, layers, weights)}
        targets = workers["cpt_jax"].receive()
        for i, (turn, side) in enumerate(turns):
            if side not in workers:
                workers[side] = Worker(theirs, case, targets, weights, compiled)
            workers[side].pipe.send(True)
            taken, loss = workers[side].receive()
            print(f"{case} {side} {turn}: {taken:.2f} s, loss {loss:.5f}", file=sys.stderr)
            if turn >= 0:
                seconds[side].append(taken)
            if side not in (later for _, later in turns[i + 1 :]):
                workers.pop(side).end()
        for worker in workers.values():
            worker.end()
    return seconds


class Worker:
    """A process of its own, and the pipe to it."""

    def __init__(self, work: Callable[..., None], *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=work, args=(end, *arguments), daemon=True)
        self.process.start()
        end.close()  # or the pipe would stay open when the process is killed

    def end(self) -> None:
        """Tells the process that no step is wanted any more, and waits for its end."""
        self.pipe.send(False)
        self.process.join()

    def receive(self) -> Any:
        """Returns what the process sends next; exits, saying so, if it has ended."""
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            sys.exit(f"a worker ended with {code}{' (out of memory?)' if code == -9 else ''}")


def main() -> None:
    """Measures what was asked for and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of each side")
    parser.add_argument("--layers", type=int, default=22, help="of the model; base has 22")
    parser.add_argument("--compile", action="store_true", help="torch.compile the PyTorch side")
    parser.add_argument("--only", choices=("cpt_jax", "PyTorch"))
    options = parser.parse_args()
    versions = {p: importlib.metadata.version(p) for p in ("jax", "torch", "transformers")}
    print(", ".join(f"{name} {version}" for name, version in versions.items()), end="")
    print(f"; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| case | tokens | cpt_jax | PyTorch | ratio |\n|---|---|---|---|---|")
    for case in options.cases:
        tokens = rows(case)["input_ids"].size
        taken = measure(case, options.repeats, options.layers, options.compile, options.only)
        best = {side: statistics.median(seconds) for side, seconds in taken.items()}
        cells = [f"{s:.1f} s, {tokens / s:.0f} tokens/s" for s in best.values()]
        ratio = f"{best['PyTorch'] / best['cpt_jax']:.2f}x" if len(best) == 2 else "-"
        print(f"| {case}: {CASES[case]} | {tokens:,} | {' | '.join(cells)} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
