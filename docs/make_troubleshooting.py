"""Tries each bad input from the command line and writes the table of docs/troubleshooting.md.

    python docs/make_troubleshooting.py           # writes the table anew
    python docs/make_troubleshooting.py --check   # tries them and says what has changed

Every input is given to the program as a person would give it, in a folder of its own, with a small
corpus and model. It has to end with one message, a non-zero exit status and nothing left behind;
where one does not, the script says so and writes nothing.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

REPO = Path(__file__).parents[1]
PAGE = REPO / "docs" / "troubleshooting.md"
BEGIN, END = "<!-- made by make_troubleshooting.py -->", "<!-- end -->"
LONGEST = 300  # characters of a message in the table

Make = Callable[[Path], None]


@dataclasses.dataclass(frozen=True)
class Case:
    """A bad input: what it is, the command, what to do, and how the folder is spoilt before it."""

    what: str
    command: str
    cure: str
    make: Make = lambda root: None


def main(*flags: str) -> str:
    """Returns the training command on the small corpus and model, with more flags."""
    source = "--config.data.sources[0].path=corpus"
    return shlex.join(["cpt_jax.main", "--config=run.py", "--workdir=run", source, *flags])


def prepare(*flags: str) -> str:
    """Returns the command that prepares ``bad.jsonl``; a flag given again replaces the first."""
    words = ["cpt_jax.data.prepare", "--input", "bad.jsonl", "--tokenizer", "model", "--out", "new"]
    return shlex.join([*words, *flags])


def text(content: str | bytes, name: str = "bad.jsonl") -> Make:
    """Returns what writes a file."""
    data = content.encode() if isinstance(content, str) else content

    def spoil(root: Path) -> None:
        (root / name).write_bytes(data)

    return spoil


def model(change: Callable[[dict], None]) -> Make:
    """Returns what changes the tensors of the model."""

    def spoil(root: Path) -> None:
        from safetensors.numpy import load_file, save_file

        file = root / "model" / "model.safetensors"
        tensors = load_file(file)
        change(tensors)
        file.unlink()
        save_file(tensors, file, metadata={"format": "pt"})

    return spoil


def settings(file: str, **fields: object) -> Make:
    """Returns what changes fields of a JSON file."""

    def spoil(root: Path) -> None:
        content = json.loads((root / file).read_text()) | fields
        (root / file).write_text(json.dumps(content))

    return spoil


def prepared_again(*flags: str) -> Make:
    """Returns what prepares the corpus in another way."""

    def spoil(root: Path) -> None:
        shutil.rmtree(root / "corpus", ignore_errors=True)
        words = ["cpt_jax.data.prepare", "--input", "notes/notes.jsonl", "--tokenizer", "model"]
        words += ["--out", "corpus", "--seq-len", "64", "--heldout-fraction", "0.1", *flags]
        done = run(root, words)
        assert done.returncode == 0, done.stderr

    return spoil


def other_words(root: Path) -> None:
    """Swaps two entries of the model's vocabulary: the same size, another tokenizer."""
    file = root / "model" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    a, b = list(vocab)[-2:]
    vocab |= {a: vocab[b], b: vocab[a]}
    file.write_text(json.dumps(content))


def misshapen(tensors: dict) -> None:
    """One tensor missing, one too many, one of another shape."""
    tensors["model.layers.9.mlp.Wo.weight"] = tensors.pop("model.layers.1.mlp.Wo.weight")
    tensors["head.dense.weight"] = np.zeros((3, 5), np.float32)


def cut_shard(root: Path) -> None:
    """Takes the last bytes of a shard."""
    (shard,) = (root / "corpus" / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-10])


def no_manifest_json(root: Path) -> None:
    """Leaves half a manifest."""
    file = root / "corpus" / "manifest.json"
    file.write_text(file.read_text()[:100])


FIELDS = [
    Case("no config file", "cpt_jax.main --workdir=run", "`--config=configs/NAME.py`"),
    Case(
        "a config file that is not there",
        "cpt_jax.main --config=configs/nope.py --workdir=run",
        "see `ls configs`",
    ),
    Case("no directory for the run", "cpt_jax.main --config=run.py", "`--workdir=runs/NAME`"),
    Case("a misspelt flag", main("--workdri=x"), "the name it gives"),
    Case("an argument without dashes", main("quick"), "arguments of a config follow its colon"),
    Case("a misspelt argument", "cpt_jax.main --config=run.py:mml --workdir=run", "one it lists"),
    Case("a misspelt field", main("--config.data.seqlen=64"), "the name it gives"),
    Case("a misspelt group", main("--config.optimiser.b1=0.8"), "the name it gives"),
    Case("a phase that is not there", main("--config.phases[5].tokens=9"), "count from 0"),
    Case("a field before its config", "cpt_jax.main --config.seed=1 --config=run.py", "swap them"),
    Case("a word for a number", main("--config.data.seq_len=long"), "a whole number"),
    Case("a word for a yes or no", main("--config.model.remat=maybe"), "true or false"),
    Case(
        "a config file that fails",
        "cpt_jax.main --config=bad.py --workdir=run",
        "mend the line",
        text("def get_config():\n    return 1 / 0\n", "bad.py"),
    ),
    Case("a share outside (0, 1)", main("--config.phases[1].mask_rate=15"), "15 % is 0.15"),
    Case(
        "modes for other layers than there are",
        main("--config.phases[1].mask_mode=['causal', 'causal']"),
        "one mode, or one for each layer",
    ),
    Case(
        "a pattern that matches nothing",
        main("--config.phases[0].freeze=['model.layer.0.**']"),
        "paths are `model.layers.N...`",
    ),
    Case(
        "a layer that is not there",
        "cpt_jax.main --config=run.py:freeze=0-7@clm --workdir=run "
        "--config.data.sources[0].path=corpus",
        "layers of this model, from 0",
    ),
    Case("a misspelt field of the model", main("--config.model.overrides.hiden=3"), "as named"),
    Case(
        "a batch that devices cannot share",
        main("--config.phases[0].microbatches=3"),
        "a divisor of the batch",
    ),
]

DATA = [
    Case("no such text", prepare(), "quote patterns: '*.jsonl'"),
    Case(
        "an unknown format",
        "cpt_jax.data.prepare --input bad.doc --tokenizer model --out new",
        "as listed",
        text("x", "bad.doc"),
    ),
    Case(
        "an unknown tokenizer",
        prepare("--tokenizer", "nope"),
        "a directory with tokenizer.json: `python -m convert from-hf ID DIR` fetches one",
        text('{"text": "one"}\n'),
    ),
    Case("an empty corpus", prepare(), "see that the field holds text", text('{"text": ""}\n')),
    Case("an empty file", prepare(), "see that the file holds text", text("")),
    Case("invalid UTF-8", prepare(), "`iconv -t utf-8`", text(b'{"text": "caf\xe9"}\n')),
    Case("invalid JSON", prepare(), "one object a line", text('{"text": "a"}\n{"text": \n')),
    Case("no such field", prepare("--text-field", "body"), "one it lists", text('{"text": "a"}\n')),
    Case("a text that is no string", prepare(), "a string", text('{"text": 3}\n')),
    Case(
        "a negative factor",
        prepare("--repeat-field", "n"),
        "0 leaves a document out",
        text('{"text": "a", "n": -1}\n'),
    ),
    Case(
        "an unknown special token in the template",
        prepare("--template", "[BOS] text [SEP]"),
        "the tokenizer's own special tokens",
        text('{"text": "a"}\n'),
    ),
    Case(
        "an output that is there",
        prepare("--out", "corpus"),
        "another name; nothing is overwritten",
        text('{"text": "a"}\n'),
    ),
    Case("a corpus that is not there", main("--config.data.sources[0].path=no"), "its command"),
    Case(
        "rows of another length",
        main("--config.data.seq_len=32"),
        "prepare again, or the corpus's own length",
    ),
    Case(
        "data of another tokenizer",
        main(),
        "prepare the data with the model's tokenizer",
        other_words,
    ),
    Case(
        "data of another template",
        main(),
        "prepare with the default template",
        prepared_again("--template", "text [SEP]"),
    ),
    Case("no held-out rows", main(), "prepare with a share", prepared_again("--heldout-f", "0")),
    Case("a truncated shard", main(), "copy it again, or prepare again", cut_shard),
    Case("half a manifest", main(), "copy it again, or prepare again", no_manifest_json),
]

MODELS = [
    Case("a model that is not there", main("--config.init.source=nope"), "a directory or Hub id"),
    Case(
        "a model of another architecture",
        main(),
        "only ModernBERT is trained here",
        settings("model/config.json", model_type="bert"),
    ),
    Case(
        "tensors missing, unknown and of another shape",
        main(),
        "the weights and config.json belong to two models",
        model(misshapen),
    ),
    Case(
        "weights that are no safetensors",
        main(),
        "fetch them again",
        text("oops", "model/model.safetensors"),
    ),
    Case(
        "a damaged tokenizer beside a model",
        main(),
        "fetch it again",
        text("{", "model/tokenizer.json"),
    ),
    Case(
        "a checkpoint that is not there",
        main("--config.init.source=nope@clm"),
        "RUN@PHASE or RUN@STEP of a run that is there",
    ),
    Case(
        "rows longer than the model takes",
        main("--config.model.overrides.max_position_embeddings=32"),
        "raise it, or shorter rows",
    ),
    Case("a directory of something else", main("--workdir=notes"), "another --workdir"),
    Case("twins of which one is no run", "cpt_jax.twin notes notes", "two run directories"),
    Case("a report on what is no run", "cpt_jax.report notes --out page.html", "run directories"),
    Case(
        "a model to verify that is not there",
        "convert verify nope --reference torch",
        "a directory or Hub id",
    ),
    Case("a target that is there", "convert from-hf model notes", "a new directory"),
]
GROUPS = {"The command line and the config": FIELDS, "Data": DATA, "Models and runs": MODELS}

RUN = """
from configs.detour import detour, source


def get_config(arguments=None):
    made = detour(
        arguments, name="small", init="model", sources=[source("notes", 1.0, "x")], tokens=2048,
        seq_len=64, batch_size=8, warmup_tokens=64,
    )
    made.phases[1].tokens = 512
    made.evaluation.update(rows_per_source=2, batch_size=2)
    return made
"""


def run(root: Path, words: Iterable[str]) -> subprocess.CompletedProcess:
    """Runs ``python -m WORDS`` in a folder, on one CPU device, without the network."""
    added = {"PYTHONPATH": str(REPO), "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=root, env=os.environ | added, capture_output=True, text=True)


def make_folder(root: Path) -> None:
    """Writes notes, a model of random weights with their tokenizer, a corpus and a config."""
    import jax

    from cpt_jax.data.tokenizer import read_tokenizer
    from cpt_jax.model import hub, modernbert
    from cpt_jax.model.spec import ModelSpec

    words = "cpt_jax.data.synthetic --out notes --count 60 --language en --max-words 80 "
    words += "--tokenizer-vocab 500 --tokenizer-out tokenizer"
    assert run(root, words.split()).returncode == 0
    info = read_tokenizer(root / "tokenizer" / "tokenizer.json")[1]
    ids = {f"{name}_token_id": info[f"{name}_id"] for name in ("pad", "cls", "sep")}
    ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    spec = ModelSpec(vocab_size=info["vocab_size"], num_hidden_layers=3, **sizes, **ids)
    params = modernbert.init_params(spec, jax.random.key(0))
    hub.save(root / "model", spec, params, tokenizer_dir=root / "tokenizer")
    (root / "run.py").write_text(RUN)
    prepared_again()(root)


def attempt(case: Case, folder: Path) -> str:
    """Tries a case in a copy of the folder and returns its message.

    Raises:
      AssertionError: a traceback, a success, or something left behind.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "here"
        shutil.copytree(folder, root)
        case.make(root)
        before = _state(root)
        done = run(root, shlex.split(case.command))
        said = done.stderr.strip().replace(f"{root.resolve()}/", "").replace(f"{root}/", "")
        told = f"{case.what}: python -m {case.command}\n{done.stdout}{said}"
        assert done.returncode not in (0, None), f"it was accepted: {told}"
        assert "Traceback" not in said, f"a traceback: {told}"
        assert "error: " in said, f"no message: {told}"
        paths = (str(path.relative_to(root)) for path, _ in before.items() ^ _state(root).items())
        changed = [path for path in sorted(paths) if "__pycache__" not in path]
        assert not changed, f"left behind {changed}: {told}"
        return said[said.index("error: ") + len("error: ") :]


def _state(root: Path) -> dict[Path, int]:
    """Returns all there is in a folder, files with the time of their last change."""
    return {path: path.stat().st_mtime_ns * path.is_file() for path in root.rglob("*")}


def table(cases: Iterable[Case], folder: Path, faults: list[str]) -> str:
    """Returns the cases with their messages as a Markdown table."""
    lines = ["| input | message | cure |", "|---|---|---|"]
    for case in cases:
        try:
            message = attempt(case, folder)
        except AssertionError as fault:
            faults.append(str(fault))
            continue
        message = re.sub(r"\s*\n\s*", " ", message)
        message = message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"
        message = message.replace("|", "\\|").replace("`", "'")
        lines.append(f"| {case.what} | `{message}` | {case.cure} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    sys.path.insert(0, str(REPO))
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        make_folder(Path(directory))
        tables = [
            f"### {title}\n\n{table(cases, Path(directory), faults)}"
            for title, cases in GROUPS.items()
        ]
    made = "\n\n".join(tables)
    print(made, *faults, sep="\n\n")
    if faults:
        sys.exit(f"{len(faults)} inputs are not refused as they should be")
    page = PAGE.read_text()
    page_new = f"{page.split(BEGIN)[0]}{BEGIN}\n\n{made}\n\n{END}{page.split(END)[1]}"
    if not options.check:
        PAGE.write_text(page_new)
    elif page != page_new:
        sys.exit("the table is not what it would be now")
