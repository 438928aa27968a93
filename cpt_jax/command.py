"""The command line that training and its checks share: ``--config``, its fields, one message.

``--config=FILE.py:ARGUMENTS`` names a Python file whose ``get_config`` returns a run, and hands it
what follows the colon; ``--config.FIELD=VALUE`` overrides a field. Whatever is wrong with either
ends in one message and exit status 2, before anything is computed or written.
"""

import contextlib
import difflib
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags import config_path

from cpt_jax import config as config_lib
from cpt_jax import peers

BAD_INPUT = 2  # exit status
MODULE = "'config_config'"  # what the library calls the config file


class WholeNumber(flags.IntegerParser):
    """Reads a whole number, 1e9 too: what a config file may say, a flag may."""

    def convert(self, argument: str | int) -> int:
        """Returns the number; raises ValueError for what is none."""
        try:
            return super().convert(argument)
        except ValueError as error:
            with contextlib.suppress(ValueError):
                if float(argument).is_integer():
                    return int(float(argument))
            raise error


config_flags.register_flag_parser_for_type(int, WholeNumber())

# Fields that the file does not set are taken too: `config.parse` knows which there are, and names
# the nearest of them, and model.overrides holds any field of the model.
_CONFIG = config_flags.DEFINE_config_file(
    "config",
    help_string="The run: a file of configs/.",
    accept_new_attributes=True,
    lock_config=False,
)


WORKDIR = flags.DEFINE_string("workdir", None, "Directory of the run; resumed if it holds it.")


def run(body: Callable[[config_lib.Config], int | None], *required: str) -> NoReturn:
    """Reads the command line and runs ``body(config)``, whose result is the exit status.

    ``required`` names flags that must be given besides ``--config``.
    """

    def main(arguments: list[str]) -> int | None:
        # Orbax tells of every file at INFO, and of a failed save by its traceback at ERROR.
        logging.set_verbosity(logging.FATAL)
        if len(arguments) > 1:
            refuse(f"unexpected arguments: {' '.join(arguments[1:])}")
        with refusing(ValueError):
            config = config_lib.parse(_CONFIG.value)
        return body(config)

    flags.mark_flags_as_required(["config", *required])
    app.run(main, flags_parser=_parse)


def refuse(message: object) -> NoReturn:
    """Ends the program, in all its processes, with a message about its input."""
    peers.end(BAD_INPUT, f"error: {message}")


@contextlib.contextmanager
def refusing(*kinds: type[Exception]) -> Iterator[None]:
    """Within it, an exception of these kinds is one about the input: its message and no more."""
    try:
        yield
    except kinds as error:
        refuse(error)


def _parse(arguments: list[str]) -> list[str]:
    """Parses the flags, and loads the config file, which runs whatever is in it."""
    file = _config_file(arguments)
    if file is not None and not file.is_file():
        refuse(f"--config={file}: no such file")
    try:
        rest = flags.FLAGS(arguments)
        flags.FLAGS.validate_all_flags()
        return rest
    except Exception as error:
        refuse(_explain(error, file, arguments))


def _config_file(arguments: list[str]) -> Path | None:
    """Returns the file that ``--config=FILE:...`` or ``--config FILE:...`` names."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if found := re.fullmatch(r"--?config(?:=(.*))?", argument, re.DOTALL):
            value = following if found[1] is None else found[1]
            return Path(value.split(":", 1)[0])
    return None


def _explain(error: Exception, file: Path | None, arguments: list[str]) -> str:
    """Returns what a person needs of an exception from the flags or from the config file."""
    cause: BaseException = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__ or cause
    frames = traceback.extract_tb(cause.__traceback__)
    inside = [i for i, frame in enumerate(frames) if file and Path(frame.filename) == file]
    if isinstance(cause, SyntaxError) and file and cause.filename == str(file):
        return f"{file}, line {cause.lineno}: {cause.msg}"
    if inside:
        if isinstance(cause, ValueError) and inside[-1] != len(frames) - 1:
            return f"{file}: {cause}"  # said by a function that the file called
        last = frames[-1]
        return f"{last.filename}, line {last.lineno}: {type(cause).__name__}: {cause}"
    if "get_config" in str(cause):  # there is none, or it takes no arguments, or needs some
        return f"{file}: {str(cause).replace('module ', 'the file ').replace(MODULE, str(file))}"
    return _explain_path(arguments, file) or _explain_flag(error, file)


def _explain_path(arguments: list[str], file: Path | None) -> str | None:
    """Returns what is wrong with the first ``--config.FIELD`` whose FIELD cannot be reached."""
    value = next((f[1] for a in arguments if (f := re.match(r"--?config=(.*)", a))), None)
    if file is None or value is None:
        return None
    config = flags.FLAGS["config"].parser.parse(value)
    for argument in arguments:
        found = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        *parents, _ = found[1].split(".") if found else [""]
        reached, at = "config", config
        for name in parents:
            try:
                at = config_path.get_value(name, at)
            except (LookupError, AttributeError, SyntaxError, TypeError, ValueError):
                return f"{argument.split('=')[0]}: {reached} has no {name}; {_nearest(name, at)}"
            reached = f"{reached}.{name}"
    return None


def _nearest(name: str, group: Any) -> str:
    """Returns what was meant by a name that a part of the config does not have."""
    if isinstance(group, Mapping | ConfigDict):
        field = name.split("[")[0]
        if field in group:
            entries: Any = group[field]
            return f"{field} has {len(entries)} entries, from {field}[0] on"
        return f"did you mean {difflib.get_close_matches(field, list(group), n=1, cutoff=0)[0]}?"
    return "an entry of a list is written NAME[0], NAME[1], ..."


def _explain_flag(error: Exception, file: Path | None) -> str:
    """Returns the message of a faulty flag, in the words of this command line."""
    text = str(error)
    if required := re.search(r"Flag --(\w+) must have a value other than None", text):
        if required[1] == "config" and file:
            return f"{file}: its get_config() returned nothing"
        return f"--{required[1]} is missing"
    if "in argv before a value" in text:
        return "--config=FILE comes before the --config.FIELD=VALUE that override its fields"
    if found := re.search(r"flag --(\S+?)=(.*?): (.*)", text, re.DOTALL):
        reason = re.sub(r"^\('(.*)', .*\)$", r"\1", found[3])  # some are tuples in words
        return f"--{found[1]}: {found[2]!r} is of another type than the field ({reason})"
    return text
