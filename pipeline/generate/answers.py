"""Reads what a language model answered. An answer is foreign text: only lines that can be questions are used."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import category

from pipeline.data.text.same_words import same_words
from pipeline.data.text.words import count, spans
from pipeline.generate.config import Kind
from pipeline.language_model.chat_completion import without_thoughts

LONGEST = 400
"""Characters of a question."""
WORDS: dict[Kind, tuple[int, int]] = {
    "question": (2, 50),
    "keywords": (1, 15),
    "claim": (3, 60),
    "title": (1, 25),
}
"""Fewest and most words."""
READ = 20_000
"""Characters of an answer that are read."""
COPIED = 12
"""A question of at least as many words that the passage has in this order is a copy."""
REPEATING = 8, 0.4
"""From so many words on, at least this share of them must be different."""
MARKER = re.compile(
    r"^(?:[-*•–]\s+|\(?\d{1,2}[.):]\s+|(?:Q|Question|Query|Title|Claim|Answer|Keywords)\s*\d*\s*:\s*)+", re.I
)
"""Signs and numbers of a list."""
SPACES = re.compile(r"[ \t\u00a0\u3000]+")
MARKUP = re.compile(r"</?[a-zA-Z!][^<>]*>|</?[a-zA-Z]+$|\]\(\w+:|&#?\w+;")
QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "`": "`", "「": "」"}


class Reading(NamedTuple):
    """The questions of an answer, and how many of its lines were left out for which reason."""

    questions: list[str]
    left_out: Counter[str]


def read_answer(answer: str, kind: Kind, passage: str, most: int) -> Reading:
    """Returns the first `most` usable questions of an answer. `passage`: what the question was written for."""
    found: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    lines = list(_lines(without_thoughts(answer[:READ])))
    for line in lines:
        if len(found) == most:
            break
        if reason := fault(line, kind, passage):
            left_out[reason] += 1
        else:
            found.setdefault(same_words(line), line)
    if not lines:
        left_out["empty"] += 1
    return Reading([*found.values()], left_out)


def _lines(answer: str) -> Iterator[str]:
    """Yields the lines without the signs of a list, or the strings of a JSON list."""
    listed = _json_strings(answer)
    for line in answer.splitlines() if listed is None else listed:
        text = _bare(SPACES.sub(" ", line).strip())
        if text and not text.startswith("```"):
            yield text


def _json_strings(answer: str) -> list[str] | None:
    """Returns the strings of an answer that is a JSON list, or an object with one list; None of another answer."""
    text = answer.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if not text.startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(one, str) for one in strings):
        return None
    return strings


def _bare(line: str) -> str:
    """Returns the line without list signs, emphasis and quotes around it."""
    before = None
    while line != before:
        before, line = line, MARKER.sub("", line).strip()
        for sign in ("**", "__"):
            if line.startswith(sign) and line.endswith(sign) and len(line) > 2 * len(sign):
                line = line[len(sign) : -len(sign)]
        if len(line) > 2 and QUOTES.get(line[0]) == line[-1]:
            line = line[1:-1]
    return line


def fault(line: str, kind: Kind, passage: str) -> str:
    """Returns why a line is no question; empty if it can be one."""
    if any(category(c) in ("Cc", "Cs", "Co", "Cn") or c in BIDI for c in line):
        return "control_characters"
    if MARKUP.search(line) or html.unescape(line) != line:
        return "markup"
    if line.endswith((":", "：")) or line.startswith(("{", "[")):
        return "no_question"
    fewest, most = WORDS[kind]
    words = [line[start:end].lower() for start, end in spans(line)]
    if len(words) < fewest:
        return "too_short"
    if len(words) > most or len(line) > LONGEST:
        return "too_long"
    if len(words) >= REPEATING[0] and len({*words}) < REPEATING[1] * len(words):
        return "repeating"
    if count(line) >= COPIED and same_words(line).rstrip(".?!") in same_words(passage):
        return "copied"
    return ""


BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Signs that reverse the order in which text is shown."""
