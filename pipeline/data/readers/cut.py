"""Cuts a document into passages of about equal length, at natural breaks of the text."""

from itertools import pairwise

from pipeline.data.words import ends_sentence, spans

# Maximum distance of a cut from its even place to a break of this kind, as a share of the passage's length.
REACH = {"paragraph": 0.35, "sentence": 0.25, "line": 0.15, "word": 0.0}


def cut_text(text: str, words: int | None, overlap: int = 0) -> list[str]:
    """Returns `text` in passages of about `words` words each (data/words.py); None: uncut. Only white space at the cuts
    is lost.

    The number of passages is length / words, rounded. Every cut is at the start of a word: at its even place, or at the
    end of a paragraph, sentence or line if one is near enough. `overlap`: last words of a passage with which the next
    one begins, below `words`; they count in its length.
    """
    word_spans = spans(text)
    if not word_spans:
        return []
    new = len(word_spans) - overlap  # the rest is the first passage's, which repeats nothing
    pieces = max(1, round(new / (words - overlap))) if words is not None else 1
    length = new / pieces
    starts = [overlap]
    for i in range(1, pieces):
        starts.append(_best_start(text, word_spans, overlap + i * length, length))
    starts.append(len(word_spans))
    return [text[word_spans[a - overlap][0] : word_spans[b - 1][1]] for a, b in pairwise(starts)]


def _best_start(text: str, words: list[tuple[int, int]], ideal: float, length: float) -> int:
    """Returns the word before which to cut: the break with the largest (reach - distance).

    Every reach is below half a passage, so cuts keep their order and a passage keeps at least 0.3 of its length.
    """
    reach = max(REACH.values()) * length
    candidates = range(max(1, round(ideal - reach)), min(len(words) - 1, round(ideal + reach)) + 1)
    return max(candidates, key=lambda w: REACH[_break_before(text, words, w)] * length - abs(w - ideal))


def _break_before(text: str, words: list[tuple[int, int]], word: int) -> str:
    """Returns the kind of break before the word with this index."""
    end, start = words[word - 1][1], words[word][0]
    newlines = text.count("\n", end, start)
    if newlines > 1:
        return "paragraph"
    if start > end and (text[end - 1] in ".!?" or text[end - 2 : end] in ('."', ".)", '?"', '!"')):
        return "sentence"
    if not text.isascii() and ends_sentence(text, *words[word - 1]):
        return "sentence"
    return "line" if newlines else "word"
