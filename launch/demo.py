"""The whole road on a small model, on a CPU, in minutes: ``python -m launch.demo --workdir DIR``.

Text of an invented clinic, a tokenizer, prepared corpora, a base encoder trained from scratch on
general notes, the detour and its twin on cardiology, both exported, asked to fill masks through
transformers, and a report. Every step is a command that is printed before it runs.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cpt_jax.data import synthetic

QUESTIONS = 40  # masked words; the report shows the first of them
SHOWN = 8


class Steps:
    """Runs commands, shows them, and keeps what was done and the time it took in ``demo.json``.

    A demo that was broken off goes on with the command it was at.
    """

    def __init__(self, root: Path):
        self._file = root / "demo.json"
        self.seconds: dict[str, float] = {}  # by command
        if self._file.exists():
            self.seconds = json.loads(self._file.read_text())
        elif root.exists():
            sys.exit(
                f"{root} exists and is no demo: name another --workdir (make demo DEMO_DIR=...)"
            )

    def run(self, title: str, *command: str | Path, writes: Sequence[Path] = ()) -> None:
        """Runs ``python -m COMMAND``, unless it was run before; its failure is the demo's.

        ``writes`` is what a command refuses to overwrite: a part of it is taken away first.
        """
        words = [str(word) for word in command]
        line = f"python -m {shlex.join(words)}"
        print(f"\n== {title}\n$ {line}", flush=True)
        if line in self.seconds:
            print(f"done before, in {self.seconds[line]:.0f} s")
            return
        for directory in writes:
            shutil.rmtree(directory, ignore_errors=True)
        start = time.monotonic()
        result = subprocess.run([sys.executable, "-m", *words])
        if result.returncode:
            sys.exit(
                f"the demo stopped: `{words[0]}` ended with exit code {result.returncode}. "
                "The same command goes on from here"
            )
        self.seconds[line] = time.monotonic() - start
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.seconds, indent=1))
        print(f"{self.seconds[line]:.0f} s", flush=True)


def questions(tokenizer: Path) -> list[dict[str, str]]:
    """Returns sentences of unseen cardiology notes with one word masked, and that word.

    One sentence a note; the word is one that the embedded tokenizer holds whole.
    """
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab()
    found = []
    for note in synthetic.notes(10_000, 4 * QUESTIONS, language="mixed", specialty="cardiology"):
        sentences = re.findall(r"[^.\n]{50,200}\.", note["text"])
        for sentence in sentences[len(found) % 3 :]:
            words = re.findall(r"(?<= )[a-z]{4,}(?=[ ,.])", sentence)
            words = [w for w in words if f"Ġ{w}" in vocabulary and sentence.count(w) == 1]
            if words:
                word = words[len(found) % len(words)]
                text = sentence.strip().replace(word, "[MASK]")
                found.append({"text": text, "expected": word})
                break
    return found[:QUESTIONS]


def fill_masks(model: Path, asked: list[dict[str, str]]) -> list[list[dict]]:
    """Returns the five likeliest words of each question, by transformers' own pipeline."""
    from transformers import pipeline

    fill = pipeline("fill-mask", model=str(model), top_k=5)
    return [
        [{"token": a["token_str"].strip(), "probability": a["score"]} for a in fill(q["text"])]
        for q in asked
    ]


def ask(root: Path, runs: list[str]) -> None:
    """Writes ``samples.json`` of each run, with the base's answers beside, and prints a summary.

    Raises:
      SystemExit: if a trained model knows none of the masked words.
    """
    asked = questions(root / "tokenizer")
    before = fill_masks(root / "base" / "export", asked)
    for run in runs:
        samples = []
        answers = fill_masks(root / run / "export", asked)
        for question, new, old in zip(asked, answers, before, strict=True):
            samples.append({**question, "answers": new, "before": old})
        shown = json.dumps(samples[:SHOWN], indent=1, ensure_ascii=False)
        (root / run / "samples.json").write_text(shown)
        right = sum(s["expected"] in [a["token"] for a in s["answers"]] for s in samples)
        print(f"{run}: {right} of {len(samples)} masked words among the first five answers")
        print(f"  {asked[0]['text']}\n  -> {', '.join(a['token'] for a in answers[0])}")
        if not right:
            sys.exit(f"{run}/export fills no mask rightly: something is wrong")


def main() -> None:
    """Walks the road from nothing to the report."""
    parser = argparse.ArgumentParser(prog="python -m launch.demo", description=__doc__)
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"), metavar="DIR")
    root = parser.parse_args().workdir
    steps = Steps(root)
    tokenizer = root / "tokenizer"
    general = [name for name in synthetic.SPECIALTIES if name != "cardiology"]
    steps.run(
        "notes of an invented clinic, and a tokenizer",
        *("cpt_jax.data.synthetic", "--out", root / "text" / "general", "--count", "6000"),
        *("--seed", "1", "--language", "mixed", "--max-words", "1000", "--specialty", *general),
        *("--tokenizer-vocab", "2048", "--tokenizer-out", tokenizer),
        writes=[root / "text" / "general", tokenizer],
    )
    steps.run(
        "notes of one specialty",
        *("cpt_jax.data.synthetic", "--out", root / "text" / "cardiology", "--count", "3000"),
        *("--seed", "2", "--language", "mixed", "--max-words", "1000"),
        *("--specialty", "cardiology"),
        writes=[root / "text" / "cardiology"],
    )
    for corpus in ("general", "cardiology"):
        steps.run(
            f"{corpus} text to token shards",
            *("cpt_jax.data.prepare", "--input", root / "text" / corpus / "notes.jsonl"),
            *("--tokenizer", tokenizer, "--out", root / "data" / corpus),
            *("--seq-len", "256", "--heldout-fraction", "0.02", "--workers", "1"),
            writes=[root / "data" / corpus],
        )
    for run, arguments, title in (
        ("base", ":base", "a base encoder from scratch: masked words of general notes"),
        ("detour", "", "the detour: cardiology by next words, then by masked words"),
        ("twin", ":mlm", "its twin: cardiology by masked words alone"),
    ):
        corpus = "general" if run == "base" else "cardiology"
        init = "scratch" if run == "base" else root / "base"
        steps.run(
            title,
            *("cpt_jax.main", f"--config=configs/demo.py{arguments}", f"--workdir={root / run}"),
            f"--config.data.sources[0].path={root / 'data' / corpus}",
            f"--config.init.source={init}",
        )
    print("\n== masks filled through transformers")
    ask(root, ["detour", "twin"])
    report = root / "report.html"
    steps.run(
        "report",
        *("cpt_jax.report", root / "base", root / "detour", root / "twin", "--out", report),
    )
    total = sum(steps.seconds.values())
    print(f"\n{total:.0f} s in all; open {report}\nTo begin anew, delete {root}")


if __name__ == "__main__":
    main()
