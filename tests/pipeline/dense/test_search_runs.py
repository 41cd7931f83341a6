"""Searches whose lists are runs, in memory."""

from pathlib import Path

import numpy as np
from searched import build, write_collection

from pipeline.data.passages import in_parquet
from pipeline.data.runs import Run
from pipeline.dense.search_runs import as_run, bm25_run, first, without
from pipeline.runtime.work import silent


def test_equal_bm25_scores_are_in_passage_order_beyond_the_depth(tmp_path: Path) -> None:
    texts = ["red ledger", "a harbour", "red harbour", "ledger ledger", "red orchard", "red glacier"]
    rows = [(f"p{n}", f"d{n}", "", text) for n, text in enumerate(texts)]
    collection = write_collection(tmp_path / "collection", rows, [("q", "test", "red")], [("test", "q", "p0", 1)])
    build(collection, tmp_path / "bm25")
    queries = ["red", "no such word as zzz", "ledger"]
    every, few = (bm25_run(tmp_path / "bm25", queries, depth, in_parquet(collection), silent) for depth in (6, 2))
    assert every.question_R.tolist() == [0, 0, 0, 0, 2, 2]
    assert every.passage_R.tolist() == [0, 2, 4, 5, 3, 0]
    assert few.passage_R.tolist() == [0, 2, 3, 0]
    assert len({*every.score_R[:4]}) == 1


def test_lists_are_cut_and_lose_each_querys_own_passage() -> None:
    run = as_run(np.array([[4, 1, 7], [2, 4, 0]]), np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]))
    assert pairs(first(run, 2)) == [(0, 4), (0, 1), (1, 2), (1, 4)]
    assert pairs(without(run, np.array([1, 9]))) == [(0, 4), (0, 7), (1, 2), (1, 4), (1, 0)]


def pairs(run: Run) -> list[tuple[int, int]]:
    """(query, passage) of each row."""
    return list(zip(run.question_R.tolist(), run.passage_R.tolist(), strict=True))
