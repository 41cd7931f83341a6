"""Numbers of sections before headings: `43.6.4. Simple CASE` is the section `Simple CASE`."""

import re
from collections.abc import Sequence

COMPONENT = r"(?:0|[1-9]\d{0,2})"  # no leading zero: 12.05. is a date
NUMBER = re.compile(rf"\s*(?:§\s*)?((?:[A-Z]|{COMPONENT})(?:\.{COMPONENT})*)([.)]?)\s+(?![-–—(:,;.\d])")
"""After it comes a heading's text: `1.2.3 - 2024` and `1.2.3 (May)` are versions."""
# Words before the number of a chapter, in some languages of books.
LABEL = re.compile(
    r"\s*(?:(?:chapter|appendix|part|section|kapitel|anhang|teil|abschnitt|chapitre|annexe|partie|capítulo|apéndice"
    r"|apêndice|sección|seção|parte|capitolo|appendice|sezione|hoofdstuk|bijlage|глава|часть|раздел|приложение"
    r"|rozdział|付録)\s*(?:\d{1,3}(?:\.\d{1,3})*|[A-Z]|[IVXLC]+)[.:]|第\s*\d{1,3}\s*[章部節节编編][.:]?)\s+",
    re.IGNORECASE,
)


def without_numbers(headings: Sequence[str]) -> list[str]:
    """Returns a document's headings, in order, without the numbers of sections and chapters.

    A number with a final dot and several levels (`43.6.`) is a section's. Another one (`2.`, `2.1`) may be a word of
    the heading (`2. Weltkrieg`), so another heading must continue it: its parent, its subsection or its neighbour, with
    another text. In a document where numbers descend, they are versions.
    """
    found = [NUMBER.match(text) for text in headings]
    numbers = [tuple(match[1].split(".")) if match else () for match in found]
    texts = [
        text[match.end() :] if match and any(c.isalpha() for c in text[match.end() :]) else ""
        for text, match in zip(headings, found, strict=True)
    ]
    known = {number: text for number, text in zip(numbers, texts, strict=True) if number and text}
    ordered = list(map(_order, known)) == sorted(map(_order, known))
    parents = {number[:-1] for number in known}
    kept = []
    for heading, match, number, text in zip(headings, found, numbers, texts, strict=True):
        if label := LABEL.match(heading):
            text = heading[label.end() :]
        elif not match or not text or (len(number) == 1 and not match[2]) or number[0].isalpha() > len(number) - 1:
            text = ""
        elif not (len(number) > 1 and match[2] == "."):
            neighbours = {known[near] for near in _neighbours(number) if near in known}
            continued = number in parents or number[:-1] in known or bool(neighbours - {text})
            text = text if ordered and continued and text not in neighbours else ""
        kept.append(text or heading)
    return kept


def _order(number: tuple[str, ...]) -> list[tuple[bool, int, str]]:
    return [(part.isalpha(), int(part) if part.isdigit() else 0, part) for part in number]


def _neighbours(number: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns the numbers before and after it, on its level."""
    if not number[-1].isdigit():
        return []
    return [(*number[:-1], str(int(number[-1]) + step)) for step in (-1, 1)]
