"""Nothing that a run writes or says holds a document's text or a credential; nothing is sent."""

import json
import os
import subprocess
import sys

import pytest
import tiny_run

from cpt_jax.report.__main__ import main as report

NAME = "Zorblat Quixnor"
SENTENCE = f"{NAME} was seen for w3 w77 w12 w5 w99 and glimmerfever"
SECRETS = {
    "HF_TOKEN": "hf_plantedSecretOfTheHub",
    "WANDB_API_KEY": "plantedSecretOfWandb0123456789",
    "AWS_SECRET_ACCESS_KEY": "plantedSecretOfTheStore",
}
PLANTED = (*NAME.split(), "glimmerfever", "w3 w77 w12", *SECRETS.values())
# Run by every Python that the test starts: a connection is refused, and remembered.
NO_NETWORK = """
import os, socket
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        open(os.environ["CONNECTIONS"], "a").write(f"{address}\\n")
        raise OSError("no network")
    return connect(self, address)
connect, socket.socket.connect = socket.socket.connect, refuse
"""
BAD = {
    "json": f'{{"text": "{SENTENCE}" oops}}',
    "field": json.dumps({"body": SENTENCE}),
    "type": json.dumps({"text": [SENTENCE]}),
    "utf8": SENTENCE.encode() + b"\xe9\n",
}


def told(text: str | bytes) -> list[str]:
    """What of the planted words a text holds."""
    data = text.encode() if isinstance(text, str) else text
    return [word for word in PLANTED if word.encode() in data]


@pytest.fixture
def python(tmp_path, repo):
    """Runs ``python -m ...`` in a folder with the secrets set and no network; returns the rest."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_HUB")} | SECRETS
    environment["PYTHONPATH"] = f"{tmp_path / 'site'}{os.pathsep}{repo}"
    environment["CONNECTIONS"] = str(tmp_path / "connections")

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert not told(done.stdout + done.stderr), words
        assert not (tmp_path / "connections").exists(), (tmp_path / "connections").read_text()
        return done

    return run


@pytest.mark.slow
def test_no_text_and_no_secret_in_what_a_run_writes(python, tmp_path):
    tokenizer = tiny_run.tokenizer(tmp_path / "tokenizer")
    (tmp_path / "raw").mkdir()
    for name in ("a", "b"):
        lines = [
            json.dumps({"id": f"{NAME} {i}", "text": f"{SENTENCE} w{i} {'w8 w1 ' * (i % 20)}"})
            for i in range(60)
        ]
        (tmp_path / "raw" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        words = ["--input", f"raw/{name}.jsonl", "--tokenizer", "tokenizer", "--out", name]
        words += ["--seq-len", "32", "--heldout-fraction", "0.2", "--workers", "1"]
        done = python("cpt_jax.data.prepare", *words)
        assert done.returncode == 0, done.stderr
    raw = tiny_run.raw_config(tmp_path, clm_steps=2, decay_steps=2)
    raw["phases"] = raw["phases"][1:]  # one program to compile is enough
    raw["logging"] = {"every_steps": 1, "tensorboard": True}
    raw["evaluation"]["batch_size"] = 8
    (tmp_path / "run.py").write_text(
        "import json\nfrom cpt_jax import config\n\n\n"
        f"def get_config():\n    raw = json.loads({json.dumps(json.dumps(raw))})\n"
        "    return config.to_config_dict(config.parse(raw))\n"
    )
    done = python("cpt_jax.main", "--config=run.py", "--workdir=run")
    assert done.returncode == 0, done.stderr
    assert report([str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0

    inputs = {tmp_path / "raw", tokenizer, tmp_path / "site"}
    written = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and not inputs & {path, *path.parents}
    ]
    names = {path.name for path in written}
    assert {"config.json", "metrics.jsonl", "starts.jsonl", "model.safetensors"} <= names
    assert {"manifest.json", "documents.npy", "report.html", "README.md"} <= names
    assert any("tfevents" in name for name in names)
    assert {path: told(path.read_bytes()) for path in written if told(path.read_bytes())} == {}


def test_no_text_in_what_is_said_of_a_bad_document(python, tmp_path):
    tiny_run.tokenizer(tmp_path / "tokenizer")
    for name, content in BAD.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    (tmp_path / "all.py").write_text(
        "import sys\nfrom cpt_jax.data import prepare\n"
        f"for name in {list(BAD)}:\n"
        "    sys.argv[1:] = ['--input', f'{name}.jsonl', '--tokenizer', 'tokenizer']\n"
        "    sys.argv += ['--out', 'new', '--workers', '1']\n"
        "    try:\n        prepare.main()\n"
        "    except SystemExit as stop:\n        assert stop.code\n"
    )
    done = python("all")
    assert done.returncode == 0, done.stderr
    for name in BAD:
        assert f"{name}.jsonl, line 1" in done.stderr
