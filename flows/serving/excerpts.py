"""The part of a passage that is shown: the lines with most of the question's words, and the words' positions."""

import re
from bisect import bisect_right
from functools import reduce
from itertools import accumulate
from operator import or_
from textwrap import dedent

LINES = 8
"""Lines of an excerpt: five answers then fit one or two screens."""
CHARACTERS = 1500
"""Characters of an excerpt: some passages have a whole page in one line."""
WORD = re.compile(r"\w+")
REST = re.compile(r"\w*")
# fmt: off
COMMON = {
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "if", "in", "into",
    "is", "it", "its", "my", "of", "on", "one", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "who", "why", "with", "you",
}
# fmt: on


def words_of(question: str) -> tuple[str, ...]:
    """The question's words to highlight: no common words, no single letters."""
    return tuple(sorted({w for w in WORD.findall(question.lower()) if w not in COMMON and len(w) > 1}))


def hits(text: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """(start, index in `words`) of each word in the text that begins with one of `words`. Case is ignored."""
    lowered = text.replace("İ", "i").lower()  # the only letter whose lower case is longer
    starts = []
    for index, word in enumerate(words):
        at = lowered.find(word)
        while at >= 0:
            if at == 0 or not (lowered[at - 1].isalnum() or lowered[at - 1] == "_"):
                starts.append((at, index))
            at = lowered.find(word, at + 1)
    return starts


def highlights(text: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """(start, end) in characters of each such word in full, in order."""
    starts = sorted({start for start, _ in hits(text, words)})
    return [hit.span() for start in starts if (hit := REST.match(text, start))]


def excerpt(text: str, words: tuple[str, ...], most: int = LINES) -> str:
    """A few lines of a passage. If they are long: the part around the first of the words."""
    shown = some_lines(text, words, most)
    if len(shown) <= CHARACTERS:
        return shown
    first = min((at for at, _ in hits(shown, words)), default=0)
    start = max(0, min(first - CHARACTERS // 4, len(shown) - CHARACTERS))
    part = shown[start : start + CHARACTERS]
    return ("…" if start else "") + part + ("…" if start + CHARACTERS < len(shown) else "")


def some_lines(text: str, words: tuple[str, ...], most: int) -> str:
    """The first `most` consecutive lines with most of the words. An ellipsis marks lines that are left out."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    starts = [*accumulate((len(line) + 1 for line in lines), initial=0)]
    words_of_line = [0] * len(lines)  # one bit per word
    for at, index in hits(text, words):
        words_of_line[bisect_right(starts, at) - 1] |= 1 << index
    counts = [reduce(or_, words_of_line[n : n + most]).bit_count() for n in range(len(lines) - most + 1)]
    first = counts.index(max(counts))
    part = dedent("\n".join(lines[first : first + most])).strip("\n")
    return ("…\n" if first else "") + part + ("\n…" if first + most < len(lines) else "")
