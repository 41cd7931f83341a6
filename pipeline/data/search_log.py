"""Reads logs of searches and clicks (`serve-search --log`), and turns clicks into relevant passages.

A passage is clicked more often the higher it is, whatever it says. So clicks are compared with those that its positions
let expect: COEC, clicks over expected clicks (Zhang and Jones, 2007, Comparing click logs and editorial labels for
training query rewriting; Chapelle and Zhang, 2009, section 2). The expectation of a position is the share of all
searches of the log in which it was clicked.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.data.text.plain_text import check_text
from pipeline.data.text.same_words import same_words
from pipeline.data.text.text_files import lines, strings_of, text_of
from pipeline.errors import InputError

BEGINNING = '{"time":'
"""Of each line, as flows/serving/search_log.py writes it."""


@dataclass
class Search:
    """A search with its clicks."""

    question: str
    where: str | None
    """The condition on the passages; None: all passages."""
    results: list[str]
    """Ids of the shown passages, best first."""
    clicks: set[int] = field(default_factory=set)
    """Positions of the clicked passages, from 1."""


class ClickedPair(NamedTuple):
    """A passage that was shown for a question."""

    question: str
    """Its words (`same_words`)."""
    passage_id: str
    impressions: int
    """Searches that showed the passage for the question."""
    clicks: int
    """Of these, searches in which it was clicked."""
    coec: float
    """Clicks over expected clicks; above 1: more than its positions let expect."""


class SearchLog(NamedTuple):
    """What the logs hold."""

    searches: list[Search]
    """In their order."""
    lost_clicks: int
    """Clicks on searches that the logs lack."""
    incomplete_lines: int
    """Lines that break off: the disk was full, or the server is still writing."""


def read_searches(paths: Iterable[Path]) -> SearchLog:
    """Reads logs. Memory grows with them.

    Raises InputError, with file and line, for another line and for a click at a position that a search does not have.
    """
    searches: dict[str, Search] = {}
    lost = incomplete = 0
    for path in paths:
        for number, line in lines(path):
            place, row = f"{path}:{number}", _row(line)
            if row is None and line.startswith(BEGINNING):
                incomplete += 1
                continue
            if row is None:
                raise InputError(f"{place}: is no line of `serve-search --log`; remove it, or name the right file")
            search_id = text_of(place, row, "search")
            if "click" not in row:
                where = text_of(place, row, "where", required=False) or None
                question = text_of(place, row, "question")
                check_text(f"{place}: question", question)
                found = Search(question, where, strings_of(place, row, "results"))
                searches[search_id] = found
            elif search_id not in searches:
                lost += 1
            else:
                searches[search_id].clicks.add(_position(place, row, len(searches[search_id].results)))
    return SearchLog([*searches.values()], lost, incomplete)


def _row(line: str) -> dict[str, Any] | None:
    """Returns the object of a line; None of another line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _position(place: str, row: Mapping[str, Any], results: int) -> int:
    position = row["click"]
    if not isinstance(position, int) or isinstance(position, bool) or not 1 <= position <= results:
        raise InputError(f"{place}: field 'click' is not a position from 1 to {results}")
    return position


def texts_of(searches: Iterable[Search]) -> dict[str, str]:
    """Returns {words (`same_words`): the question as it was written most often, of equals the first}, by first
    appearance."""
    written: dict[str, Counter[str]] = {}
    for search in searches:
        written.setdefault(same_words(search.question), Counter())[" ".join(search.question.split())] += 1
    return {form: texts.most_common(1)[0][0] for form, texts in written.items() if form}


def click_rates(searches: Sequence[Search]) -> dict[int, float]:
    """Returns {position: share of the searches with a result at it in which this was clicked}."""
    shown = Counter(position for search in searches for position in range(1, len(search.results) + 1))
    clicked = Counter(position for search in searches for position in search.clicks)
    return {position: clicked[position] / count for position, count in shown.items()}


def clicked_pairs(searches: Sequence[Search]) -> list[ClickedPair]:
    """Returns all pairs of a question and a passage with a click, by the question's first appearance, then by COEC."""
    rates = click_rates(searches)
    impressions: Counter[tuple[str, str]] = Counter()
    clicks: Counter[tuple[str, str]] = Counter()
    expected: defaultdict[tuple[str, str], float] = defaultdict(float)
    for search in searches:
        form = same_words(search.question)
        for position, passage_id in enumerate(search.results, 1):
            pair = form, passage_id
            impressions[pair] += 1
            expected[pair] += rates[position]
            clicks[pair] += position in search.clicks
    first = {form: n for n, form in enumerate(texts_of(searches))}
    pairs = [
        ClickedPair(*pair, impressions[pair], count, count / expected[pair])
        for pair, count in clicks.items()
        if count and pair[0]
    ]
    return sorted(pairs, key=lambda one: (first[one.question], -one.coec, one.passage_id))


def relevant_pairs(searches: Sequence[Search], impressions: int, coec: float) -> list[ClickedPair]:
    """Returns the pairs whose passage counts as relevant: shown at least `impressions` times for the question, and
    clicked at least `coec` times as often as its positions let expect.

    One accidental click at a low position, where clicks are rare, has a very high COEC: the minimum of impressions
    keeps it out.
    """
    return [one for one in clicked_pairs(searches) if one.impressions >= impressions and one.coec >= coec]
