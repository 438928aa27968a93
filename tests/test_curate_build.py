"""A mixture from raw inputs: what each record becomes, wherever and however often it is run."""

import fcntl
import gzip
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import raw_inputs

from cpt_jax.data import verify
from cpt_jax.data.sources import read_manifest


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> raw_inputs.Raw:
    return raw_inputs.write(tmp_path_factory.mktemp("inputs"))


def arguments(raw: raw_inputs.Raw, out: Path, *more: str) -> list[str]:
    folder = raw.folder
    paths = {"recipe": folder / "recipe.py", "raw": folder / "raw", "data": folder, "out": out}
    paths["tokenizer"] = folder / "tokenizer.json"
    settings = ("-s", "tasks=2", *more)
    return [part for name, path in paths.items() for part in (f"--{name}", str(path))] + [*settings]


def run(*arguments: str) -> subprocess.CompletedProcess:
    """The command, in a process of its own: datatrove forks, and JAX must not be there then."""
    command = [sys.executable, "-m", "cpt_jax.curate.build", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(raw, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("built") / "out"
    done = run(*arguments(raw, out))
    assert done.returncode == 0, done.stderr
    return out


def lines(folder: Path) -> list[dict]:
    files = sorted(folder.rglob("*.jsonl.gz"))
    return [json.loads(line) for file in files for line in gzip.open(file, "rt")]


def contents(folder: Path) -> dict[str, str]:
    """What is in all files that a recipe's records go to, but for the time in gzip's head."""
    files = [
        file for part in ("unique", "selected", "aside") for file in (folder / part).rglob("*")
    ]
    return {
        str(file.relative_to(folder)): gzip.decompress(file.read_bytes()).decode()
        if file.suffix == ".gz"
        else file.read_text()
        for file in files
        if file.is_file()
    }


def test_each_record_becomes_what_it_should(raw, built):
    work = built / "work"
    found = {record["id"].removesuffix("/0"): record for record in lines(work / "unique")}
    gone = {
        name: {record["id"].removesuffix("/0"): record for record in lines(work / "aside" / name)}
        for name in ("unfit", "exact", "near")
    }
    everything = [*found, *(id for records in gone.values() for id in records)]
    assert sorted(everything) == sorted(raw.fates)
    of_pairs = {id for pair in raw.pairs for id in pair}
    for id, fate in raw.fates.items():
        if id not in of_pairs:
            assert id in (found if fate == "unique" else gone[fate])
    for pair, fate in zip(raw.pairs, ("exact", "near"), strict=True):
        assert len(set(pair) & set(found)) == 1
        assert len(set(pair) & set(gone[fate])) == 1
    reasons = {id: record["reason"] for id, record in gone["unfit"].items()}
    assert reasons == {
        "short": "fewer than 5 words",
        "french": "language fr, not en",
        "tested": "overlaps the test split of tested",
    }
    (fault,) = lines(work / "aside" / "faults")
    assert fault["reason"] == "not JSON"
    assert fault["metadata"] == {"source": "cases", "file": "cases/1.jsonl", "place": "line 12"}


def test_licence_and_place_stay_to_the_end(built):
    for record in lines(built / "work" / "selected"):
        cases = record["metadata"]["source"] == "cases"
        assert record["metadata"]["licence"] == ("CC0 1.0" if cases else "")
        assert record["repeat"] == (2.5 if cases else 1)
        assert record["metadata"]["file"].split("/")[0] == record["metadata"]["source"]


def test_corpora_and_their_table(raw, built):
    kept = {name: len(lines(built / "work" / "selected" / name)) for name in ("cases", "others")}
    assert sum(kept.values()) == sum(fate == "unique" for fate in raw.fates.values())
    weights = json.loads((built / "mixture.json").read_text())
    assert [(one["name"], one["weight"]) for one in weights] == [("cases", 0.75), ("others", 0.25)]
    for one in weights:
        assert verify.main([one["path"]]) in (0, None)
        manifest, _ = read_manifest(Path(one["path"]))
        assert manifest["documents"] == kept[one["name"]]
        assert manifest["seq_len"] == 64
    page = (built / "mixture.md").read_text()
    tokens = read_manifest(built / "cases")[0]["splits"]["train"]["row_tokens"]
    assert f" | 75,000 | {75_000 / tokens:.2f} | " in page
    rows = [row.strip("| ").split(" | ") for row in page.splitlines() if row.count("|") == 3]
    counted = dict(row for row in rows if len(row) == 2)
    assert counted["read"] == str(len(raw.fates) + 1)
    assert [counted[name] for name in ("faulty", "unfit", "duplicates", "near duplicates")] == [
        *("1", "3", "1", "1")
    ]
    report = (built / "report.html").read_text()
    assert "Set aside as duplicates: 2" in report
    assert "language fr, not en" in report


def test_one_worker_or_two(raw, built, tmp_path):
    assert run(*arguments(raw, tmp_path / "out", "-s", "workers=2")).returncode == 0
    assert contents(tmp_path / "out" / "work") == contents(built / "work")


def test_a_recipe_that_looks_for_no_test_split_keeps_them(raw, tmp_path):
    """Though it is told where they are."""
    recipe = (raw.folder / "recipe.py").read_text()
    start = recipe.index("decontaminate=(")
    end = recipe.index("),", start) + 2
    (tmp_path / "recipe.py").write_text(recipe[:start] + "decontaminate=()," + recipe[end:])
    more = arguments(raw, tmp_path / "out")
    more[1] = str(tmp_path / "recipe.py")
    assert run(*more).returncode == 0
    kept = {record["id"].removesuffix("/0") for record in lines(tmp_path / "out/work/unique")}
    assert "tested" in kept


def test_one_process_at_a_time(raw, built):
    with (built / "work/lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        done = run(*arguments(raw, built))
    assert done.returncode == 2
    assert "another process is building it" in done.stderr


def test_what_is_there_is_not_done_again(raw, built):
    times = {path: path.stat().st_mtime_ns for path in (built / "work").rglob("*.gz")}
    assert run(*arguments(raw, built)).returncode == 0
    assert times == {path: path.stat().st_mtime_ns for path in (built / "work").rglob("*.gz")}
    done = run(*arguments(raw, built, "-s", "tasks=3"))
    assert done.returncode == 2
    assert "tasks: 2 -> 3" in done.stderr
    recipe = raw.folder / "recipe.py"
    text = recipe.read_text()
    recipe.write_text(text.replace("tokens=100_000", "tokens=200_000"))
    try:
        assert run(*arguments(raw, built)).returncode == 0  # another number of epochs, no more
        assert "200,000 tokens" in (built / "mixture.md").read_text()
        recipe.write_text(text.replace("least_words=5", "least_words=6"))
        done = run(*arguments(raw, built))
        assert done.returncode == 2
        assert "least_words: 5 -> 6" in done.stderr
    finally:
        recipe.write_text(text)


@pytest.mark.slow
def test_kills_at_five_moments_change_nothing(raw, built, tmp_path):
    out, rng = tmp_path / "out", random.Random(5)
    command = [
        sys.executable,
        "-m",
        "cpt_jax.curate.build",
        *arguments(raw, out, "-s", "workers=2"),
    ]
    start = time.monotonic()
    for _ in range(5):
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(rng.uniform(3, 9))  # its imports take two to three seconds
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(out / "work") == contents(built / "work")
    assert time.monotonic() > start
    for name in ("cases", "others"):
        mine, theirs = (read_manifest(folder / name)[0] for folder in (out, built))
        assert mine["files"] == theirs["files"]


SBATCH = f"""#!{sys.executable}
import os, re, subprocess, sys
script = open(sys.argv[-1]).read()
folder = os.environ["JOBS"]
number = len(os.listdir(folder)) + 1
open(os.path.join(folder, str(number)), "w").write(" ".join(sys.argv[1:-1]) + "\\n" + script)
array = re.search("--array=0-([0-9]+)", script)
for i in range(int(array[1]) + 1) if array else []:
    named = {{"SLURM_ARRAY_TASK_ID": str(i), "SLURM_NODELIST": "here"}}
    subprocess.run(["bash", sys.argv[-1]], env=os.environ | named, check=True)
print("Submitted batch job", number)
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do [[ $1 == -n ]] && shift; shift; done
exec "$@"
"""


@pytest.mark.slow
def test_slurm_runs_the_same(raw, built, tmp_path, monkeypatch):
    """A stand-in for sbatch runs each job's script at once, as SLURM would in an array."""
    jobs, programs = tmp_path / "jobs", tmp_path / "bin"
    jobs.mkdir()
    programs.mkdir()
    scontrol = "#!/usr/bin/env bash\necho here\n"
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("scontrol", scontrol)):
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    path = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("JOBS", str(jobs))
    out = tmp_path / "out"
    more = ("executor=slurm", "partition=cpu", "memory_gb=3", "environment=export A=1")
    command = arguments(raw, out, *(part for value in more for part in ("-s", value)))
    broken = out / "work/logs/near-2/completions/00000"
    assert run(*command).returncode == 1
    broken.unlink()  # as of a job that failed
    again = run(*command)
    assert again.returncode == 1
    assert "submitted they are handed in again" in again.stdout
    assert len(list(jobs.iterdir())) == 14
    broken.touch()
    scripts = [(jobs / str(i + 1)).read_text() for i in range(len(list(jobs.iterdir())))]
    stages = [script for script in scripts if "launch_pickled_pipeline" in script]
    assert len(stages) == 7
    for script in stages:
        assert "#SBATCH --partition=cpu" in script
        assert "#SBATCH --mem-per-cpu=3G" in script
        assert "export A=1" in script
    assert all("--dependency=afterok:" in script for script in stages[1:])
    assert run(*command).returncode == 0
    assert contents(out / "work") == contents(built / "work")


@pytest.mark.slow
def test_ray_runs_the_same(raw, built, tmp_path):
    pytest.importorskip("ray")
    assert run(*arguments(raw, tmp_path / "out", "-s", "executor=ray")).returncode == 0
    assert contents(tmp_path / "out" / "work") == contents(built / "work")
