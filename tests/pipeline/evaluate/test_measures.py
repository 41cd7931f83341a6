"""Measures compared with figures calculated by hand, and with published ones."""

import gzip
from math import log2
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data import runs
from pipeline.evaluate.measures import MEASURES, as_ranks, measure

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "msmarco_pieces"


def test_measures_by_hand():
    qrels = {"a": {"x": 1, "y": 3}, "b": {"z": 1}, "c": {"w": 1}}
    lists = {"a": ["n0", "x", "n1", "y"], "b": [f"n{i}" for i in range(15)] + ["z"]}
    run = {q: {p: -rank for rank, p in enumerate(passages, 1)} for q, passages in lists.items()}
    values = dict(zip(MEASURES, measure(run, list(qrels), qrels, 1).T, strict=True))
    ideal = 3 / log2(2) + 1 / log2(3)
    assert values["RR@10"] == pytest.approx([1 / 2, 0, 0])
    assert values["RR@100"] == pytest.approx([1 / 2, 1 / 16, 0])
    assert values["nDCG@10"] == pytest.approx([(1 / log2(3) + 3 / log2(5)) / ideal, 0, 0])
    assert values["R@20"] == pytest.approx([1, 1, 0])
    assert values["AP"] == pytest.approx([(1 / 2 + 2 / 4) / 2, 1 / 16, 0])
    assert values["Success@5"] == pytest.approx([1, 0, 0])
    assert values["Success@20"] == pytest.approx([1, 1, 0])
    strict = dict(zip(MEASURES, measure(run, list(qrels), qrels, 2).T, strict=True))
    assert strict["RR@10"] == pytest.approx([1 / 4, 0, 0])
    assert strict["R@20"] == pytest.approx([1, 0, 0])
    assert strict["nDCG@10"] == pytest.approx(values["nDCG@10"])


def test_ties_are_broken_by_passage_order_in_every_provider():
    query_ids, passage_ids = pa.array(["q"]), pa.array(["z", "a", "m"])
    run = runs.ranked(np.zeros(3, int), np.array([2, 1, 0]), np.ones(3))
    for relevant, rank in (("z", 1), ("a", 2), ("m", 3)):
        [row] = measure(as_ranks(run, query_ids, passage_ids), ["q"], {"q": {relevant: 1}}, 1)
        values = dict(zip(MEASURES, row, strict=True))
        assert values["RR@10"] == pytest.approx(1 / rank)  # the provider msmarco
        assert values["AP"] == pytest.approx(1 / rank)  # the provider pytrec_eval


@pytest.mark.data
@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not there")
def test_a_published_run_gets_its_published_figures():
    """BM25 on the judged queries of DL 2019: figures of ir-measures 0.4.3 to four digits, relevant from grade 2."""
    qrels: dict[str, dict[str, int]] = {}
    for line in (DATA / "2019qrels-pass.txt").read_text().splitlines():
        query_id, _, passage_id, grade = line.split()
        qrels.setdefault(query_id, {})[passage_id] = int(grade)
    rows = []
    with gzip.open(DATA / "bm25.dl19-judged.run.gz", "rt") as file:
        for line in file:
            query_id, _, passage_id, _, score, _ = line.split()
            rows.append((query_id, passage_id, float(score)))
    number = {q: n for n, q in enumerate(qrels)}
    question = np.array([number[q] for q, _, _ in rows])
    run = runs.ranked(question, np.arange(len(rows)), np.array([score for _, _, score in rows]))  # ties: file's order
    ranks = as_ranks(run, pa.array(list(qrels)), pa.array([p for _, p, _ in rows]))
    grades = dict(zip(MEASURES, measure(ranks, list(qrels), qrels, 2).mean(0), strict=True))
    assert grades["nDCG@10"] == pytest.approx(0.4795, abs=5e-5)
    assert grades["RR@100"] == pytest.approx(0.6416, abs=5e-5)
    assert grades["R@1000"] == pytest.approx(0.7553, abs=5e-5)
    assert grades["AP"] == pytest.approx(0.2864, abs=5e-5)
