"""What stands beside the means: each question's measures, and its first answers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.measures import MEASURES
from pipeline.runs import Run


def measure_rows(split: str, system: str, query_ids: list[str], values_QM: np.ndarray) -> pa.Table:
    """`values_QM` as [questions, len(MEASURES)]."""
    same = {"split": [split] * len(query_ids), "query_id": query_ids, "system": [system] * len(query_ids)}
    return pa.table({**same, **{name: values_QM[:, m].astype(np.float32) for m, name in enumerate(MEASURES)}})


def answer_rows(
    split: str,
    system: str,
    run: Run,
    query_ids: pa.Array,
    passage_ids: pa.Array,
    qrels: Mapping[str, Mapping[str, int]],
    depth: int,
) -> pa.Table:
    """The first `depth` passages of each question, with their judgements (none: null)."""
    top_R = run.rank_R <= depth
    query_R = query_ids.take(pa.array(run.question_R[top_R])).to_pylist()
    passage_R = passage_ids.take(pa.array(run.passage_R[top_R])).to_pylist()
    grades = [qrels[q].get(p) for q, p in zip(query_R, passage_R, strict=True)]
    return pa.table(
        {
            "split": pa.array([split] * len(query_R), pa.string()),
            "query_id": pa.array(query_R, pa.string()),
            "system": pa.array([system] * len(query_R), pa.string()),
            "rank": run.rank_R[top_R],
            "passage_id": pa.array(passage_R, pa.string()),
            "score": run.score_R[top_R].astype(np.float32),
            "relevance": pa.array(grades, pa.int32()),
        }
    )


def write(out: Path, per_query: list[pa.Table], answers: list[pa.Table]) -> None:
    pq.write_table(pa.concat_tables(per_query), out / "per_query.parquet", compression="zstd")
    pq.write_table(pa.concat_tables(answers), out / "answers.parquet", compression="zstd")
