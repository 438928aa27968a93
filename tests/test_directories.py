"""Directories that are there whole or not at all, whatever goes wrong in between."""

import fcntl
import os
from pathlib import Path

import pytest

from cpt_jax.directories import whole_directory


def fill(target: Path, fault: BaseException | None = None):
    with whole_directory(target) as partial:
        (partial / "file").write_text("whole")
        assert not (target / "file").exists()
        if fault:
            raise fault


def test_it_is_there_once_it_is_whole(tmp_path):
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "deep" / "new", tmp_path / "empty"):
        fill(target)
        assert (target / "file").read_text() == "whole"
        assert os.listdir(target.parent).count(target.name) == 1
        with pytest.raises(FileExistsError, match=f"{target}: exists and is not empty"):
            fill(target)
    assert sorted(os.listdir(tmp_path)) == ["deep", "empty"]


@pytest.mark.parametrize("fault", [OSError("full"), ValueError("odd"), KeyboardInterrupt()])
def test_a_fault_leaves_nothing(tmp_path, fault):
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "deep" / "new"
    with pytest.raises(type(fault)) as caught:
        fill(target, fault)
    if isinstance(fault, OSError):
        message = f"{target}: not written, and nothing left behind: full"
        assert str(caught.value) == message
    else:
        assert caught.value is fault
    assert os.listdir(tmp_path) == ["there"]
    assert not os.listdir(tmp_path / "there")


def test_what_a_killed_process_left_is_removed_and_what_one_writes_is_not(tmp_path):
    left, written, other = (
        tmp_path / name for name in (".out.1.partial", ".out.2.partial", ".out2.3.partial")
    )
    for directory in (left, written, other):
        directory.mkdir()
        (directory / "file").write_text("half")
    descriptor = os.open(written, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        fill(tmp_path / "out")
    finally:
        os.close(descriptor)
    assert sorted(tmp_path.iterdir()) == sorted([written, other, tmp_path / "out"])
    assert (written / "file").exists()


def test_one_that_is_being_written_is_locked(tmp_path):
    with whole_directory(tmp_path / "out") as partial:
        descriptor = os.open(partial, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
