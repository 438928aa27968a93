"""The tokenizer as `prepare` uses it: a tokenizer.json, its special tokens, the template."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cpt_jax.repositories import fetch

FILES = ("tokenizer.json", "tokenizer_config.json")
ROLES = ("cls", "sep", "mask", "pad")


def find_tokenizer(name: str | Path) -> Path:
    """The tokenizer.json that `name` is or holds, or that of a Hub repository of that id.

    `name` is a path, or `owner/name` or `owner/name@revision` where no such path is. Of a
    repository FILES alone are fetched; HF_ENDPOINT and HF_HUB_OFFLINE are honoured.

    Raises:
      FileNotFoundError: saying what was looked for.
    """
    path = Path(name)
    file = path / FILES[0] if path.is_dir() else path
    if file.is_file():
        return file
    if path.exists():
        raise FileNotFoundError(f"{file}: no tokenizer; allowed: a {FILES[0]} or its directory")
    file = fetch(str(name), FILES) / FILES[0]
    if not file.is_file():
        raise FileNotFoundError(f"{name}: the repository on the Hub has no {FILES[0]}")
    return file


def open_tokenizer(file: Path) -> Tokenizer:
    """A tokenizer.json that neither cuts nor pads, whatever it says of that itself.

    Raises:
      ValueError: a damaged file, or a tokenizer without a word.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{file}: not readable as a tokenizer: {error}") from error
    if not tokenizer.get_vocab_size():
        raise ValueError(f"{file}: not readable as a tokenizer: its vocabulary is empty")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def other_words(a: Path, b: Path) -> list[str]:
    """The entries, sorted, that have different ids in two tokenizer.json, or are in one alone.

    Raises:
      ValueError: a damaged file.
    """
    ours, theirs = (open_tokenizer(file).get_vocab() for file in (a, b))
    return sorted(w for w in ours.keys() | theirs.keys() if ours.get(w) != theirs.get(w))


def read_tokenizer(file: Path, roles: Sequence[str] = ROLES) -> tuple[Tokenizer, dict[str, Any]]:
    """A tokenizer.json, and what the manifest says of it.

    Raises:
      ValueError: a damaged file, or a tokenizer that lacks a special token of one of `roles`.
    """
    tokenizer = open_tokenizer(file)
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text, not the end of a document
    config_file = file.with_name(FILES[1])
    try:
        config = json.loads(config_file.read_text("utf-8")) if config_file.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{config_file}: not readable as JSON: {error}") from error
    info = {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,
        "special_ids": sorted(
            i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special
        ),
    }
    for role in ROLES:
        token = config.get(f"{role}_token", f"[{role.upper()}]")
        token = token["content"] if isinstance(token, dict) else token
        info[f"{role}_id"] = None if token is None else tokenizer.token_to_id(token)
    check_roles(info, file, roles)
    return tokenizer, info


def check_roles(info: Mapping[str, Any], place: Path, roles: Sequence[str] = ROLES) -> None:
    """Raises ValueError if a tokenizer lacks a special token that training or padding needs."""
    lacking = [role for role in roles if info[f"{role}_id"] is None]
    if lacking:
        names = ", ".join(f"[{role.upper()}]" for role in lacking)
        settings = ", ".join(f'"{role}_token"' for role in lacking)
        raise ValueError(
            f"{place}: the tokenizer has no {names}; add the token, or name the one that has this"
            f" part by {settings} in {FILES[1]}"
        )


def template_ids(
    template: str, tokenizer: Tokenizer, special_ids: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Ids before and after the text: '[CLS] text [SEP]' -> ([cls], [sep])."""
    words = template.split()
    if words.count("text") != 1:
        raise ValueError(f"{template=}; allowed: special tokens and the word text once")
    before, after = [], []
    for word in words:
        token = tokenizer.token_to_id(word)
        if word == "text":
            before, after = after, before
        elif token is None or token not in special_ids:
            known = [tokenizer.id_to_token(i) for i in special_ids]
            raise ValueError(
                f"{template=}: {word} is no special token of the tokenizer; it has"
                f" {', '.join(map(str, known[:20]))}"
            )
        else:
            after.append(token)
    return before, after


def token_dtype(vocab_size: int) -> str:
    """The numpy type of a token id on disk."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"
