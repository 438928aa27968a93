"""Runs in an object store: a server on the loopback interface stands for Google Cloud Storage."""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fake_gcs
import fsspec.config
import jax
import numpy as np
import pytest
import tensorstore as ts
import tiny_run

from cpt_jax import checkpoint, config, remote, sharding
from cpt_jax.saving import SaveError
from cpt_jax.training import loop

LAST = 10


@pytest.fixture(scope="module")
def store() -> Iterator[fake_gcs.Bucket]:
    with fake_gcs.serving() as bucket, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORSTORE_GCS_HTTP_URL", bucket.url)
        patch.setenv("STORAGE_EMULATOR_HOST", bucket.url)
        patch.setenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", "token")
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        patch.setitem(fsspec.config.conf, "gs", {"token": "anon"})  # or it looks for credentials
        yield bucket


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("corpora")
    tiny_run.corpus(root, "a", 60, seed=1)
    tiny_run.corpus(root, "b", 40, seed=2)
    return root


@pytest.fixture(scope="module")
def straight(corpora) -> Path:
    return tiny_run.train(tiny_run.raw_config(corpora), corpora / "straight")


@pytest.fixture(autouse=True)
def spools(tmp_path, monkeypatch) -> Path:
    """Where spools are made, so that what is left of them is seen."""
    folder = tmp_path / "spools"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def train(corpora: Path, url: str, **options) -> None:
    raw = tiny_run.raw_config(corpora)
    mesh = sharding.make_mesh(jax.devices()[:1])
    with remote.directory(url) as workdir:
        loop.prepare(config.parse(raw), workdir, mesh).train(**options)


def download(store: fake_gcs.Bucket, run: str, to: Path) -> Path:
    """The run as a user would fetch it, by another road than the code under test."""
    for name, (_, content) in list(store.objects.items()):
        if name.startswith(f"{run}/"):
            file = to / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return to / run


def contents(store: fake_gcs.Bucket) -> dict[str, bytes]:
    return {name: content for name, (_, content) in store.objects.items()}


def files(run: Path) -> set[str]:
    """A run's files, but for those within checkpoints."""
    return {
        path.relative_to(run).as_posix()
        for path in run.rglob("*")
        if path.is_file() and "checkpoints" not in path.parts
    }


def assert_same_run(run: Path, straight: Path) -> None:
    assert files(run) == files(straight)
    assert tiny_run.metrics(run) == tiny_run.metrics(straight)
    assert checkpoint.saved_steps(run) == checkpoint.saved_steps(straight)
    ours, expected = tiny_run.state(run, LAST), tiny_run.state(straight, LAST)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (run / "export" / name).read_bytes() == (straight / "export" / name).read_bytes()


def test_a_run_in_a_store_is_the_run_it_would_be_here(store, corpora, straight, spools, tmp_path):
    train(corpora, "gs://bucket/whole/")
    assert_same_run(download(store, "whole", tmp_path), straight)
    assert not any(spools.iterdir())
    sent = [r for r in store.requests if r.startswith("POST") and "name=whole%2Fexport" in r]
    assert "export%2Fconfig.json" in sent[-1]  # what makes an export whole comes last
    before = contents(store)
    train(corpora, "gs://bucket/whole")  # finished: does nothing more
    after = contents(store)
    assert after.pop("whole/starts.jsonl") != before.pop("whole/starts.jsonl")
    assert after == before


@pytest.mark.parametrize(("step", "before", "goes_on"), [(4, [2], "of step 2"), (2, [], "anew")])
def test_a_save_that_was_broken_off_is_none(
    store, corpora, straight, tmp_path, monkeypatch, step, before, goes_on
):
    """And what the metrics say past the last whole checkpoint goes, as in any run."""
    name = f"broken-{step}"
    commit = f"{name}/checkpoints/{step}/commit_success.txt"
    store.put(f"{name}/export/model.safetensors", b"half an export")
    reached = []

    def fail(method: str, asked: str) -> bool:
        if method == "GET" or asked != commit:
            return False
        lines = store.objects[f"{name}/metrics.jsonl"][1].splitlines()
        reached.append(max(json.loads(line)["step"] for line in lines))
        return True

    monkeypatch.setattr(store, "fail", fail)
    with pytest.raises(SaveError, match=f"the same command goes on, .*{goes_on}"):
        train(corpora, f"gs://bucket/{name}")
    assert min(reached) >= step  # before it is complete, the metrics up to it are there
    assert any(n.startswith(f"{name}/checkpoints/{step}/params/") for n in store.names())
    monkeypatch.undo()
    assert remote.saved_steps(f"gs://bucket/{name}", checkpoint.ITEMS) == before
    train(corpora, f"gs://bucket/{name}")
    run = download(store, name, tmp_path)
    assert_same_run(run, straight)
    assert len((run / "starts.jsonl").read_text().splitlines()) == 2


def test_a_run_stops_and_goes_on(store, corpora, straight, tmp_path):
    with pytest.raises(loop.Stopped):
        train(corpora, "gs://bucket/stopped", stop=lambda step: step == 3)
    assert remote.saved_steps("gs://bucket/stopped", checkpoint.ITEMS) == [2, 3]
    assert "stopped/run.lock" not in store.names()  # given back: the next need not wait
    train(corpora, "gs://bucket/stopped")
    assert_same_run(download(store, "stopped", tmp_path), straight)


def test_another_run_is_refused(store, corpora):
    train(corpora, "gs://bucket/other")
    before = dict(store.objects)
    raw = tiny_run.raw_config(corpora) | {"seed": 5}
    with (
        remote.directory("gs://bucket/other") as workdir,
        pytest.raises(ValueError, match="holds another run"),
    ):
        loop.prepare(config.parse(raw), workdir, sharding.make_mesh(jax.devices()[:1]))
    assert store.objects == before


def test_a_run_that_was_taken_over_writes_nothing_more(store, corpora, monkeypatch):
    monkeypatch.setattr(remote, "BEAT", 0.05)

    def intrude(step: int) -> bool:
        if step == 3:
            store.put("taken/run.lock", b"{}")
            time.sleep(0.3)  # some signs of life long
        return False

    with pytest.raises(OSError, match="another process has taken it over"):
        train(corpora, "gs://bucket/taken", stop=intrude)
    assert remote.saved_steps("gs://bucket/taken", checkpoint.ITEMS) == [2]
    assert store.objects["taken/run.lock"][1] == b"{}"


@pytest.mark.parametrize(
    ("workdir", "said"),
    [
        ("s3://bucket/run", "to no other kind of store"),
        ("gs://bucket", "gs://BUCKET/RUN"),
        ("gs:///run", "gs://BUCKET/RUN"),
        ("gs://user:word@bucket/run", "gs://bucket/run: it carries a key or password"),
        ("https://user:word@host/run", "https://host/run: it carries a key or password"),
    ],
)
def test_what_is_no_run_directory_in_a_store(workdir, said):
    with pytest.raises(ValueError, match=said), remote.directory(workdir):
        pass


def test_without_gcsfs_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = pytest.raises(ValueError, match=r"pip install -e '\.\[gs\]'")
    with said, remote.directory("gs://bucket/run"):
        pass


def test_a_store_that_may_not_be_read_is_one_message(store, monkeypatch):
    monkeypatch.setattr(store, "fail", lambda method, name: True)
    said = pytest.raises(OSError, match="gs://bucket/none: Forbidden")
    with said, remote.directory("gs://bucket/none"):
        pass


def test_a_directory_here_is_itself(tmp_path):
    with remote.directory(str(tmp_path)) as workdir:
        assert workdir == tmp_path
        assert remote.url_of(workdir) is None
        assert checkpoint.directory(workdir) == tmp_path / "checkpoints"


def test_what_the_owner_before_wrote_last_is_not_lost(store):
    """Its last files come after the next one began to wait for it."""
    store.put("relay/metrics.jsonl", b"1\n")
    store.put("relay/starts.jsonl", b"first\n")
    with lease("relay") as before, remote.directory("gs://bucket/relay") as workdir:
        store.put("relay/metrics.jsonl", b"1\n2\n")
        before.release()
        reads = len(store.requests)
        owner = remote.own(workdir)
        assert (workdir / "metrics.jsonl").read_bytes() == b"1\n2\n"
        assert (workdir / "starts.jsonl").read_bytes() == b"first\n"
        (workdir / "metrics.jsonl").write_bytes(b"1\n2\n3\n")
        remote.upload(workdir)
        assert store.objects["relay/metrics.jsonl"][1] == b"1\n2\n3\n"
        sent = [r for r in store.requests[reads:] if r.startswith("POST") and "starts" in r]
        assert not sent  # what did not change stays there as it is
        owner.release()


def test_an_owner_that_cannot_be_heard_sends_nothing(store, monkeypatch):
    monkeypatch.setattr(remote, "SILENCE", 0.5)
    with lease("mute", patience=0.4) as held:
        held.check()
        monkeypatch.setattr(store, "fail", lambda method, name: name == "mute/run.lock")
        time.sleep(0.5)
        with pytest.raises(OSError, match=r"run\.lock could not be written"):
            held.check()
        monkeypatch.undo()
        held.check()  # it is heard again, and nobody came in between


@contextlib.contextmanager
def lease(name: str, *, beat: float = 0.05, patience: float = 1.0) -> Iterator[remote.Lease]:
    url = f"gs://bucket/{name}"
    held = remote.Lease(ts.KvStore.open(f"{url}/").result(), url, beat=beat, patience=patience)
    try:
        yield held
    finally:
        held.release()


def test_an_owner_that_lives_is_named(store):
    with lease("alive"):
        start = time.monotonic()
        said = pytest.raises(BlockingIOError, match=r"in use by process \d+ on .* since 20")
        with said, lease("alive", patience=30.0):
            pass
        assert time.monotonic() - start < 10  # two signs of life, not the patience
    assert "alive/run.lock" not in store.names()


def test_an_owner_that_is_silent_is_followed(store):
    """A killed one wrote last what lies there; one that was only asleep is told when it wakes."""
    with lease("asleep", beat=3.0) as sleeper:
        start = time.monotonic()
        with lease("asleep", patience=0.5) as follower:
            assert 0.5 <= time.monotonic() - start < 2.5
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    sleeper.check()
                    time.sleep(0.05)
                    continue
                break
            with pytest.raises(OSError, match="another process has taken it over"):
                sleeper.check()
            follower.check()
            sleeper.release()
            assert "asleep/run.lock" in store.names()  # not the sleeper's to take away
            follower.check()


def test_of_many_at_once_one_gets_it(store):
    won, refused = [], []
    together = threading.Barrier(6)

    def contend() -> None:
        together.wait()
        try:
            with lease("crowd", patience=30.0):
                won.append(1)
                time.sleep(1.5)  # until all others have seen it live
        except BlockingIOError:
            refused.append(1)

    threads = [threading.Thread(target=contend) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 5)


@pytest.mark.parametrize("status", [503, 403])
def test_an_answer_that_was_lost_is_no_loss_of_the_run(store, status):
    """The write succeeded and is asked for again, by TensorStore (503) or with the next sign."""
    with lease("flaky") as held:
        store.lose.append(status)
        deadline = time.monotonic() + 20
        while store.lose and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not store.lose
        time.sleep(0.5)
        held.check()
