"""Sentences of a text in any language, by the library sentencex."""

import re
from collections.abc import Iterator

import regex
import sentencex

LANGUAGE = "en"
"""Whose abbreviations sentencex knows: texts do not name their language. It ends sentences at the signs of all scripts
(.!?。！？।؟ and others) whatever the language is."""
ALWAYS = r"。｡！？\u17d4\u17d5\u0f0d\u0f0e"
"""Signs that always end a sentence: those of Chinese and Japanese, after which sentencex expects no small letter, and
those of Khmer and Tibetan, which it does not know."""
CLOSING = r"[\p{Close_Punctuation}\p{Initial_Punctuation}\p{Final_Punctuation}\"']*"
BREAK = regex.compile(rf"\n[^\S\n]*\n|[{ALWAYS}]+{CLOSING}\K")
END = regex.compile(rf"[\p{{Sentence_Terminal}}{ALWAYS}]{CLOSING}")
# sentencex ends a sentence within a number in full width, such as ３．５.
IN_NUMBER = re.compile(r"\d\uff0e\Z")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each sentence, without white space around it. An empty line ends a sentence."""
    start = 0
    for end, after in [*(found.span() for found in BREAK.finditer(text)), (len(text), len(text))]:
        first = start
        for part in sentencex.segment(LANGUAGE, text[start:end]):
            start += len(part)
            if start < end and IN_NUMBER.search(part):
                continue
            if not text[first:start].isspace():
                yield _stripped(text, first, start)
            first = start
        start = after


def ends_sentence(text: str) -> bool:
    """Returns whether the text ends with the sign that ends a sentence. Quotes and brackets may follow it."""
    return any(end.end() == len(text) for end in END.finditer(text))


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    return end - len(inside.lstrip()), start + len(inside.rstrip())
