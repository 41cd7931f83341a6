"""Example questions with the first answers of two systems: random ones, and those with the largest changes."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.bm25.highlights import Highlighter
from pipeline.bm25.matches import Matcher
from pipeline.data.stored import read_table
from pipeline.evaluate.compare import Figures, changes, questions_of
from pipeline.report.results import SplitMeasures

CHARACTERS = 240
"""Characters of a passage that are shown."""
MEASURES = {"judged": ("RR@100",), "answers": ("hits@5", "hits@20", "hits@100")}
"""Measures that give the rank of a question's first relevant passage, or (as a sum) of its first with an answer."""
WITHIN = {3: "an answer in the first 5", 2: "an answer in the first 20", 1: "an answer in the first 100"}
"""{number of a question's hits: text}."""


def main_pair(metrics: Mapping[str, Any], figures: Figures) -> tuple[str, str] | None:
    """Returns the two compared systems: BM25 and the last dense retriever; None if one is missing."""
    dense = metrics["dense"]
    return ("bm25", dense) if dense in figures and "bm25" in figures else None


def example_figures(evaluate: Path, part: SplitMeasures) -> Figures:
    """Returns {system: {question: 1 / rank of its first relevant passage (to depth 100), or its number of hits}}."""
    columns = ["query_id", "system", *MEASURES[part.kind]]
    rows = read_table(evaluate / "per_query.parquet", columns=columns, filters=[("split", "=", part.split)])
    figures: dict[str, dict[str, float]] = {}
    for query_id, system, *values in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        if None not in values:  # the table may have questions without a judgement or an answer
            figures.setdefault(system, {})[query_id] = sum(values)
    return figures


def changed(figures: Figures, pair: tuple[str, str] | None, number: int) -> tuple[list[str], list[str]]:
    """Returns the questions with the largest gains and losses from the first system of `pair` to the second."""
    if pair is None or number == 0:
        return [], []
    query_ids = sorted(questions_of(figures))
    by_size = changes(figures, figures, query_ids, pair, len(query_ids))
    gains = [change.query_id for change in by_size if change.b > change.a]
    losses = [change.query_id for change in by_size if change.b < change.a]
    return gains[:number], losses[:number]


def picked(figures: Figures, number: int, seed: int) -> list[str]:
    """Returns random questions."""
    query_ids = sorted(questions_of(figures))
    count = min(number, len(query_ids))
    return [query_ids[i] for i in sorted(np.random.default_rng(seed).choice(len(query_ids), count, False))]


def example_values(
    metrics: Mapping[str, Any],
    part: SplitMeasures,
    query_ids: Sequence[str],
    systems: Iterable[str],
    figures: Figures,
    folders: tuple[Path, Path],
    number: int,
    highlighter: Highlighter,
) -> list[dict[str, Any]]:
    """Returns the template's values for questions: their texts, and the first `number` answers of each system.

    `folders`: the collection and the evaluation. The answers' texts are in pieces (see `pieces`).
    """
    from pipeline.data.collection import read_queries

    if not query_ids:
        return []
    collection, evaluate = folders
    systems = [*systems]
    texts = {query.query_id: query.text for query in read_queries(collection, [part.split])}
    filters = [("split", "=", part.split), ("system", "in", systems), ("query_id", "in", [*query_ids])]
    answers = read_table(evaluate / "answers.parquet", filters=[*filters, ("rank", "<=", number)]).to_pylist()
    passages = read_passages(collection, {answer["passage_id"] for answer in answers})
    shown: dict[str, set[str]] = {query_id: set() for query_id in query_ids}
    for answer in answers:
        shown[answer["query_id"]].add(answer["passage_id"])
    matchers = highlighter(
        [(texts[q], [text for i in sorted(shown[q]) for text in passages[i].values()]) for q in query_ids]
    )
    return [
        {
            "question": texts[query_id],
            "systems": [
                {
                    "label": metrics["labels"][system],
                    "where": where(part, figures[system][query_id]),
                    "answers": [
                        {
                            **{name: pieces(text, matcher) for name, text in passages[a["passage_id"]].items()},
                            "relevant": is_relevant(metrics, part, a),
                        }
                        for a in answers
                        if a["query_id"] == query_id and a["system"] == system
                    ],
                }
                for system in systems
            ],
        }
        for query_id, matcher in zip(query_ids, matchers, strict=True)
    ]


def pieces(text: str, matcher: Matcher) -> list[tuple[str, bool]]:
    """Returns the text in pieces, each with whether it is a word of the question."""
    edges = [0, *(edge for span in matcher.spans(text) for edge in span), len(text)]
    parts = ((text[start:end], n % 2 == 1) for n, (start, end) in enumerate(pairwise(edges)))
    return [(part, marked) for part, marked in parts if part]


def is_relevant(metrics: Mapping[str, Any], part: SplitMeasures, answer: Mapping[str, Any]) -> bool:
    """Whether a passage is judged relevant, or contains an answer."""
    if part.kind == "answers":
        return bool(answer.get("holds_answer"))
    return (answer["relevance"] or 0) >= metrics["config"]["relevance"]


def where(part: SplitMeasures, figure: float) -> str:
    """Returns a text about the rank of the first good passage."""
    if part.kind == "answers":
        return WITHIN.get(round(figure), "no answer in the first 100")
    rank = first_rank(figure)
    return f"first relevant at rank {rank}" if rank else "nothing relevant in the first 100"


def first_rank(reciprocal: float) -> int | None:
    """Returns the rank of the first relevant passage; None below rank 100."""
    return round(1 / reciprocal) if reciprocal > 0 else None


def read_passages(collection: Path, passage_ids: set[str]) -> dict[str, dict[str, str]]:
    """Returns {passage_id: {title, text}}, with texts cut for the page."""
    if not passage_ids:
        return {}
    columns = ["passage_id", "title", "text"]
    filters = [("passage_id", "in", sorted(passage_ids))]
    rows = read_table(collection / "passages.parquet", columns=columns, filters=filters).to_pylist()
    return {row["passage_id"]: {"title": row["title"], "text": shortened(row["text"])} for row in rows}


def shortened(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[:CHARACTERS].rsplit(" ", 1)[0] + " …"
