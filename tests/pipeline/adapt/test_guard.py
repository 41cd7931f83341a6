"""The guard: whether an adapted model agrees better with the fusion."""

import numpy as np
import pytest

from pipeline.adapt.guard import GuardResult, compare, mapped_run
from pipeline.data.runs import Run
from pipeline.dense.exact import exact_top_k
from pipeline.dense.search_runs import as_run


def guarded(queries, vectors, taught, map_EE) -> GuardResult:
    start = as_run(*exact_top_k(queries, vectors, 11, 1.0))
    mapped = mapped_run(queries, vectors, map_EE, True, 11)
    return compare(as_run(*taught), start, mapped, np.full(len(queries), -1), seed=1)


def test_the_guard_accepts_a_map_to_the_fusion_and_refuses_a_harmful_one(queries, vectors, taught, hidden_EE) -> None:
    better = guarded(queries, vectors, taught, hidden_EE)
    assert better.after == pytest.approx(1)
    assert better.after > better.before
    assert better.accepts(0.01)
    worse = guarded(queries, vectors, taught, np.linalg.inv(hidden_EE).astype(np.float32))
    assert worse.after < worse.before
    assert worse.p < 0.01
    assert not worse.accepts(0.01)
    same = guarded(queries, vectors, taught, np.eye(len(hidden_EE), dtype=np.float32))
    assert same.after == same.before
    assert same.p == 1
    assert not same.accepts(0.01)


def test_the_guard_leaves_out_the_source(queries, vectors, taught, hidden_EE) -> None:
    fused = as_run(*taught)
    start = as_run(*exact_top_k(queries, vectors, 11, 1.0))
    source = start.passage_R[start.rank_R == 1]
    kept = fused.passage_R != source[fused.question_R]
    without = Run(fused.question_R[kept], fused.passage_R[kept], fused.score_R[kept])
    found = compare(without, start, mapped_run(queries, vectors, hidden_EE, True, 11), source, seed=1)
    assert found.after == pytest.approx(1)


def test_mapped_lists_are_those_of_all_passages_at_once(queries, vectors, hidden_EE, monkeypatch) -> None:
    whole = mapped_run(queries, vectors, hidden_EE, True, 11)
    monkeypatch.setattr("pipeline.adapt.guard.BLOCK", 7)
    parts = mapped_run(queries, vectors, hidden_EE, True, 11)
    assert (whole.passage_R == parts.passage_R).all()
    assert (whole.score_R == parts.score_R).all()
