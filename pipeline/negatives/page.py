"""Writes negatives.html: random questions with positives and negatives, to find false negatives by reading."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import ROWS
from pipeline.data.stored import read_batches
from pipeline.negatives.ranking import QuestionNegatives, best_place
from pipeline.runtime.work import Metrics
from pipeline.templates import environment, styles

HEAD = 260
"""Characters of a text that are shown before it is opened."""
LONGEST = 5000
"""Most characters of a text on the page."""
IN_VIEW = 5
"""Best negatives of a question that are always shown; others are shown only with a strong mark."""
POSITIVES_IN_VIEW = 3
OVERLAP = 0.5
"""Smallest share of common word triples for a negative that counts as a copy of a positive's text."""
MARKED_WORDS = 64
"""Most words of a question that are marked; some questions are whole documents."""
# fmt: off
COMMON = frozenset({
    "a", "am", "an", "and", "are", "as", "at", "be", "by", "can", "did", "do", "does", "for", "from", "had", "has",
    "have", "how", "i", "if", "in", "is", "it", "its", "of", "on", "or", "s", "t", "that", "the", "their", "this",
    "to", "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "you",
})
# fmt: on
"""Stop words: they say little about a question."""

Pieces = list[tuple[str, str]]
"""A text as pieces (text, kind), in order; kind is "" (plain), "q" (word of the question) or "a" (answer)."""


def write_page(
    path: Path,
    collection: Path,
    source: str,
    drawn: Sequence[QuestionNegatives],
    positives: Mapping[str, tuple[str, ...]],
    metrics: Metrics,
) -> None:
    """Writes the page of the `drawn` questions. It needs no other file and no network; the template escapes all text.

    Memory: the page's texts, and one batch of the collection.
    """
    wanted = {taken.ranking.passage_ids[i] for taken in drawn for i in taken.places}
    wanted |= {passage for taken in drawn for passage in positives[taken.ranking.query_id]}
    passages = read_rows(collection / "passages.parquet", "passage_id", wanted)
    queries = read_rows(collection / "queries.parquet", "query_id", {taken.ranking.query_id for taken in drawn})
    known = {query: [p for p in judged if p in passages] for query, judged in positives.items() if query in queries}
    questions = [question(queries[t.ranking.query_id], t, known[t.ranking.query_id], passages) for t in drawn]
    questions.sort(key=lambda q: -sum(bool(n["strong"]) for n in q["negatives"]))
    css, template = styles("palette.css", "report.css", "negatives.css"), environment().get_template("negatives.html")
    page = template.render(css=css, source=source, questions=questions, marks=marks(questions), metrics=metrics)
    path.write_text(page, encoding="utf-8", newline="\n")


def read_rows(path: Path, key: str, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Returns {id: row} of the table's rows whose `key` is in `wanted`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids, rows = pa.array(sorted(wanted), pa.string()), {}
    for batch in read_batches(path, None, ROWS):
        for row in batch.filter(pc.is_in(batch[key], value_set=ids)).to_pylist():
            rows[row[key]] = row
    return rows


def question(
    row: Mapping[str, Any], taken: QuestionNegatives, judged: Sequence[str], passages: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the template's values for one question."""
    ranking = taken.ranking
    text, answers = row["text"], [a for a in row["answers"] if a.strip()]
    words_of_question = question_words(text)
    pattern = match_pattern(words_of_question, answers)
    of_positives = [passages[p] for p in judged]
    place_of = {passage: i for i, passage in enumerate(ranking.passage_ids)}
    first = best_place(ranking, judged)
    best = None if first is None else float(ranking.scores[first])

    def shown(passage_id: str) -> dict[str, Any]:
        passage, place = passages[passage_id], place_of.get(passage_id)
        return {
            "rank": None if place is None else place + 1,
            "score": number(None if place is None else float(ranking.scores[place])),
            "title": text_pieces(passage["title"], pattern, answers),
            **cut_passage(passage["text"], pattern, answers),
        }

    def negative(place: int) -> dict[str, Any]:
        passage_id = ranking.passage_ids[place]
        passage = passages[passage_id]
        strong, weak = suspicions(passage, of_positives, answers)
        margin = None if best is None else float(ranking.scores[place]) - best
        if margin is not None and margin > 0:
            weak.append("above the positive")
        count = len(words_of_question & set(words_in(f"{passage['title']} {passage['text']}")))
        hits = f"{count} of {len(words_of_question)} words" if words_of_question else ""
        return shown(passage_id) | {"strong": strong, "weak": weak, "hits": hits, "margin": signed(margin)}

    negatives = [negative(int(i)) for i in taken.places]
    return {
        "text": cut_passage(text, pattern, []),
        "answers": answers,
        "positives": [shown(p) for p in judged[:POSITIVES_IN_VIEW]],
        "more_positives": [shown(p) for p in judged[POSITIVES_IN_VIEW:]],
        "negatives": [n for i, n in enumerate(negatives) if i < IN_VIEW or n["strong"]],
        "more_negatives": [n for i, n in enumerate(negatives) if i >= IN_VIEW and not n["strong"]],
    }


def suspicions(
    negative: Mapping[str, Any], positives: Sequence[Mapping[str, Any]], answers: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Returns (strong signs, weak signs) of a false negative: an answer in its text, a positive's text or document."""
    strong, plain_text = [], f" {' '.join(words_in(negative['text']))} "
    contained = [a for a in answers if words_in(a) and f" {' '.join(words_in(a))} " in plain_text]
    if contained:
        strong.append(f"holds the answer “{max(contained, key=len)}”")
    common = max((overlap(negative["text"], p["text"]) for p in positives), default=0.0)
    if common >= OVERLAP:
        strong.append(f"{common:.0%} a positive's words")
    same = any(negative["doc_id"] == p["doc_id"] for p in positives)
    return strong, ["a positive's document"] if same else []


def overlap(one: str, other: str) -> float:
    """Returns the share of the shorter text's word triples that are also in the other text."""
    a, b = triples(one[:LONGEST]), triples(other[:LONGEST])
    return len(a & b) / max(1, min(len(a), len(b)))


def triples(text: str) -> set[tuple[str, ...]]:
    sequence = words_in(text)
    return {tuple(sequence[i : i + 3]) for i in range(len(sequence) - 2)}


def words_in(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def question_words(text: str) -> set[str]:
    """Returns the question's first distinct words except stop words; if it has only stop words, returns these."""
    distinct = list(dict.fromkeys(words_in(text)))
    return set([w for w in distinct if w not in COMMON][:MARKED_WORDS] or distinct[:MARKED_WORDS])


def match_pattern(words: Iterable[str], answers: Iterable[str]) -> re.Pattern[str] | None:
    """Returns a pattern that finds answers and words of the question, longer ones first; None if there are none."""
    parts = [*sorted(set(answers), key=lambda a: (-len(a), a)), *sorted(words, key=lambda w: (-len(w), w))]
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, parts))})(?!\w)", re.IGNORECASE) if parts else None


def text_pieces(text: str, pattern: re.Pattern[str] | None, answers: Sequence[str]) -> Pieces:
    """Returns `text` in pieces: the matches of `pattern` and the text between them."""
    if pattern is None:
        return [(text, "")]
    known = {a.casefold() for a in answers}
    parts = pattern.split(text)  # every second part is a match
    kinds = ["" if i % 2 == 0 else "a" if part.casefold() in known else "q" for i, part in enumerate(parts)]
    return [(part, kind) for part, kind in zip(parts, kinds, strict=True) if part]


def cut_passage(text: str, pattern: re.Pattern[str] | None, answers: Sequence[str]) -> dict[str, Any]:
    """Returns `head`: the visible part, `whole`: the opened text (empty: no more), `omitted`: characters left out.

    The head is the start of the text, or the part around its first answer.
    """
    if len(text) <= HEAD:
        return {"head": text_pieces(text, pattern, answers), "whole": [], "omitted": 0}
    answer = match_pattern((), answers)
    match = answer.search(text, 0, LONGEST) if answer else None
    start = 0 if match is None or match.end() < HEAD else text.find(" ", match.start() - HEAD // 2) + 1
    start = min(start, match.start()) if match else start
    stop = text.rfind(" ", start + HEAD // 2, start + HEAD)
    head = ("… " if start else "") + text[start : stop if stop > 0 else start + HEAD]
    whole = text[:LONGEST]
    return {
        "head": text_pieces(head, pattern, answers),
        "whole": text_pieces(whole, pattern, answers),
        "omitted": len(text) - len(whole),
    }


def number(value: float | None) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.4g}".replace("-", "−")


def signed(value: float | None) -> str:
    return "" if value is None or np.isnan(value) else f"{value:+.3g}".replace("-", "−")


def marks(questions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the number of the page's negatives with each mark, in the template's order."""
    negatives = [n for q in questions for n in (*q["negatives"], *q["more_negatives"])]
    return {
        "all": len(negatives),
        "hold an answer": sum(any(s.startswith("holds") for s in n["strong"]) for n in negatives),
        "share half of their word triples or more with a positive": sum(
            any(s.endswith("words") for s in n["strong"]) for n in negatives
        ),
        "stand in a positive's document": sum("a positive's document" in n["weak"] for n in negatives),
        "score above the best retrieved positive": sum("above the positive" in n["weak"] for n in negatives),
    }
