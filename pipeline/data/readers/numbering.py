"""Numbers of sections before headings: `43.6.4. Simple CASE` is the section `Simple CASE`."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

COMPONENT = r"(?:0|[1-9]\d{0,2})"  # no leading zero: 12.05. is a date
NUMBER = re.compile(rf"\s*(?:§\s*)?((?:[A-Z]|{COMPONENT})(?:\.{COMPONENT})*)([.)]?)\s+(?=\S)")
AFTER_VERSION = re.compile(r"[-–—(:,;.\d]")
"""Begins the text after a number that is a version or an amount: `1.2.3 - 2024`, `1.2.3 (May)`."""
# Words before the number of a chapter, in some languages of books.
LABEL = re.compile(
    r"\s*(?:(?i:chapter|appendix|part|section|kapitel|anhang|teil|abschnitt|chapitre|annexe|partie|capítulo|apéndice"
    r"|apêndice|sección|seção|parte|capitolo|appendice|sezione|hoofdstuk|bijlage|глава|часть|раздел|приложение"
    r"|rozdział|付録)\s*(?:\d{1,3}(?:\.\d{1,3})*|[A-Z]|[IVXLC]+)[.:]|第\s*\d{1,3}\s*[章部節节编編][.:]?)\s+"
)


class Numbered(NamedTuple):
    """A heading that begins with a number."""

    levels: tuple[str, ...]
    """The number's parts: 43, 6."""
    mark: str
    """After the number: a dot, a parenthesis or nothing."""
    text: str


def without_numbers(headings: Sequence[str]) -> list[str]:
    """Returns a document's headings, in order, without the numbers of sections and chapters.

    A number with a final dot and several levels (`43.6.`) is a section's. Another one (`2.`, `2.1`) may be a word of
    the heading (`2. Weltkrieg`), so another heading must continue it: its parent, its subsection or its neighbour, with
    another text. In a document where numbers descend, they are versions.
    """
    found = [_numbered(heading) for heading in headings]
    texts = {number.levels: number.text for number in found if number}
    orders = list(map(_order, texts))
    ascending = orders == sorted(orders)
    kept = []
    for heading, number in zip(headings, found, strict=True):
        if label := LABEL.match(heading):
            kept.append(heading[label.end() :] or heading)
        elif number and (_is_sure(number) or (ascending and _is_continued(number, texts))):
            kept.append(number.text)
        else:
            kept.append(heading)
    return kept


def _numbered(heading: str) -> Numbered | None:
    match = NUMBER.match(heading)
    text = heading[match.end() :] if match else ""
    if not match or not any(c.isalpha() for c in text):
        return None
    levels = tuple(match[1].split("."))
    is_word = len(levels) == 1 and (levels[0].isalpha() or not match[2])  # A guide; 3 ways
    return None if is_word else Numbered(levels, match[2], text)


def _is_sure(number: Numbered) -> bool:
    return len(number.levels) > 1 and number.mark == "."


def _is_continued(number: Numbered, texts: Mapping[tuple[str, ...], str]) -> bool:
    """Returns whether another heading continues the number. `texts`: {levels: text} of the document."""
    if AFTER_VERSION.match(number.text):
        return False
    near = {texts[levels] for levels in _neighbours(number.levels) if levels in texts}
    is_parent = any(levels[:-1] == number.levels for levels in texts)
    return number.text not in near and (bool(near) or is_parent or number.levels[:-1] in texts)


def _order(levels: tuple[str, ...]) -> list[tuple[bool, int, str]]:
    return [(part.isalpha(), int(part) if part.isdigit() else 0, part) for part in levels]


def _neighbours(levels: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns the numbers before and after it, on its level."""
    if not levels[-1].isdigit():
        return []
    return [(*levels[:-1], str(int(levels[-1]) + step)) for step in (-1, 1)]
