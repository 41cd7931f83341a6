"""Which tokens start a word, for whole-word masking: by the tokenizer's own marks, or by character without spaces."""

import json
from collections.abc import Iterator
from unicodedata import category

import numpy as np
import regex
from tokenizers import Encoding, Tokenizer

from pipeline.data.text.words import IDEOGRAPHS
from pipeline.tokenization.tokenizer import Kind, kind

UNSPACED = regex.compile(rf"[{IDEOGRAPHS}\p{{Script=Katakana}}ー\p{{Line_Break=SA}}]")
"""Characters of scripts without spaces between words: those of Chinese, Japanese, Thai and others."""
JOINING = regex.compile(r"[\p{Logical_Order_Exception}\p{InSC=Invisible_Stacker}\p{InSC=Virama}]")
"""Vowels written before their consonant, and signs that place the next letter below the previous one."""
SPACES: dict[Kind, tuple[str, ...]] = {"byte-level bpe": ("Ġ", "Ċ", "ĉ", "č"), "unigram": ("▁",)}
"""White space as entries have it: byte-level BPE's space, line feed, tab and return; Unigram's space."""


def word_start_table(tokenizer: Tokenizer) -> np.ndarray:
    """Returns [vocabulary] bool: whether the entry starts a word when it is not the first token of a text.

    WordPiece continues a word with `##`; byte-level BPE and Unigram start one with white space.
    """
    vocabulary, own = tokenizer.get_vocab(), kind(tokenizer)
    texts = sorted(vocabulary, key=vocabulary.__getitem__)
    if own == "wordpiece":
        prefix = json.loads(tokenizer.to_str())["model"]["continuing_subword_prefix"]
        return np.array([not text.startswith(prefix) for text in texts])
    return np.array([text.startswith(SPACES[own]) for text in texts])


def unspaced_tokens(text: str, encoding: Encoding) -> Iterator[int]:
    """Yields the index of each token after the first one that starts a word in a script without spaces, ascending.

    There each character with its marks is a word (pipeline/data/text/words.py), as far as tokens allow; otherwise a
    whole sentence would be masked at once. What follows such a character starts a word too. None inside a character,
    of which byte-level BPE may have several tokens.
    """
    if text.isascii() or not UNSPACED.search(text):
        return
    end = None
    for token, (begin, next_end) in enumerate(encoding.offsets):
        if end is not None and end <= begin < next_end and _starts_word(text, begin):
            yield token
        end = next_end


def _starts_word(text: str, at: int) -> bool:
    """Whether a word starts at a character next to one that is written without spaces."""
    here, before = text[at], text[at - 1 : at]
    if category(here)[0] == "M" or JOINING.match(before):
        return False
    return bool(UNSPACED.match(here) or UNSPACED.match(before))
