"""Cut a document into passages of about equal length, where the text has a natural break."""

import re
from itertools import pairwise

WORD = re.compile(r"\S+")
# How far, as a share of the passage's length, a cut may move from its even place to reach such a break.
REACH = {"paragraph": 0.35, "sentence": 0.25, "line": 0.15, "word": 0.0}


def cut(text: str, words: int) -> list[str]:
    """`text` in passages of about `words` words each; 0: uncut. Nothing but white space at the cuts is lost.

    The number of passages is the nearest to length / words; every cut lies at a word's start, moved from its even
    place to the end of a paragraph, sentence or line where one is near enough.
    """
    spans = [match.span() for match in WORD.finditer(text)]
    if not spans:
        return []
    pieces = max(1, round(len(spans) / words)) if words else 1
    length = len(spans) / pieces
    starts = [0]
    for i in range(1, pieces):
        starts.append(_best_start(text, spans, i * length, length))
    starts.append(len(spans))
    return [text[spans[a][0] : spans[b - 1][1]] for a, b in pairwise(starts)]


def _best_start(text: str, spans: list[tuple[int, int]], ideal: float, length: float) -> int:
    """The word before which to cut: the break for which (reach - distance) is largest.

    As no reach is half a passage, cuts keep their order and a passage at least 0.3 of its length.
    """
    reach = max(REACH.values()) * length
    candidates = range(max(1, round(ideal - reach)), min(len(spans) - 1, round(ideal + reach)) + 1)
    return max(candidates, key=lambda w: REACH[_break_before(text, spans, w)] * length - abs(w - ideal))


def _break_before(text: str, spans: list[tuple[int, int]], word: int) -> str:
    """What ends before the word with this index."""
    end, start = spans[word - 1][1], spans[word][0]
    newlines = text.count("\n", end, start)
    if newlines > 1:
        return "paragraph"
    if text[end - 1] in ".!?" or text[end - 2 : end] in ('."', ".)", '?"', '!"'):
        return "sentence"
    return "line" if newlines else "word"
