"""Words of a text in any language, and its length as a model reads it. Boundaries are Unicode's (UAX #29).

People count words: questions and statistics do so too. Models read tokens: a sign is one, and a long word several. So
passages are measured in pieces, of which a tokenizer makes about one token each (docs/languages.md has the figures).
"""

import re
from collections.abc import Iterator
from unicodedata import category

import regex

IDEOGRAPHS = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Bopomofo}\p{Script=Yi}\p{Script=Nushu}\p{Script=Tangut}"
"""Characters that are words, or almost words."""
LONGEST_PIECE = 8
"""Letters of a piece. Vocabularies of 8,000 entries hold most words of eight letters, in all languages measured."""

# Thai, Lao, Khmer, Myanmar and others: Unicode leaves their words to dictionaries. A letter comes with its marks, with
# the vowel written before it and with the letters stacked below it. Four have about five characters, as English words.
_CLUSTER = (
    r"(?:\p{Logical_Order_Exception}?\p{Line_Break=SA}\p{M}*"
    r"(?:(?<=[\p{InSC=Invisible_Stacker}\p{InSC=Virama}])\p{Line_Break=SA}\p{M}*)*)"
)
_UNSPACED = _CLUSTER + "{1,4}"
# The second way in is for regex's own rule of no boundary between an apostrophe and a vowel: 'it.
_SEGMENT = r"(?:\b|(?<=['\u2019]))\w[^\s\x1c-\x1f]*?\b"
WORD = regex.compile(rf"(?w){_UNSPACED}|(?:[{IDEOGRAPHS}]\p{{M}}*){{1,2}}|{_SEGMENT}")
PIECE = regex.compile(rf"(?w){_UNSPACED}|[{IDEOGRAPHS}]\p{{M}}*|{_SEGMENT}|[^\s\x1c-\x1f]\p{{M}}*")
LONG = regex.compile(rf"(?:\p{{Script=Hangul}}\p{{M}}*){{1,2}}|(?:(?!\p{{Script=Hangul}})\X){{1,{LONGEST_PIECE}}}")
"""Pieces of a longer word."""
# In most European text the module `re` finds the same in a third of the time.
PLAIN = re.compile(
    r"[\0-\xac\xae-\xb1\xb4\xb6\xb7\xba\xbb\xbf-\u024f\u0370-\u0373\u0376\u0377\u037b-\u037f\u0384-\u038a\u038c"
    r"\u038e-\u03a1\u03a3-\u0481\u048a-\u052f\u2010-\u2026\u2030-\u203e\u20ac]*\Z"
)
_PLAIN_WORD = (
    r"\w+(?:(?:(?<=[^\W\d_])[':.\xb7\u0387\u2018\u2019\u2024](?=[^\W\d_])"
    r"|(?<=\d)[,;'.\u037e\u2018\u2019\u2024](?=\d))\w+)*"
)
PLAIN_WORD = re.compile(_PLAIN_WORD)
PLAIN_PIECE = re.compile(_PLAIN_WORD + r"|\S")
UNSPACED = regex.compile(r"\p{Line_Break=SA}")


def spans(text: str) -> list[tuple[int, int]]:
    """Returns (start, end) of each word, in order. A word holds a letter or a digit.

    Two ideographs are a word, or four letters of an alphabet without spaces, such as Thai.
    """
    return [match.span() for match in (PLAIN_WORD if PLAIN.match(text) else WORD).finditer(text)]


def count(text: str) -> int:
    """Returns the number of words."""
    return len((PLAIN_WORD if PLAIN.match(text) else WORD).findall(text))


def pieces(text: str) -> list[tuple[int, int]]:
    """Returns (start, end) of each piece, in order; between two pieces there is white space or nothing.

    A piece is a word of at most `LONGEST_PIECE` letters or a part of a longer one, an ideograph, two syllables of
    Korean, or a sign.
    """
    found: list[tuple[int, int]] = []
    for match in (PLAIN_PIECE if PLAIN.match(text) else PIECE).finditer(text):
        start, end = match.span()
        if end - start > LONGEST_PIECE or (text[start] >= "\u1100" and end - start > 2):
            found += _parts(text, start, end)
        else:
            found.append((start, end))
    return found


def blank(text: str) -> bool:
    """Returns whether nothing is visible: the text has only white space, control and format characters (U+200B)."""
    return all(c.isspace() or category(c) in ("Cc", "Cf") for c in text)


def run_share(text: str) -> float:
    """Returns the share of characters, without white space, in alphabets that write no spaces between words."""
    if text.isascii():
        return 0.0
    return len(UNSPACED.findall(text)) / max(1, sum(map(len, text.split())))


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if UNSPACED.match(text, start):  # its letters have many marks
        yield start, end
    else:
        yield from (part.span() for part in LONG.finditer(text, start, end))
