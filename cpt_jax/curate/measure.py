"""How long texts are."""

from cpt_jax.data.prepare import TEMPLATE
from cpt_jax.data.tokenizer import find_tokenizer, read_tokenizer, template_ids


class Measure:
    """The length of a text: tokens, as `data.prepare` counts them, or words.

    Args:
      tokenizer: directory, tokenizer.json or Hub id; None: words are counted.

    Attributes:
      unit: "tokens" or "words".

    Raises: what `find_tokenizer` and `template_ids` raise.
    """

    def __init__(self, tokenizer: str | None):
        self.unit, self._tokenizer = "words", None
        if tokenizer is not None:
            self.unit = "tokens"
            self._tokenizer, info = read_tokenizer(find_tokenizer(tokenizer))
            added = template_ids(TEMPLATE, self._tokenizer, info["special_ids"])
            self._added = sum(map(len, added))

    def __call__(self, text: str) -> int:
        """How many there are in a text."""
        if self._tokenizer is None:
            return len(text.split())
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids) + self._added
