"""Queries that are generated from passages: titles and first sentences, keywords, and spans of words.

They have no judgements: the passage that a query comes from is left out of every list, because its words would find it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.adapt.config import AdaptConfig
from pipeline.data.collection import at_rows, passage_count
from pipeline.data.counter_rng import integers, uniform
from pipeline.data.text.sentences import sentences
from pipeline.data.text.words import spans

SAMPLED = 20_000
"""Most passages that are read: queries come from them, and words are counted in them."""
ROUNDS = 4
"""Most queries of one kind from a passage, where the collection has few passages."""
SAMPLE, ORDER, LEAD, KEYWORDS, SPAN = range(5)
"""First part of the random numbers' keys after the seed."""


class GeneratedQuery(NamedTuple):
    text: str
    passage: int
    """Row of the passage that it comes from."""


@dataclass(frozen=True)
class Source:
    """A passage that queries are generated from."""

    row: int
    title: str
    text: str

    @cached_property
    def joined(self) -> str:
        return f"{self.title}\n{self.text}"

    @cached_property
    def first_of(self) -> dict[str, tuple[int, int]]:
        """{word in lower case: (start, end) of its first occurrence in `joined`}, in text order."""
        found: dict[str, tuple[int, int]] = {}
        for start, end in spans(self.joined):
            found.setdefault(self.joined[start:end].lower(), (start, end))
        return found

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(self.joined[start:end].lower() for start, end in spans(self.joined))


Make = Callable[[Source, int], str]
"""(passage, round) -> a query; empty if the passage gives none."""


def generate_queries(collection: Path, config: AdaptConfig) -> tuple[list[GeneratedQuery], list[GeneratedQuery]]:
    """Returns the queries to train on, and those of the guard; fewer than configured from a small collection.

    Titles and first sentences, keywords and spans come from different passages if there are enough. No text occurs
    twice.
    """
    assert config.queries is not None
    sources = read_sources(collection, config.seed)
    by = np.argsort(uniform(config.seed, ORDER, np.array([one.row for one in sources], np.int64)), kind="stable")
    ordered = [sources[i] for i in by]
    frequency = Counter(word for one in sources for word in one.first_of)
    seen: set[str] = set()
    half = config.queries // 2

    def lead(source: Source, number: int) -> str:
        return lead_of(source, config, number)

    def keywords(source: Source, number: int) -> str:
        return keywords_of(source, config, number, frequency, len(sources))

    def span(source: Source, number: int) -> str:
        return span_of(source, config, number)

    training = take(ordered, half, lead, seen)
    training += take(_rotated(ordered, half), config.queries - half, keywords, seen)
    return training, take(_rotated(ordered, config.queries), config.guard_queries, span, seen)


def read_sources(collection: Path, seed: int) -> list[Source]:
    """Reads all passages, or a random SAMPLED of them, in passage order."""
    passages = passage_count(collection)
    rows = np.arange(passages)
    if passages > SAMPLED:
        rows = np.sort(np.argsort(uniform(seed, SAMPLE, rows), kind="stable")[:SAMPLED])
    table = at_rows(collection / "passages.parquet", rows, ["title", "text"]).to_pydict()
    return [Source(int(row), *texts) for row, texts in zip(rows, zip(*table.values(), strict=True), strict=True)]


def take(sources: Sequence[Source], number: int, make: Make, seen: set[str]) -> list[GeneratedQuery]:
    """Returns at most `number` queries, one of each passage, then one more of each. Adds them to `seen`."""
    found: list[GeneratedQuery] = []
    for text, row in _made(sources, make):
        if len(found) == number:
            break
        if text and text.lower() not in seen:
            seen.add(text.lower())
            found.append(GeneratedQuery(text, row))
    return found


def _made(sources: Sequence[Source], make: Make) -> Iterator[tuple[str, int]]:
    for number in range(ROUNDS):
        for source in sources:
            yield make(source, number), source.row


def _rotated(sources: Sequence[Source], places: int) -> list[Source]:
    first = places % max(1, len(sources))
    return [*sources[first:], *sources[:first]]


def lead_of(source: Source, config: AdaptConfig, number: int) -> str:
    """Returns the first words of the passage's title or of its first sentence: a random one first, then the other."""
    texts = [text for text in (source.title.strip(), _first_sentence(source.text)) if text]
    if number >= len(texts):
        return ""
    swapped = uniform(config.seed, LEAD, source.row)[0] < 0.5
    return _words(texts[-1 - number] if swapped else texts[number], 0, config.lead_words)


def _first_sentence(text: str) -> str:
    start, end = next(sentences(text), (0, 0))
    return text[start:end]


def keywords_of(source: Source, config: AdaptConfig, number: int, frequency: Counter[str], passages: int) -> str:
    """Returns words of high tf-idf in text order: a random choice among twice as many of the best words.

    `frequency`: passages that have a word, of `passages`.
    """
    low, high = config.keyword_words
    wanted = low + int(integers(high - low + 1, config.seed, KEYWORDS, source.row, number, 0)[0])
    scores = {
        word: source.counts[word] * math.log(passages / frequency[word])
        for word in source.first_of
        if any(map(str.isalpha, word)) and (len(word) > 1 or not word.isascii())
    }
    best = [word for word in sorted(scores, key=lambda word: -scores[word]) if scores[word] > 0][: 2 * wanted]
    if len(best) < low:
        return ""
    chance = uniform(config.seed, KEYWORDS, source.row, number, 1, np.arange(len(best)))
    chosen = [source.first_of[best[i]] for i in np.argsort(chance, kind="stable")[:wanted]]
    return " ".join(source.joined[start:end] for start, end in sorted(chosen))


def span_of(source: Source, config: AdaptConfig, number: int) -> str:
    """Returns words that follow each other, from any place of the text."""
    low, high = config.guard_words
    words = len(spans(source.text))
    length = low + int(integers(high - low + 1, config.seed, SPAN, source.row, number, 0)[0])
    if words < low:
        return ""
    first = int(integers(max(0, words - length) + 1, config.seed, SPAN, source.row, number, 1)[0])
    return _words(source.text, first, length)


def _words(text: str, first: int, number: int) -> str:
    """Returns `number` words from the word `first` on, with the punctuation between them."""
    found = spans(text)[first : first + number]
    return " ".join(text[found[0][0] : found[-1][1]].split()) if found else ""
