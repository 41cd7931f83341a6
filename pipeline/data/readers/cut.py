"""Cuts a document into passages of about equal length, at natural breaks of the text."""

from collections.abc import Collection
from itertools import pairwise
from unicodedata import category

from pipeline.data.text.sentences import sentences
from pipeline.data.text.words import pieces

# Maximum distance of a cut from its even place to a break of this kind, as a share of the passage's length. A cut is
# at no sign that belongs to the text before it, if it can be elsewhere.
REACH = {"paragraph": 0.35, "sentence": 0.25, "line": 0.15, "space": 0.0, "letter": -0.1, "sign": -0.35}
MOST = 1.2
"""The longest passage, as a multiple of the length that is set."""


def cut_text(text: str, words: int | None, overlap: int = 0) -> list[str]:
    """Returns `text` in passages of about `words` words each; None: uncut. Only white space at the cuts is lost.

    Words are counted as a model reads them: signs count, and a long word counts several times (`words.pieces`). The
    number of passages is length / words, rounded, or more if one had over MOST * words. Every cut is at its even place,
    or at the end of a paragraph, sentence, line or word if one is near enough. `overlap`: last words of a passage with
    which the next one begins, below `words`; they count in its length.
    """
    spans = pieces(text)
    if not spans:
        return []
    if words is None:
        return [text[spans[0][0] : spans[-1][1]]]
    new = len(spans) - overlap  # the rest is the first passage's, which repeats nothing
    longest = max(1, int(MOST * words) - overlap)
    number = max(1, round(new / (words - overlap)), -(-new // longest))
    length = new / number
    ends = {end for _, end in sentences(text)} if number > 1 else set()
    starts = [overlap]
    for i in range(1, number):
        earliest, latest = len(spans) - (number - i) * longest, starts[-1] + longest
        starts.append(_best_start(text, spans, ends, overlap + i * length, length, earliest, latest))
    starts.append(len(spans))
    return [text[spans[a - overlap][0] : spans[b - 1][1]] for a, b in pairwise(starts)]


def _best_start(
    text: str,
    spans: list[tuple[int, int]],
    ends: Collection[int],
    ideal: float,
    length: float,
    earliest: int,
    latest: int,
) -> int:
    """Returns the piece before which to cut: the break with the largest (reach - distance). `ends`: of sentences.

    Every reach is below half a passage, so cuts keep their order and a passage keeps at least 0.3 of its length.
    """
    reach = max(REACH.values()) * length
    last = min(len(spans) - 1, round(ideal + reach), latest)
    first = min(last, max(1, round(ideal - reach), earliest))
    return max(
        range(first, last + 1), key=lambda i: REACH[_break_before(text, spans, ends, i)] * length - abs(i - ideal)
    )


def _break_before(text: str, spans: list[tuple[int, int]], ends: Collection[int], i: int) -> str:
    """Returns the kind of break before the piece `i`."""
    end, start = spans[i - 1][1], spans[i][0]
    newlines = text.count("\n", end, start)
    if newlines > 1:
        return "paragraph"
    if end in ends:
        return "sentence"
    if start > end:
        return "line" if newlines else "space"
    return "letter" if text[start].isalnum() and category(text[end - 1]) not in ("Ps", "Pi") else "sign"
