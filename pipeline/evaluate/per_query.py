"""Tables by question: its measures, and its first passages."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.data.documents import Documents
from pipeline.data.parquet import write_parquet
from pipeline.data.qrels import Qrels
from pipeline.data.runs import Run
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.questions import SplitQuestions


def measure_rows(
    split: str,
    system: str,
    query_ids: Sequence[str],
    measured: Mapping[str, Sequence[float]],
    hits: Mapping[str, Sequence[float]],
) -> pa.Table:
    """Returns one row per question; null if it has no relevant passage (MEASURES) or no answers (HITS).

    `measured` and `hits`: {question: its figures in the order of MEASURES, of HITS}.
    """
    same = {"split": [split] * len(query_ids), "query_id": [*query_ids], "system": [system] * len(query_ids)}
    columns = {
        name: pa.array([figures[q][m] if q in figures else None for q in query_ids], pa.float64())
        for names, figures in ((MEASURES, measured), (HITS, hits))
        for m, name in enumerate(names)
    }
    return pa.table({**same, **columns})


def answer_rows(
    split: str,
    system: str,
    run: Run,
    questions: SplitQuestions,
    passage_ids: pa.Array,
    documents: Documents,
    hits: Qrels | None,
    depth: int,
) -> pa.Table:
    """Returns the first `depth` passages of each question, with their judgements (or null) and whether they hold an
    answer (null if the question has none). `hits`: {question: {passage that holds an answer: 1}}; None: the system's
    passages are not known, only their documents."""
    top = run.rows(run.rank_R <= depth)
    query_R = questions.query_ids.take(pa.array(top.question_R)).to_pylist()
    passage_R = passage_ids.take(pa.array(top.passage_R)).to_pylist()
    rows = [*zip(query_R, passage_R, strict=True)]
    judged = documents.ids.take(pa.array(documents.of_P[top.passage_R])).to_pylist()
    grades = [questions.qrels.get(q, {}).get(p) for q, p in zip(query_R, judged, strict=True)]
    holding = [None if hits is None or q not in questions.answers else p in hits.get(q, {}) for q, p in rows]
    return pa.table(
        {
            "split": pa.array([split] * len(query_R), pa.string()),
            "query_id": pa.array(query_R, pa.string()),
            "system": pa.array([system] * len(query_R), pa.string()),
            "rank": top.rank_R,
            "passage_id": pa.array(passage_R, pa.string()),
            "score": top.score_R,
            "relevance": pa.array(grades, pa.int32()),
            "holds_answer": pa.array(holding, pa.bool_()),
        }
    )


def write_per_query(out: Path, tables: Mapping[str, Sequence[pa.Table]]) -> None:
    """Writes the artifact's tables by name; skips empty ones."""
    for name, parts in tables.items():
        if parts:
            write_parquet(pa.concat_tables(parts), out / f"{name}.parquet", compression="zstd")
