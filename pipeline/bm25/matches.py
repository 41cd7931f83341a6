"""The words of a text that match a question: those with a term of the question.

Words are cut here, as Lucene's analysers cut them, and analysed one by one: a few calls to Java for a page of answers,
where its analyser would need some for each word.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import regex

from pipeline.bm25.languages import BIGRAMS, ENGLISH, LANGUAGES, language_of
from pipeline.bm25.texts import IDENTIFIER

IDEOGRAPHS, KANA_HANGUL = r"\p{Han}\p{Hiragana}", r"\p{Katakana}ー\p{Hangul}"
LETTERS = rf"[^\W{IDEOGRAPHS}{KANA_HANGUL}]"
INSIDE = r"[\u200c\u200d]+|(?<=\p{L}\p{M}*)[.:'’·](?=\p{L})|(?<=\p{N})[.,;'](?=\p{N})"
WORD = rf"{LETTERS}+(?:(?:{INSIDE}){LETTERS}+)*"
"""Letters, digits and underscores; also an apostrophe or a full stop between two letters, or a sign between digits."""
IN_PAIRS = regex.compile(rf"(?P<run>[{IDEOGRAPHS}{KANA_HANGUL}]+)|{WORD}")
ASCII = re.compile(r"\w+(?:(?:(?<=[^\W\d_])[.:'](?=[^\W\d_])|(?<=\d)[.,;'](?=\d))\w+)*", re.ASCII)
"""WORD in ASCII text, three times as fast."""
SINGLE = regex.compile(rf"[{IDEOGRAPHS}]|[\p{{Katakana}}ー]+|\p{{Hangul}}+|{WORD}")
KNOWN = 100_000
"""Words whose terms are kept: 20 MB."""
# fmt: off
COMMON = {
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "if", "in", "into",
    "is", "it", "its", "my", "of", "on", "one", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "who", "why", "with", "you",
}
# fmt: on
"""Words of English questions that are not highlighted; the analyser leaves out fewer."""

Span = tuple[int, int]
"""Start and end of a word in its text, in characters."""
Analyse = Callable[[Sequence[str]], Sequence[Sequence[str]]]
"""Words -> the terms of each; none for a stop word."""


class Match(NamedTuple):
    """Of a word `text[start:end]` with a term of the question."""

    start: int
    end: int
    term: int
    """The term's number in the question."""


@dataclass(frozen=True)
class Matcher:
    """Finds the words of a question in texts whose words were analysed."""

    job: Mapping[str, Any]
    """The settings of bm25.json."""
    term_of: Mapping[str, int]
    """{word with a term of the question: the term's number}."""
    spans_of: Mapping[str, Sequence[Span]]
    """The words of texts that are already cut."""

    def matches(self, text: str) -> list[Match]:
        """Returns the matching words, in order. Pairs of characters overlap."""
        if not self.term_of:
            return []
        spans = self.spans_of.get(text) or word_spans(text, self.job)
        return [Match(a, b, self.term_of[word]) for a, b in spans if (word := text[a:b]) in self.term_of]

    def spans(self, text: str) -> list[Span]:
        """Returns (start, end) of what matches, in characters, in order; overlapping pairs are one span."""
        merged: list[Span] = []
        for start, end, _ in self.matches(text):
            if merged and start < merged[-1][1]:
                start = merged.pop()[0]
            merged.append((start, end))
        return merged


def word_spans(text: str, job: Mapping[str, Any]) -> list[Span]:
    """Returns (start, end) of each word that is indexed, in order."""
    if text.isascii():
        spans = [match.span() for match in ASCII.finditer(text)]
    elif language_of(job) in BIGRAMS:
        spans = [span for match in IN_PAIRS.finditer(text) for span in _pairs(match)]
    else:
        spans = [match.span() for match in SINGLE.finditer(text)]
    return [piece for span in spans for piece in _pieces(text, *span)] if job["split_identifiers"] else spans


def _pairs(match: "regex.Match[str]") -> list[Span]:
    """Returns the overlapping pairs of a run of characters; another word is one span."""
    start, end = match.span()
    if not match["run"]:
        return [(start, end)]
    return [(at, min(at + 2, end)) for at in range(start, max(start + 1, end - 1))]


def _pieces(text: str, start: int, end: int) -> list[Span]:
    """Returns the pieces of a word between the places where identifiers are split."""
    word = text[start:end]
    if word.isalpha() and (word.islower() or word.istitle()):  # most words, and quickly seen
        return [(start, end)]
    pieces = []
    for cut in IDENTIFIER.finditer(text, start, end):
        pieces.append((start, cut.start()))
        start = cut.end()
    return [(a, b) for a, b in (*pieces, (start, end)) if b > a]


def matchers(analyse: Analyse, job: Mapping[str, Any], requests: Sequence[tuple[str, Sequence[str]]]) -> list[Matcher]:
    """Returns a matcher for each (question, texts), for these texts and their parts. `analyse` is called once."""
    asked = [_question_words(question, job) for question, _ in requests]
    spans_of = {text: word_spans(text, job) for _, texts in requests for text in texts}
    shown = [{text[a:b] for text in texts for a, b in spans_of[text]} for _, texts in requests]
    words = sorted(set().union(*asked, *shown))
    terms = dict(zip(words, analyse(words), strict=True))
    found = []
    for question, of_texts in zip(asked, shown, strict=True):
        number = {term: n for n, term in enumerate(dict.fromkeys(t for word in question for t in terms[word]))}
        hits = ((word, next((number[t] for t in terms[word] if t in number), None)) for word in of_texts)
        found.append(Matcher(job, {word: n for word, n in hits if n is not None}, spans_of))
    return found


def kept(analyse: Analyse) -> Analyse:
    """Returns an analyser that keeps the terms of up to KNOWN words. Safe to call from several threads."""
    known: dict[str, Sequence[str]] = {}

    def of(words: Sequence[str]) -> list[Sequence[str]]:
        found = {word: terms for word in words if (terms := known.get(word)) is not None}
        new = [word for word in words if word not in found]
        if new:
            found |= zip(new, analyse(new), strict=True)
            if len(known) > KNOWN:
                known.clear()
            known.update((word, found[word]) for word in new)
        return [found[word] for word in words]

    return of


def _question_words(question: str, job: Mapping[str, Any]) -> list[str]:
    """Returns the words to highlight, each once: no common words, no single letters of ASCII."""
    words = dict.fromkeys(question[a:b] for a, b in word_spans(question, job))
    common = COMMON if language_of(job) == ENGLISH else ()
    return [word for word in words if word.lower() not in common and (len(word) > 1 or not word.isascii())]


def plain_analyser(job: Mapping[str, Any], stop_words: frozenset[str]) -> Analyse:
    """Returns an analyser without Java: lower case, no stop words, and Snowball's stems if it knows the language.

    Its stems are often those of Lucene's analyser, but not always.
    """
    import snowballstemmer

    algorithm = LANGUAGES[language_of(job)].snowball if job["stemmer"] != "none" else None

    def analyse(words: Sequence[str]) -> list[list[str]]:
        stem = snowballstemmer.stemmer(algorithm).stemWord if algorithm else str  # one for each thread
        lowered = [word.lower() for word in words]
        return [[] if word in stop_words else [stem(word)] for word in lowered]

    return analyse
