"""Builds a document's title, headings and sections from its sequence of headings and paragraphs."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from unicodedata import category

from pipeline.data.readers.numbering import without_numbers

Block = tuple[int, str]
"""A heading's level, 1 to 6, and its text; or 0 and a piece of text with its line ends."""

BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*\n")
APOSTROPHES = "'’"
NUMBERING = re.compile(r"\W*(?:(?:\d{1,3}\.)+(?:\d{1,3})?\)?|\d{1,3}\))\s+")
"""A section's number before its heading: 3. or 1.2 or (3). Other numbers, such as 2000 or 12, are words."""


class Section(NamedTuple):
    """`path`: the headings above it, outermost first, as indices of `Document.headings`."""

    path: tuple[int, ...]
    text: str


class Document(NamedTuple):
    """Sections in order. A heading without text and without subsections has a section with empty text."""

    document_id: str
    title: str
    headings: list[str]
    sections: list[Section]
    metadata: Mapping[str, Any] = {}
    """Further fields, by name."""


def plain(document_id: str, title: str, text: str) -> Document:
    """Returns a document without headings."""
    return Document(document_id, title, [], [Section((), text)])


def document(document_id: str, title: str, name: str, blocks: Sequence[Block]) -> Document:
    """Returns the document with the `blocks` under their headings.

    `title` empty: the first heading if its level is 1 or above all others, else `name`. The first heading is left out
    of the paths if the title contains its words. Numbers of sections are left out (`without_numbers`).
    """
    title, *texts = without_numbers([title, *(text for level, text in blocks if level)])
    numberless = iter(texts)
    blocks = [(level, next(numberless) if level else text) for level, text in blocks]
    levels = [level for level, _ in blocks if level]
    first_place = next((i for i, (level, _) in enumerate(blocks) if level), -1)
    first = blocks[first_place][1] if levels else ""
    above = bool(levels) and (levels[0] == 1 or levels[0] < min(levels[1:], default=7))
    title = title or (first if above else "") or name

    headings: list[str] = []
    sections: list[Section] = []
    path: list[tuple[int, int]] = []  # (level, index) of the open headings
    pieces: list[str] = []
    opened = 0  # level of the last heading; 0: none yet, or the title itself

    def close(next_level: int) -> None:
        text = BLANK_LINES.sub("\n\n", "".join(pieces)).strip()
        if text or 0 < next_level <= opened:
            sections.append(Section(tuple(place for _, place in path), text))
        pieces.clear()

    for i, (level, text) in enumerate(blocks):
        if not level:
            pieces.append(text)
            continue
        close(level)
        while path and path[-1][0] >= level:
            path.pop()
        if (
            i == first_place
            and comparable_words(text)
            and f" {comparable_words(text)} " in f" {comparable_words(title)} "
        ):
            opened = 0
        else:
            path.append((level, len(headings)))
            headings.append(text)
            opened = level
    close(opened)
    return Document(document_id, title, headings, sections or [Section((), "")])


def comparable_words(text: str) -> str:
    """Returns the words and numbers in lower case, without a leading section number, to compare texts."""
    return lower_words(text[number.end() :] if (number := NUMBERING.match(text)) else text, str.isalnum)


def lower_words(text: str, of: Callable[[str], bool] = str.isalpha) -> str:
    """Returns the words of letters in lower case: texts that differ only in numbers or signs become equal.

    Marks (vowel signs, combining accents) belong to the letter before them, but not those of an emoji. `of`: whether a
    character is part of a word.
    """
    characters = [" "]
    for c in text.lower():
        joins = characters[-1] != " " and (c in APOSTROPHES or category(c)[0] == "M")
        characters.append(c if of(c) or joins else " ")
    return " ".join(word.rstrip(APOSTROPHES) for word in "".join(characters).split())
