"""The tokenizer as `prepare` uses it: a tokenizer.json, its special tokens, the template."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json that `path` is or holds. Raises FileNotFoundError."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no tokenizer; allowed: a tokenizer.json or its directory")
    return file


def read_tokenizer(path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """A tokenizer.json, or the directory that holds one, and what the manifest says of it."""
    file = tokenizer_file(path)
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text, not the end of a document
    config_file = file.with_name("tokenizer_config.json")
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    info = {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,
        "special_ids": sorted(
            i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special
        ),
    }
    for role in ("cls", "sep", "mask", "pad"):
        token = config.get(f"{role}_token", f"[{role.upper()}]")
        token = token["content"] if isinstance(token, dict) else token
        info[f"{role}_id"] = None if token is None else tokenizer.token_to_id(token)
    return tokenizer, info


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
            raise ValueError(f"{template=}: {word} is no special token of the tokenizer")
        else:
            after.append(token)
    return before, after


def token_dtype(vocab_size: int) -> str:
    """The numpy type of a token id on disk."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"
