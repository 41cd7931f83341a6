"""The part of a passage that is shown: the lines with most of the question's words."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from itertools import accumulate
from operator import or_
from textwrap import dedent

from pipeline.bm25.matches import Match, Matcher

LINES = 8
"""Lines of an excerpt: five answers then fit one or two screens."""
CHARACTERS = 1500
"""Characters of an excerpt: some passages have a whole page in one line."""


def excerpt(text: str, matcher: Matcher, most: int = LINES, characters: int = CHARACTERS) -> str:
    """A few lines of a passage. If they are longer than `characters`: the part with most of the question's words."""
    shown = some_lines(text, matcher, most)
    if len(shown) <= characters:
        return shown
    start = max(0, min(best_word(matcher.matches(shown), characters) - characters // 4, len(shown) - characters))
    part = shown[start : start + characters]
    return ("…" if start else "") + part + ("…" if start + characters < len(shown) else "")


def best_word(matches: Iterable[Match], characters: int) -> int:
    """Where the word begins around which a part of this length, a quarter of it before the word, has most of the
    question's words; of several the first. 0: no word matches."""
    found = [*matches]
    inside: Counter[int] = Counter()
    first = end = best = most = 0
    for anchor in found:
        start = anchor.start - characters // 4
        while end < len(found) and found[end].end <= start + characters:
            inside[found[end].term] += 1
            end += 1
        while first < end and found[first].start < start:
            inside[found[first].term] -= 1
            first += 1
        terms = len(+inside)
        if terms > most:
            best, most = anchor.start, terms
    return best


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
