"""Reciprocal ranks from arrays, compared with sorting and with ir-measures."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data.runs import ranked
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.evaluate.reciprocal_rank import reciprocal_ranks, run_reciprocal_ranks


def test_reciprocal_ranks_equal_sorting():
    random = np.random.default_rng(0)
    for _ in range(20):
        question = np.sort(random.integers(0, 12, 300))
        passage = random.permutation(300)
        score = random.integers(0, 6, 300).astype(float)  # many ties
        relevant = random.random(300) < 0.05
        order = np.lexsort((passage, -score, question))
        expected = np.zeros(13)
        for q in range(13):  # question 12 has no rows
            hits = relevant[order][question[order] == q]
            first = np.flatnonzero(hits[:10])
            expected[q] = 1 / (first[0] + 1) if len(first) else 0
        assert reciprocal_ranks(question, passage, score, relevant, 13).tolist() == pytest.approx(expected.tolist())


def test_a_run_has_the_values_of_ir_measures():
    random = np.random.default_rng(1)
    question = np.sort(random.integers(0, 12, 300))
    run = ranked(question, random.permutation(300), random.integers(0, 6, 300).astype(float))
    judged = np.arange(14).repeat(3), random.integers(0, 300, 42)  # questions 12 and 13 have no list
    query_ids, passage_ids = [f"q{n}" for n in range(14)], [f"p{n}" for n in range(300)]
    qrels = {query_id: {passage_ids[p]: 1 for p in judged[1][judged[0] == n]} for n, query_id in enumerate(query_ids)}
    values_QM = measure(as_ranks(run, pa.array(query_ids), pa.array(passage_ids)), query_ids, qrels, 1)
    expected_Q = values_QM[:, MEASURES.index("RR@10")]
    assert expected_Q.sum() > 0
    assert run_reciprocal_ranks(run, judged, 14).tolist() == expected_Q.tolist()
