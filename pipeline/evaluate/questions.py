"""The questions of a split that can be measured: by judgements, by answers, or by both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.collection import read_qrels, read_queries, read_query_ids

if TYPE_CHECKING:
    import pyarrow

    from pipeline.data.runs import Run


@dataclass(frozen=True)
class Asked:
    """Questions of one split."""

    query_ids: "pyarrow.Array"
    """Those with a relevant passage or with answers, in the collection's order. Runs are read with these."""
    qrels: Mapping[str, Mapping[str, int]]
    """{question: {passage: grade}} of those with a relevant passage, which the collection may lack."""
    answers: Mapping[str, Sequence[str]]
    """{question: its answers as `answer_hits.normalised` writes them} of those with an answer that has a token."""
    without_relevant: int
    """Questions of the split that have no relevant passage."""


def read_asked(collection: Path, split: str, relevance: int) -> Asked:
    """The questions of a split. `relevance`: the least judgement that is relevant."""
    import pyarrow as pa

    from pipeline.evaluate.answer_qrels import normalised

    queries = read_queries(collection, [split])
    _, qrels, without = judged(collection, split, relevance, [q.query_id for q in queries])
    answers = {q.query_id: [a for answer in q.answers if (a := normalised(answer)).strip()] for q in queries}
    answers = {query_id: found for query_id, found in answers.items() if found}
    measured = [q.query_id for q in queries if q.query_id in qrels or q.query_id in answers]
    return Asked(pa.array(measured, pa.string()), qrels, answers, without)


def judged(
    collection: Path, split: str, relevance: int, query_ids: Sequence[str] | None = None
) -> tuple["pyarrow.Array", dict[str, dict[str, int]], int]:
    """Questions of a split that have a relevant passage: their ids and qrels; and the number of those without.

    `query_ids`: of all its questions, where the caller has them already.
    """
    import pyarrow as pa

    asked = read_query_ids(collection, [split]) if query_ids is None else query_ids
    qrels = read_qrels(collection, [split], asked)
    found = {q: qrels[q] for q in asked if max(qrels.get(q, {}).values(), default=0) >= relevance}
    return pa.array(list(found), pa.string()), found, len(asked) - len(found)


def among(run: "Run", query_ids: "pyarrow.Array", chosen: "pyarrow.Array") -> "Run":
    """The rows of those questions of `query_ids`, with which the run was read, that stand in `chosen`, numbered by it.

    Both hold them in one order.
    """
    import numpy as np
    import pyarrow.compute as pc

    from pipeline.data.runs import Run

    if query_ids.equals(chosen):
        return run
    number_Q = pc.fill_null(pc.index_in(query_ids, value_set=chosen), -1).to_numpy().astype(np.int64)
    question_R = number_Q[run.question_R]
    kept_R = question_R >= 0
    return Run(question_R[kept_R], run.passage_R[kept_R], run.score_R[kept_R])
