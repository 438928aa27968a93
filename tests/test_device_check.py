"""The device script in its small form, what it does with checks that die, and its wheels."""

import json
import os
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from launch import collect_wheels, device_check
from tests import tiny_run

FAKE = """
import json, os, sys, time
for check in sys.argv[1:]:
    print("what a library prints")
    if check == "hangs":
        time.sleep(60)
    if check == "dies":
        os._exit(7)
    print(json.dumps({"check": check, "process": os.getpid()}), flush=True)
"""


def child(checks):
    return device_check.Child([sys.executable, "-c", FAKE, *checks], os.environ)


def test_checks_that_hang_or_die_are_noted_and_the_next_go_on():
    until = time.monotonic() + 60
    found = list(device_check.results(["a", "dies", "b", "hangs", "c", "d"], child, until, 1.0))
    assert [result["check"] for result in found] == ["a", "dies", "b", "hangs", "c", "d"]
    assert [result.get("error") for result in found] == [
        *(None, "the process died with exit code 7", None),
        *("killed after 1 s", None, None),
    ]
    processes = [result.get("process") for result in found]
    assert len(set(processes) - {None}) == 3
    assert processes[4] == processes[5]


def test_what_the_budget_does_not_reach_is_said():
    found = list(device_check.results(["hangs", "a"], child, time.monotonic() + 0.5))
    assert "killed after" in found[0]["error"]
    assert found[1] == {"check": "a", "error": "not run: the budget is spent"}


def test_results_are_in_the_file_as_they_come(tmp_path):
    file = device_check.Results(tmp_path / "new" / "check.json", small=True)
    for i in range(2):
        file.add({"check": str(i)})
        read = json.loads((tmp_path / "new" / "check.json").read_text())
        assert read == {"small": True, "results": [{"check": str(k)} for k in range(i + 1)]}


def test_the_table_sets_base_beside_the_paper():
    step = {"check": "step", "objective": "mlm", "rows": 8, "seconds": 0.5, "mfu": None}
    found = [
        {"check": "environment"},
        {**step, "model": "base", "tokens_per_second": 436_000},
        {**step, "model": "large", "tokens_per_second": 100_000, "mfu": 0.4567},
    ]
    lines = device_check.table(found).splitlines()
    assert lines[2:] == [
        "| step | 8 | 0.5000 | 436,000 | - | 2.00x |",
        "| step | 8 | 0.5000 | 100,000 | 45.7% | - |",
    ]


@pytest.mark.slow
def test_small_form_runs_here(tmp_path):
    """As a command: kernels that agree, a step whose loss falls, an alternative that is refused."""
    checks = ["environment", "attention:local:causal", "step:base:clm:attention=mosaic"]
    command = [sys.executable, "-m", "launch.device_check", "--small", "--out", "check.json"]
    command += ["--base=2", "--checks", *checks, "step:base:mlm:rows=3"]
    environment = os.environ | {"PYTHONPATH": str(device_check.REPO)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "check.json").read_text())
    about, attention, refused, step = report["results"]
    assert about["device"] == "cpu"
    assert about["attention"] == "xla"
    assert attention["agrees"]
    assert attention["padding_is_zero"]
    assert max(attention["chosen_errors"]) > 0
    assert "config.model.attention: 'mosaic' cannot be used here" in refused["error"]
    assert (step["rows"], step["model"]) == (3, "tiny")
    assert step["tokens_per_second"] == pytest.approx(3 * 256 / step["seconds"])
    assert step["losses"][1] < step["losses"][0]
    assert "| step:base:mlm:rows=3 | 3 |" in done.stdout


def wheel(folder, name, version):
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", f"version = '{version}'\n")


def test_wheels_bring_only_what_is_missing(tmp_path):
    """The image's own numpy stays; a package that imports xprof finds an empty one."""
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    wheels.mkdir()
    for name in ("numpy", "no_such_package", "tokamax_not_really"):
        wheel(wheels, name, "9.9")
    names = device_check.unpack(wheels, site)
    assert names == ["no_such_package 9.9", "tokamax_not_really 9.9"]
    assert not (site / "numpy").exists()
    assert (site / "no_such_package" / "__init__.py").is_file()
    assert (site / "xprof" / "cli" / "tools" / "get_kernel_stats_tool.py").is_file()


def test_collected_folder(tmp_path, monkeypatch):
    """Pinned wheels for the other Python, and rows as they are packed; too much is refused."""
    commands = []

    def run(command):
        commands.append(command)
        wheel(tmp_path / "out", "tokamax", "0.0.17")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    corpus = tiny_run.corpus(tmp_path, "a", documents=30, seed=0)
    out = tmp_path / "out"
    collect_wheels.main(["--out", str(out), "--corpus", str(corpus), "--rows", "4"])
    (command,) = commands
    assert "tokamax==0.0.17" in command
    assert {"--no-deps", "--only-binary=:all:", "--python-version=3.12"} <= set(command)
    with np.load(out / "rows.npz") as rows:
        assert rows["input_ids"].shape == rows["segment_ids"].shape == (4, tiny_run.SEQ_LEN)
        assert rows["segment_ids"].max() > 0
    total = sum(path.stat().st_size for path in out.iterdir())
    assert collect_wheels.check_size(out) == total
    with pytest.raises(SystemExit, match=r"allowed: .* \(the largest: "):
        collect_wheels.check_size(out, limit=total - 1)
