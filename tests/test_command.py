"""Bad input on the command line: one message, an exit status, nothing left behind."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from configs import cpt
from cpt_jax import command, config
from cpt_jax.config import phase_steps


@pytest.fixture(scope="module")
def table(repo):
    """The script that tries bad inputs and writes the table of them."""
    file = repo / "docs" / "make_troubleshooting.py"
    spec = importlib.util.spec_from_file_location("make_troubleshooting", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("a misspelt field", "config.data.seqlen: unknown field; did you mean config.data.seq_len"),
        ("a misspelt group", "config has no optimiser; did you mean optimizer?"),
        ("a misspelt flag", "Did you mean: workdir"),
        ("a phase that is not there", "config has no phases[5]; phases has 2 entries"),
        ("a word for a number", "--config.data.seq_len: 'long' is of another type"),
        ("a share outside (0, 1)", "config.phases[1].mask_rate: 15.0 is not between 0 and 1"),
        ("a config file that fails", "bad.py, line 2: ZeroDivisionError: division by zero"),
    ],
)
def test_one_message_and_nothing_left_behind(table, tmp_path, what, message):
    (tmp_path / "run.py").write_text(table.RUN)
    (case,) = (case for case in table.FIELDS if case.what == what)
    said = table.attempt(case, tmp_path)
    assert message in said


def test_the_page_has_every_input_that_is_tried(table, repo):
    page = (repo / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (.*?) \| `", page.split(table.BEGIN)[1], re.MULTILINE)
    assert rows == [case.what for cases in table.GROUPS.values() for case in cases]


@pytest.mark.parametrize("arguments", ["quick", "mlm,quick"])
def test_quick_is_quick_whatever_the_rows_and_the_batch(arguments):
    made = cpt.get_config(arguments)
    made.data.seq_len = 128
    made.phases[0].batch_size = 4
    parsed = config.parse(made)
    assert [phase_steps(phase, 128) for phase in parsed.phases] == [10, 5]
    assert parsed.phases[0].tokens == 10 * 4 * 128
    assert parsed.phases[0].learning_rate.warmup_tokens == 4 * 128


def test_a_flag_takes_the_whole_numbers_that_a_file_does():
    parser = command.WholeNumber()
    assert [parser.parse(text) for text in ("1e9", "64", "-3")] == [10**9, 64, -3]
    for text in ("1.5", "long", "inf", "1e"):
        with pytest.raises(ValueError, match="invalid literal"):
            parser.parse(text)


@pytest.mark.slow
def test_a_platform_that_is_not_there_is_refused(repo, tmp_path):
    command = [sys.executable, "-m", "cpt_jax.main", "--config=configs/demo.py"]
    command += [f"--workdir={tmp_path / 'run'}"]
    environment = {**os.environ, "JAX_PLATFORMS": "nonsense"}
    done = subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: Unable to initialize backend 'nonsense'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
