"""Files of repositories on the Hugging Face Hub."""

import re
from collections.abc import Sequence
from pathlib import Path

import huggingface_hub

from cpt_jax.addresses import without_keys

_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?")


def fetch(name: str, patterns: Sequence[str]) -> Path:
    """The directory of the repository `owner/name` or `owner/name@revision`, as fetched.

    Only files that match `patterns` are; HF_ENDPOINT and HF_HUB_OFFLINE are honoured.

    Raises:
      FileNotFoundError: `name`, which is nothing here, is no such id, or cannot be fetched.
    """
    match = _ID.fullmatch(name)
    if not match:
        raise FileNotFoundError(
            f"{without_keys(name)}: no such file or directory, and not a Hub id such as"
            " answerdotai/ModernBERT-base"
        )
    try:
        return Path(
            huggingface_hub.snapshot_download(
                match["repo"], revision=match["revision"], allow_patterns=list(patterns)
            )
        )
    except Exception as error:  # the library's own, and whatever its HTTP client raises
        raise FileNotFoundError(
            f"{name}: no such file or directory here, and not fetched from"
            f" {huggingface_hub.constants.ENDPOINT} either: {without_keys(str(error))}"
        ) from error
