"""What is shown of the passages that a question found."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.serving.engine import Engine
from flows.serving.excerpts import excerpt, highlights, words_of
from flows.serving.rankings import Failed, Ranking
from pipeline.data.collection import unknown_question
from pipeline.data.metadata import EXACT, Value
from pipeline.data.stored import read_table

if TYPE_CHECKING:
    from flows.serving.question import Opened, Question


@dataclass(frozen=True)
class Answer:
    """A document by its best passage."""

    rank: int
    score: float
    doc_id: str
    passage_id: str
    title: str
    text: str
    excerpt: str
    highlights: list[tuple[int, int]]
    """(start, end) of the question's words in the excerpt, in characters (Unicode code points)."""
    question: str
    """A question of the collection that the passage is judged relevant to; empty where there is none."""
    metadata: dict[str, Any]


Answers = list[Answer] | Failed
"""What went wrong stands in the place of the answers to one question."""


def described(run: "Opened", questions: "Sequence[Question]", found: Sequence[Ranking | Failed]) -> list[Answers]:
    """What is shown of each question's passages."""
    rows = [row for ranking in found if isinstance(ranking, Ranking) for row in ranking.rows_K.tolist()]
    passages = run.passages.read(rows)
    known = run.known([passage["passage_id"] for passage in passages])
    shown = zip(passages, run.passages.metadata(rows), strict=True)
    answers: list[Answers] = []
    for question, ranking in zip(questions, found, strict=True):
        if isinstance(ranking, Failed):
            answers.append(ranking)
            continue
        words = words_of(question.text)
        mine: list[Answer] = []
        for (passage, further), score in zip(islice(shown, len(ranking.rows_K)), ranking.scores_K, strict=True):
            part = excerpt(passage["text"], words)
            mine.append(
                Answer(
                    rank=len(mine) + 1,
                    score=float(score),
                    **passage,
                    excerpt=part,
                    highlights=highlights(part, words),
                    question=known.get(passage["passage_id"], ""),
                    metadata=further,
                )
            )
        answers.append(mine)
    return answers


def questions_of(collection: Path, passage_ids: Sequence[str] | None = None) -> dict[str, str]:
    """{passage id: the first question of the collection that it is judged relevant to}; None: of all passages.

    Raises InputError for damaged tables.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pc.field("relevance") > 0
    if passage_ids is not None:
        wanted &= pc.field("passage_id").isin(pa.array(passage_ids, pa.string()))
    qrels = read_table(collection / "qrels.parquet", columns=["query_id", "passage_id"], filters=wanted)
    pairs = {row["passage_id"]: row["query_id"] for row in reversed(qrels.to_pylist())}
    asked = pc.field("query_id").isin(pa.array([*{*pairs.values()}], pa.string()))
    queries = read_table(collection / "queries.parquet", columns=["query_id", "text"], filters=asked)
    texts = {row["query_id"]: row["text"] for row in queries.to_pylist()}
    for query_id in pairs.values():
        if query_id not in texts:
            raise unknown_question(collection / "qrels.parquet", query_id)
    return {passage_id: texts[query_id] for passage_id, query_id in pairs.items()}


def as_json(
    engine: Engine, question: "Question", answers: Sequence[Answer], milliseconds: float, notices: Sequence[str]
) -> dict[str, Any]:
    """What the command line and the server print. `notices`: see `asking.notices`."""
    return {
        "recipe": engine.run.name,
        "by": question.by,
        "not_tuned": engine.not_tuned(question.by),
        "question": question.text,
        "k": question.k,
        "where": question.where,
        "milliseconds": round(milliseconds, 1),
        "notices": [*notices],
        "answers": [
            {
                **vars(answer),
                "metadata": {name: for_any_reader(value) for name, value in answer.metadata.items()},
            }
            for answer in answers
        ],
    }


def for_any_reader(value: Value) -> Value:
    """As JSON for programs that read its numbers as float64, as JavaScript does: an integer beyond these is text."""
    return str(value) if isinstance(value, int) and abs(value) > EXACT else value
