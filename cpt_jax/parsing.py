"""Strict parsing of nested dataclasses, and the differences between two parsed forms.

Nothing here knows which dataclasses: ``config`` declares them.
"""

import ast
import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Returns one line per leaf on which two ``to_dict`` forms differ, with both values."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        where = f"{path}.{key}" if path else str(key)
        a, b = old.get(key, "absent"), new.get(key, "absent")
        if isinstance(a, list) and isinstance(b, list):
            a, b = ({str(i): item for i, item in enumerate(items)} for items in (a, b))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, where)
        elif a != b:
            lines.append(f"{where}: {a!r} -> {b!r}")
    return lines


def parse_as(kind: Any, value: Any, path: str, faults: list[str]) -> Any:
    """Parses ``value`` as the annotated type ``kind``; faults are collected, not raised."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _group(kind, value, path, faults)
    if origin is Literal:
        if value not in arguments:
            faults.append(f"{path}: {value!r} is not one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, value, path, faults)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            faults.append(f"{path}: {value!r} is not a list")
            return value
        items = enumerate(value)
        return tuple(parse_as(arguments[0], item, f"{path}[{i}]", faults) for i, item in items)
    if origin is Mapping:
        if not hasattr(value, "items"):
            faults.append(f"{path}: {value!r} is not a mapping")
            return value
        for key in value:
            parse_as(arguments[0], key, f"{path}: its key", faults)
        return {k: parse_as(arguments[1], v, f"{path}.{k}", faults) for k, v in value.items()}
    if kind is Any:
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is float and whole and abs(value) < 1e300:  # beyond, there may be no such float
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e9 tokens
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        faults.append(f"{path}: {value!r} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def parse_change(text: str) -> tuple[str, Any]:
    """A field and its value from FIELD=VALUE, as in --config.FIELD=VALUE: a text if no Python.

    Raises:
      ValueError: there is no "=".
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--set {text}: not FIELD=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _union(kinds: Sequence[Any], value: Any, path: str, faults: list[str]) -> Any:
    """Parses with the first alternative that takes the value; else reports what each lacks."""
    if value is None and type(None) in kinds:
        return None
    lacking: list[str] = []
    for kind in (k for k in kinds if k is not type(None)):
        attempt: list[str] = []
        parsed = parse_as(kind, value, path, attempt)
        if not attempt:
            return parsed
        lacking += attempt
    faults += lacking
    return value


def _group(kind: Any, value: Any, path: str, faults: list[str]) -> Any:
    if isinstance(value, kind):
        return value
    if not hasattr(value, "items"):
        faults.append(f"{path}: {value!r} is not a group of fields ({kind.__name__})")
        return value
    fields = {f.name: f for f in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    parsed = {}
    for name, item in value.items():
        if name not in fields:
            nearest = difflib.get_close_matches(str(name), fields, n=1, cutoff=0)
            faults.append(f"{path}.{name}: unknown field; did you mean {path}.{nearest[0]}?")
        else:
            parsed[name] = parse_as(hints[name], item, f"{path}.{name}", faults)
    for name, field in fields.items():
        required = (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
        if required and name not in value:
            faults.append(f"{path}.{name}: missing")
    return None if faults else kind(**parsed)
