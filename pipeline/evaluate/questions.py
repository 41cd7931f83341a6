"""The questions of a split that can be measured: by qrels, by answers, or by both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.collection import read_qrels, read_queries, read_query_ids

if TYPE_CHECKING:
    import pyarrow

    from pipeline.data.runs import Run


@dataclass(frozen=True)
class SplitQuestions:
    """Questions of one split."""

    query_ids: "pyarrow.Array"
    """Questions with a relevant passage or answers, in the collection's order. Runs are read with these."""
    qrels: Mapping[str, Mapping[str, int]]
    """{question: {passage: grade}} of questions with a relevant passage, which may be missing in the collection."""
    answers: Mapping[str, Sequence[str]]
    """{question: its answers, from `answer_qrels.normalised`} of questions with an answer that has a token."""
    without_relevant: int
    """Questions of the split without a relevant passage."""


def read_split_questions(collection: Path, split: str, relevance: int) -> SplitQuestions:
    """Returns the questions of a split. `relevance`: the smallest relevant judgement."""
    import pyarrow as pa

    from pipeline.evaluate.answer_qrels import normalised

    queries = read_queries(collection, [split])
    _, qrels, without = relevant_questions(collection, split, relevance, [q.query_id for q in queries])
    answers = {q.query_id: [a for answer in q.answers if (a := normalised(answer)).strip()] for q in queries}
    answers = {query_id: texts for query_id, texts in answers.items() if texts}
    measured = [q.query_id for q in queries if q.query_id in qrels or q.query_id in answers]
    return SplitQuestions(pa.array(measured, pa.string()), qrels, answers, without)


def relevant_questions(
    collection: Path, split: str, relevance: int, query_ids: Sequence[str] | None = None
) -> tuple["pyarrow.Array", dict[str, dict[str, int]], int]:
    """Returns ids and qrels of a split's questions with a relevant passage, and the number of those without.

    `query_ids`: of all the split's questions, if the caller has them already.
    """
    import pyarrow as pa

    every = read_query_ids(collection, [split]) if query_ids is None else query_ids
    qrels = read_qrels(collection, [split], every)
    relevant = {q: qrels[q] for q in every if max(qrels.get(q, {}).values(), default=0) >= relevance}
    return pa.array(list(relevant), pa.string()), relevant, len(every) - len(relevant)


def select_questions(run: "Run", query_ids: "pyarrow.Array", chosen: "pyarrow.Array") -> "Run":
    """Returns the run's rows of the questions in `chosen`, numbered by it. The run was read with `query_ids`.

    Both lists have the same order.
    """
    import numpy as np
    import pyarrow.compute as pc

    from pipeline.data.runs import Run

    if query_ids.equals(chosen):
        return run
    number_Q = pc.fill_null(pc.index_in(query_ids, value_set=chosen), -1).to_numpy().astype(np.int64)
    kept = run.rows(number_Q[run.question_R] >= 0)
    return Run(number_Q[kept.question_R], kept.passage_R, kept.score_R)
