"""Hub ids, fetched from a server of our own on the loopback interface through HF_ENDPOINT."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny_hub
import torch
from tokenizers import Tokenizer, models

pytestmark = pytest.mark.torch
COMMIT, OLDER = "c" * 40, "d" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """What huggingface_hub asks of a Hub: a repository's file list, and its files by revision."""

    files: Path
    asked: list[str]

    def do_GET(self):
        self._answer(with_body=True)

    def do_HEAD(self):
        self._answer(with_body=False)

    def log_message(self, format: str, *args):
        pass

    def _answer(self, with_body: bool):
        self.asked.append(self.path)
        path = self.path.split("?")[0].strip("/").split("/")
        commits = {"main": COMMIT, COMMIT: COMMIT, "v0": OLDER, OLDER: OLDER}
        if path[:4] == ["api", "models", "someone", "modernbert"]:
            commit = commits[path[5]]
            files = sorted((self.files / commit).iterdir())
            if path[4] == "tree":
                answer = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
                    for f in files
                ]
            else:
                siblings = [{"rfilename": file.name} for file in files]
                answer = {"id": "someone/modernbert", "sha": commit, "siblings": siblings}
            self._send(json.dumps(answer).encode(), commit, "application/json", with_body)
        elif path[:3] == ["someone", "modernbert", "resolve"]:
            commit = commits[path[3]]
            file = self.files / commit / path[4]
            self._send(file.read_bytes(), commit, "application/octet-stream", with_body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, body: bytes, commit: str, kind: str, with_body: bool):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hash(body) & 0xFFFFFFFF:x}"')
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def server(tmp_path):
    """Two revisions of a repository; the later one with files that must never be fetched."""
    model = tiny_hub.reference()
    state, config = tiny_hub.tensors(model), tiny_hub.v4(model)
    tiny_hub.write(tmp_path / "hub" / OLDER, config | {"local_rope_theta": 20000.0}, state)
    main = tiny_hub.write(tmp_path / "hub" / COMMIT, config, state)
    Tokenizer(models.WordLevel({"word": 0}, unk_token="word")).save(str(main / "tokenizer.json"))
    for name in ("modeling_evil.py", "pytorch_model.bin", "optimizer.pt", "README.md"):
        (main / name).write_text("never")
    handler = type("Handler", (Hub,), {"files": tmp_path / "hub", "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SCRIPT = """
from cpt_jax.model import hub
source = "someone/modernbert"
spec = hub.load_spec(source)
params = hub.load_params(source, spec)
print(len(params), spec.local_rope_theta, hub.load_spec(source + "@v0").local_rope_theta)
print(*sorted(file.name for file in hub.resolve(source).iterdir()))
try:
    hub.load_spec("someone/else")
except FileNotFoundError as error:
    print(str(error).splitlines()[0])
"""


def run(script: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess:
    # A process of its own: huggingface_hub reads its environment once, at import.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_hub_id_is_fetched_from_the_endpoint_without_code_or_pickles(server, tmp_path):
    endpoint = f"http://127.0.0.1:{server.server_port}"
    done = run(SCRIPT, tmp_path, HF_ENDPOINT=endpoint)
    assert done.returncode == 0, done.stderr
    numbers, files, missing = done.stdout.splitlines()
    assert numbers == f"{len(tiny_hub.reference().state_dict()) - 1} 10000.0 20000.0"
    assert files == "config.json model.safetensors tokenizer.json"
    assert missing.startswith("someone/else: no such file or directory here, and not fetched")
    assert endpoint in missing
    fetched = {path.split("/")[-1] for path in server.RequestHandlerClass.asked}
    assert not fetched & {"modeling_evil.py", "pytorch_model.bin", "optimizer.pt", "README.md"}

    # What has been fetched is found again without a network.
    again = run(SCRIPT, tmp_path, HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    assert again.stdout.splitlines()[0] == numbers, again.stderr


def test_from_hf_fetches_pickles_only_where_there_is_nothing_else(server, tmp_path):
    main = server.RequestHandlerClass.files / COMMIT
    (main / "model.safetensors").unlink()
    torch.save(tiny_hub.tensors(tiny_hub.reference()), main / "pytorch_model.bin")
    script = (
        "import sys; from convert.__main__ import main\n"
        f"sys.exit(main(['from-hf', 'someone/modernbert', {str(tmp_path / 'out')!r}]))"
    )
    done = run(script, tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()


TOKENIZER = """
from cpt_jax.data.tokenizer import find_tokenizer
try:
    file = find_tokenizer("someone/modernbert")
    print(*sorted(found.name for found in file.parent.iterdir()))
except FileNotFoundError as error:
    print(str(error).splitlines()[0])
"""


def test_a_tokenizer_is_fetched_by_its_id_and_nothing_beside_it(server, tmp_path):
    endpoint = f"http://127.0.0.1:{server.server_port}"
    offline = run(TOKENIZER, tmp_path, HF_HUB_OFFLINE="1", HF_ENDPOINT=endpoint)
    assert offline.stdout.startswith(
        "someone/modernbert: no such file or directory here, and not fetched from "
        f"{endpoint} either: "
    ), offline.stderr
    assert not server.RequestHandlerClass.asked
    done = run(TOKENIZER, tmp_path, HF_ENDPOINT=endpoint)
    assert done.stdout.split() == ["tokenizer.json"], done.stderr
    fetched = {path.split("/")[-1] for path in server.RequestHandlerClass.asked}
    assert not fetched & {"config.json", "model.safetensors", "modeling_evil.py"}
    again = run(TOKENIZER, tmp_path, HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    assert again.stdout.split() == ["tokenizer.json"], again.stderr
