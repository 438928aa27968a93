"""The demo's steps: what was done is not done again, and what was broken off begins again."""

import pytest

from launch.demo import Steps


def test_a_demo_goes_on_where_it_was_broken_off(tmp_path, capfd):
    root, given = tmp_path / "demo", tmp_path / "given.json"
    given.write_text("[1]")
    first = ("json.tool", given, root.with_name("copy.json"))
    broken = ("json.tool", tmp_path / "missing.json", tmp_path / "out.json")
    steps = Steps(root)
    steps.run("one", *first)
    with pytest.raises(SystemExit, match=r"json\.tool. ended with exit code \d"):
        steps.run("two", *broken)
    capfd.readouterr()

    part = root / "part"
    part.mkdir()
    (tmp_path / "missing.json").write_text("[2]")
    again = Steps(root)
    again.run("one", *first)
    assert "done before" in capfd.readouterr().out
    again.run("two", *broken, writes=[part])
    assert not part.exists()
    assert (tmp_path / "out.json").exists()


def test_a_directory_that_is_no_demo_is_left_alone(tmp_path):
    with pytest.raises(SystemExit, match="exists and is no demo"):
        Steps(tmp_path)
