"""What is shown of a passage: its lines that hold the most of the question's words, and where these stand."""

import re
from bisect import bisect_right
from functools import reduce
from itertools import accumulate
from operator import or_
from textwrap import dedent

LINES = 8
"""Lines of a passage that are shown, so that five answers fit a screen or two."""
CHARACTERS = 1500
"""Of a passage that are shown: some have a whole page in a line."""
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
    """The question's words that are worth highlighting."""
    return tuple(sorted({w for w in WORD.findall(question.lower()) if w not in COMMON and len(w) > 1}))


def hits(text: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """(start, place in `words`) wherever a word of the text begins with one of `words`, in any case."""
    lowered = text.replace("İ", "i").lower()  # the one letter that grows in lower case
    found = []
    for place, word in enumerate(words):
        at = lowered.find(word)
        while at >= 0:
            if at == 0 or not (lowered[at - 1].isalnum() or lowered[at - 1] == "_"):
                found.append((at, place))
            at = lowered.find(word, at + 1)
    return found


def highlights(text: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """(start, end) in characters of each such word, as far as it goes on, in order."""
    starts = sorted({start for start, _ in hits(text, words)})
    return [hit.span() for start in starts if (hit := REST.match(text, start))]


def excerpt(text: str, words: tuple[str, ...], most: int = LINES) -> str:
    """What of a passage is shown: a few lines, and of these the part around the first of the words where it is long."""
    shown = some_lines(text, words, most)
    if len(shown) <= CHARACTERS:
        return shown
    first = min((at for at, _ in hits(shown, words)), default=0)
    start = max(0, min(first - CHARACTERS // 4, len(shown) - CHARACTERS))
    kept = shown[start : start + CHARACTERS]
    return ("…" if start else "") + kept + ("…" if start + CHARACTERS < len(shown) else "")


def some_lines(text: str, words: tuple[str, ...], most: int) -> str:
    """The first `most` lines in a row that hold the most of the words; an ellipsis where lines are left out."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    starts = [*accumulate((len(line) + 1 for line in lines), initial=0)]
    held = [0] * len(lines)  # a bit a word
    for at, place in hits(text, words):
        held[bisect_right(starts, at) - 1] |= 1 << place
    different = [reduce(or_, held[n : n + most]).bit_count() for n in range(len(lines) - most + 1)]
    first = different.index(max(different))
    kept = dedent("\n".join(lines[first : first + most])).strip("\n")
    return ("…\n" if first else "") + kept + ("\n…" if first + most < len(lines) else "")
