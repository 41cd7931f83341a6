"""The part of a passage that is shown: the lines with most of the question's words."""

from bisect import bisect_right
from functools import reduce
from itertools import accumulate
from operator import or_
from textwrap import dedent

from pipeline.bm25.matches import Matcher

LINES = 8
"""Lines of an excerpt: five answers then fit one or two screens."""
CHARACTERS = 1500
"""Characters of an excerpt: some passages have a whole page in one line."""


def excerpt(text: str, matcher: Matcher, most: int = LINES) -> str:
    """A few lines of a passage. If they are long: the part around the first word of the question."""
    shown = some_lines(text, matcher, most)
    if len(shown) <= CHARACTERS:
        return shown
    first = next((match.start for match in matcher.matches(shown)), 0)
    start = max(0, min(first - CHARACTERS // 4, len(shown) - CHARACTERS))
    part = shown[start : start + CHARACTERS]
    return ("…" if start else "") + part + ("…" if start + CHARACTERS < len(shown) else "")


def some_lines(text: str, matcher: Matcher, most: int) -> str:
    """The first `most` consecutive lines with most of the words. An ellipsis marks lines that are left out."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    starts = [*accumulate((len(line) + 1 for line in lines), initial=0)]
    words_of_line = [0] * len(lines)  # one bit per word
    for at, _, term in matcher.matches(text):
        words_of_line[bisect_right(starts, at) - 1] |= 1 << term
    counts = [reduce(or_, words_of_line[n : n + most]).bit_count() for n in range(len(lines) - most + 1)]
    first = counts.index(max(counts))
    part = dedent("\n".join(lines[first : first + most])).strip("\n")
    return ("…\n" if first else "") + part + ("\n…" if first + most < len(lines) else "")
