"""What is shown of the passages that a question finds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.serving.engine import Engine
from flows.serving.excerpts import excerpt
from flows.serving.rankings import Failure, Mask, Ranking
from pipeline.bm25.highlights import Request
from pipeline.data.arrow import text_array
from pipeline.data.collection import ROWS, unknown_question
from pipeline.data.documents import judged_id
from pipeline.data.metadata import EXACT, Value
from pipeline.data.stored import read_batches
from pipeline.errors import InputError

if TYPE_CHECKING:
    from flows.serving.question import Question, Session


@dataclass(frozen=True)
class Answer:
    """A document, represented by its best passage."""

    rank: int
    score: float
    doc_id: str
    passage_id: str
    title: str
    text: str
    excerpt: str
    highlights: list[tuple[int, int]]
    """(start, end) of the excerpt's words with a term of the question, in characters (Unicode code points)."""
    question: str
    """A question of the collection to which the passage is relevant; empty if there is none."""
    metadata: dict[str, Any]
    almost_equal: list[str] = field(default_factory=list)
    """Ids of the first NAMED passages that almost equal this one and satisfy the question's condition."""
    almost_equal_count: int = 0
    """The number of all of them."""
    reranked: bool = False
    """Whether the score is that of a cross-encoder."""


NAMED = 20
"""Almost equal passages of an answer that are named: a text may have a hundred thousand copies."""
Answers = list[Answer] | Failure
"""The answers to one question, or its error."""


def describe_answers(
    session: "Session",
    questions: "Sequence[Question]",
    rankings: Sequence[Ranking | Failure],
    masks: Sequence[Mask | InputError],
    scored: Sequence[Collection[int]],
) -> list[Answers]:
    """The answers of each question, from its ranked passages.

    `masks`: what each question's condition allows. `scored`: the rows that a cross-encoder has scored.
    """
    rows = [row for ranking in rankings if isinstance(ranking, Ranking) for row in ranking.rows_K.tolist()]
    passages = session.passages.read(rows)
    judged = judged_id(session.collection)
    known_questions = session.known_questions([judged(passage["passage_id"]) for passage in passages])
    matchers = iter(session.highlighter(_shown_texts(questions, rankings, passages)))
    near = almost_equal(session, rankings, masks)
    described = zip(passages, session.passages.metadata(rows), near, strict=True)
    all_answers: list[Answers] = []
    for ranking, scored_rows in zip(rankings, scored, strict=True):
        if isinstance(ranking, Failure):
            all_answers.append(ranking)
            continue
        matcher = next(matchers)
        answers: list[Answer] = []
        own = islice(described, len(ranking.rows_K))
        for (passage, metadata, (near_ids, near_count)), row, score in zip(own, *ranking, strict=True):
            part = excerpt(passage["text"], matcher)
            answers.append(
                Answer(
                    rank=len(answers) + 1,
                    score=float(score),
                    **passage,
                    excerpt=part,
                    highlights=matcher.spans(part),
                    question=known_questions.get(judged(passage["passage_id"]), ""),
                    metadata=metadata,
                    almost_equal=near_ids,
                    almost_equal_count=near_count,
                    reranked=row in scored_rows,
                )
            )
        all_answers.append(answers)
    return all_answers


def almost_equal(
    session: "Session", rankings: Sequence[Ranking | Failure], masks: Sequence[Mask | InputError]
) -> list[tuple[list[str], int]]:
    """(ids of the first NAMED, number) of the other passages that almost equal each ranked one and that its question's
    condition allows.
    """
    others: list[np.ndarray] = []
    for ranking, mask in zip(rankings, masks, strict=True):
        if isinstance(ranking, Ranking):
            groups = map(session.near_duplicates.others, ranking.rows_K.tolist())
            others += [rows if mask is None or isinstance(mask, InputError) else rows[mask[rows]] for rows in groups]
    named = [rows[:NAMED] for rows in others]
    ids = iter(session.passages.ids(np.concatenate(named)) if any(map(len, named)) else ())
    return [([*islice(ids, len(first))], len(rows)) for first, rows in zip(named, others, strict=True)]


def _shown_texts(
    questions: "Sequence[Question]", rankings: Sequence[Ranking | Failure], passages: Sequence[dict[str, str]]
) -> list[Request]:
    """The texts for each ranked question; `passages`: those of all rankings, in order."""
    texts = (passage["text"] for passage in passages)
    return [
        (question.text, [*islice(texts, len(ranking.rows_K))])
        for question, ranking in zip(questions, rankings, strict=True)
        if isinstance(ranking, Ranking)
    ]


def questions_by_passage(collection: Path, passage_ids: Sequence[str] | None = None) -> dict[str, str]:
    """{passage id: the collection's first question to which the passage is relevant}. None: of all passages. Where
    documents are cut, their ids stand for passage ids.

    Raises InputError for damaged tables.
    """
    qrels = _rows(collection / "qrels.parquet", ["passage_id", "query_id", "relevance"], passage_ids)
    query_of = {row["passage_id"]: row["query_id"] for row in reversed(qrels) if row["relevance"] > 0}
    queries = _rows(collection / "queries.parquet", ["query_id", "text"], [*{*query_of.values()}])
    texts = {row["query_id"]: row["text"] for row in queries}
    for query_id in query_of.values():
        if query_id not in texts:
            raise unknown_question(collection / "qrels.parquet", query_id)
    return {passage_id: texts[query_id] for passage_id, query_id in query_of.items()}


def _rows(path: Path, columns: list[str], ids: Sequence[str] | None) -> list[dict[str, Any]]:
    """The rows of a table whose first column is one of `ids` (None: all), in order, with these columns."""
    import pyarrow.compute as pc

    wanted = None if ids is None else text_array(ids)
    rows: list[dict[str, Any]] = []
    for batch in read_batches(path, columns, ROWS):
        rows += (batch if wanted is None else batch.filter(pc.is_in(batch.column(columns[0]), wanted))).to_pylist()
    return rows


def answers_as_json(
    engine: Engine, question: "Question", answers: Sequence[Answer], milliseconds: float, notices: Sequence[str]
) -> dict[str, Any]:
    """What the command line and the server print. `notices`: see `ask.question_notices`."""
    return {
        "recipe": engine.run.name,
        "by": question.by,
        "fusion": engine.fusion(question.by),
        "question": question.text,
        "k": question.k,
        "where": question.where,
        "rerank": question.rerank,
        "milliseconds": round(milliseconds, 1),
        "notices": [*notices],
        "answers": [
            {
                **vars(answer),
                "metadata": {name: portable_value(value) for name, value in answer.metadata.items()},
            }
            for answer in answers
        ],
    }


def portable_value(value: Value) -> Value:
    """For JSON readers with float64 numbers, such as JavaScript: an integer that float64 cannot hold becomes text."""
    return str(value) if isinstance(value, int) and abs(value) > EXACT else value
