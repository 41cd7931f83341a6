"""Cut a document into passages of about equal length, where the text has a natural break."""

from itertools import pairwise

from pipeline.data.words import ends_sentence, spans

# How far, as a share of the passage's length, a cut may move from its even place to reach such a break.
REACH = {"paragraph": 0.35, "sentence": 0.25, "line": 0.15, "word": 0.0}


def cut(text: str, words: int) -> list[str]:
    """`text` in passages of about `words` words each (data/words.py); 0: uncut. Nothing but white space at the cuts
    is lost.

    The number of passages is the nearest to length / words; every cut lies at a word's start, moved from its even
    place to the end of a paragraph, sentence or line where one is near enough.
    """
    found = spans(text)
    if not found:
        return []
    pieces = max(1, round(len(found) / words)) if words else 1
    length = len(found) / pieces
    starts = [0]
    for i in range(1, pieces):
        starts.append(_best_start(text, found, i * length, length))
    starts.append(len(found))
    return [text[found[a][0] : found[b - 1][1]] for a, b in pairwise(starts)]


def _best_start(text: str, words: list[tuple[int, int]], ideal: float, length: float) -> int:
    """The word before which to cut: the break for which (reach - distance) is largest.

    As no reach is half a passage, cuts keep their order and a passage at least 0.3 of its length.
    """
    reach = max(REACH.values()) * length
    candidates = range(max(1, round(ideal - reach)), min(len(words) - 1, round(ideal + reach)) + 1)
    return max(candidates, key=lambda w: REACH[_break_before(text, words, w)] * length - abs(w - ideal))


def _break_before(text: str, words: list[tuple[int, int]], word: int) -> str:
    """What ends before the word with this index."""
    end, start = words[word - 1][1], words[word][0]
    newlines = text.count("\n", end, start)
    if newlines > 1:
        return "paragraph"
    if start > end and (text[end - 1] in ".!?" or text[end - 2 : end] in ('."', ".)", '?"', '!"')):
        return "sentence"
    if not text.isascii() and ends_sentence(text, *words[word - 1]):
        return "sentence"
    return "line" if newlines else "word"
