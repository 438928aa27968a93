"""The first steps of the pipeline, without the rest: what a file says of itself, and archives."""

import bz2
import gzip
import io
import json
import lzma
import tarfile

import numpy as np
import pytest
import zstandard

from cpt_jax.curate.recipe import Source
from cpt_jax.curate.steps import ReadSources, find_raw, records, writer


def read(tmp_path, source: Source, rank: int = 0, tasks: int = 1):
    root = str(tmp_path / "raw")
    faults = writer(str(tmp_path / "faults"))
    step = ReadSources(root, find_raw(root, [source]), [source], faults)
    return list(step.run(None, rank, tasks))


def put(tmp_path, name: str, *objects) -> None:
    path = tmp_path / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))


def source(*files: str, **more) -> Source:
    return Source("mine", "jsonl", files or ("*.jsonl",), 1.0, **more)


def test_what_is_ours_is_not_a_file_s_to_say(tmp_path):
    """A record that names a rank would be written to another task's file."""
    said = {"source": "theirs", "rank": "7", "filter_reason": "x", "duplicate_count": 3, "year": 1}
    put(tmp_path, "a.jsonl", {"text": "One.", "id": "1", "metadata": said})
    (document,) = read(tmp_path, source(licence="CC0 1.0"))
    wanted = {f"{name}_there": value for name, value in said.items() if name != "year"}
    about = {"article": "1", "place": 0, "file": "a.jsonl", "licence": "CC0 1.0", "year": 1}
    assert document.metadata == {"source": "mine", **wanted, **about}
    with writer(str(tmp_path / "out"), name="${source}/${rank}.jsonl.gz") as put_record:
        put_record.write(document, 3)
    assert [str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.gz")] == [
        "mine/00003.jsonl.gz"
    ]
    (again,) = records(str(tmp_path / "out/mine")).run(None, 0, 1)
    assert (again.text, again.id, again.metadata) == (document.text, "1", document.metadata)


def test_files_are_shared_out_over_tasks(tmp_path):
    for i in range(5):
        put(tmp_path, f"{i}.jsonl", {"text": f"Text {i}."})
    found = [[d.text for d in read(tmp_path, source(), rank, 2)] for rank in range(2)]
    assert found == [["Text 0.", "Text 2.", "Text 4."], ["Text 1.", "Text 3."]]


PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}
NAMES = ["a.tar.gz", "a.tgz", "a.tar", "b.jsonl.gz", "b.jsonl.bz2", "b.jsonl.xz", "b.jsonl.zst"]


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_archive_gives_what_stands_before(tmp_path, name):
    # Numbers, which do not pack to nothing: a cut leaves some of them.
    numbers = np.random.default_rng(0).integers(0, 10**9, (200, 300)).tolist()
    lines = [json.dumps({"text": f"Text {i}: {row}"}) + "\n" for i, row in enumerate(numbers)]
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / name
    if name.startswith("b"):
        pack = {
            "gz": gzip.compress,
            "bz2": bz2.compress,
            "xz": lzma.compress,
            "zst": zstandard.compress,
        }
        path.write_bytes(pack[name.rpartition(".")[2]]("".join(lines).encode()))
    else:
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as archive:
            for i, line in enumerate(lines):
                member = tarfile.TarInfo(f"deep/{i}.jsonl")
                member.size = len(line)
                archive.addfile(member, io.BytesIO(line.encode()))
    assert len(read(tmp_path, source("*"))) == 200
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) * 2 // 3])
    found = read(tmp_path, source("*"))
    assert (0 if name.endswith(("bz2", "xz", "zst")) else 1) <= len(found) < 200
    assert [d.text[:8] for d in found] == [f"Text {i}: "[:8] for i in range(len(found))]
    faults = gzip.decompress((tmp_path / "faults" / "00000.jsonl.gz").read_bytes()).splitlines()
    reasons = [json.loads(line)["reason"] for line in faults]
    assert reasons[-1] == "a damaged archive: what comes after is not read"


def test_garbage_of_any_kind_is_a_fault(tmp_path):
    for ending in ("gz", "bz2", "xz", "zst", "tar", "tar.gz"):
        path = tmp_path / "raw" / f"x.jsonl.{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no archive at all" * 100)
    assert read(tmp_path, source("*")) == []
    faults = gzip.decompress((tmp_path / "faults" / "00000.jsonl.gz").read_bytes()).splitlines()
    assert len(faults) == 6


def test_a_file_that_two_globs_name_is_read_once(tmp_path):
    put(tmp_path, "a.jsonl", {"text": "One."})
    assert len(read(tmp_path, source("*.jsonl", "a.*"))) == 1


def test_a_source_without_files_is_named(tmp_path):
    put(tmp_path, "a.jsonl", {"text": "One."})
    with pytest.raises(FileNotFoundError, match=r"mine: no file b/\*\.jsonl in "):
        find_raw(str(tmp_path / "raw"), [source("*.jsonl", "b/*.jsonl")])
    with pytest.raises(FileNotFoundError, match="mine: no file"):
        find_raw(str(tmp_path / "none"), [source()])


def test_raw_inputs_may_be_in_a_store(tmp_path):
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/raw/x/a.jsonl", b'{"text": "One."}\n')
    step = ReadSources(
        "memory://raw",
        find_raw("memory://raw", [source("x/*")]),
        [source("x/*")],
        writer(str(tmp_path / "faults")),
    )
    assert [document.text for document in step.run(None, 0, 1)] == ["One."]
