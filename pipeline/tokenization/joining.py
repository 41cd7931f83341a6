"""Whether a text has the same ids alone and after another text, and its ids after a space if not."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from tokenizers import Tokenizer

from pipeline.tokenization.tokenizer import kind
from pipeline.tokenization.word_starts import word_start_table

PROBES = ("a", "A1", "1", "(a", ".", "é")
"""Beginnings of texts: letters, digits and signs, which tokenizers split from a prefix in different ways."""
FIRST_WORDS = 1 << 16
"""First words whose ids after a space are remembered."""


def joins_words(tokenizer: Tokenizer) -> bool:
    """Whether the ids of two texts in a row are those of the texts with a space between them.

    Byte-level BPE, and some tokenizers of SentencePiece, treat the first word of a text differently.
    """
    if kind(tokenizer) == "byte-level bpe":
        return False
    return _ids(tokenizer, "a") + _ids(tokenizer, "a") == _ids(tokenizer, "a a")


def joins_prefix(tokenizer: Tokenizer, prefix: str) -> bool:
    """Whether the ids of `prefix`, without white space at its end, and of a text after a space are those of one string,
    the prefix and the text."""
    before, after = _ids(tokenizer, prefix.rstrip()), after_space(tokenizer) or np.array
    return all([*before, *after(np.array(_ids(tokenizer, text)))] == _ids(tokenizer, prefix + text) for text in PROBES)


def after_space(tokenizer: Tokenizer) -> Callable[[np.ndarray], np.ndarray] | None:
    """Returns a function that gives the ids of a text after another text and a space; None: they are the same."""
    return None if joins_words(tokenizer) else AfterSpace(tokenizer)


class AfterSpace:
    """Gives a text's ids as they are after another text and a space, for a tokenizer that does not join words.

    Only the first word changes, up to the next white space.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.starts_V = word_start_table(tokenizer)
        self._word = lru_cache(FIRST_WORDS)(self._first_word)

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Returns the ids of a text of `ids`; none stay none."""
        if not len(ids):
            return ids
        further = np.flatnonzero(self.starts_V[ids[1:]])
        end = int(further[0]) + 1 if len(further) else len(ids)
        return np.concatenate((self._word(tuple(ids[:end].tolist())), ids[end:]))

    def _first_word(self, ids: tuple[int, ...]) -> list[int]:
        before, word = "a", self.tokenizer.decode([*ids], skip_special_tokens=False)
        alone, after = _ids(self.tokenizer, before), _ids(self.tokenizer, f"{before} {word}")
        if _ids(self.tokenizer, word) == [*ids] and after[: len(alone)] == alone:
            return after[len(alone) :]
        return [*_ids(self.tokenizer, " "), *ids]  # a word that was cut within a character, for example


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
