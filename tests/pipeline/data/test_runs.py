"""Runs: one order, one file format, and refusal of input that would give wrong figures."""

from itertools import pairwise
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data import runs
from pipeline.errors import InputError

QUERIES = pa.array(["q0", "q1"])
PASSAGES = pa.array(["c", "a", "b", "d"])  # passage order is not the ids' order


def write(folder: Path, rows: list[tuple[str, str, str, float]]) -> Path:
    """A run.parquet as another program might write it: unsorted, with all ranks 0."""
    split, query, passage, score = zip(*rows, strict=True)
    rank = np.zeros(len(rows), np.int32)
    columns = [pa.array(split), pa.array(query), pa.array(passage), rank, np.array(score)]
    pq.write_table(pa.table(columns, schema=runs.SCHEMA), folder / "run.parquet")
    return folder


def test_order_is_score_then_passage_order():
    question = np.array([1, 0, 0, 0])
    passage = np.array([0, 3, 1, 2])
    score = np.array([9.0, 1.0, 1.0, 2.0])
    assert runs.row_order(question, passage, score).tolist() == [3, 2, 1, 0]


def test_ranks_restart_at_each_question():
    assert runs.ranks(np.array([4, 4, 4, 2, 9, 9])).tolist() == [1, 2, 3, 1, 1, 2]
    assert runs.ranks(np.zeros(0, int)).tolist() == []


def test_some_rows_are_a_run():
    run = runs.ranked(np.array([0, 0, 1]), np.array([5, 6, 7]), np.array([3.0, 2.0, 1.0]))
    for chosen in (run.rank_R == 1, np.array([0, 2])):
        assert run.rows(chosen).passage_R.tolist() == [5, 7]
    assert run.rows(slice(1, 3)).score_R.tolist() == [2.0, 1.0]
    assert run.rows(slice(1, 3)).rank_R.tolist() == [1, 1]


def test_a_written_run_is_read_back(tmp_path):
    with runs.writer(tmp_path) as write:
        write("train", ["t0"], ["a"], np.array([3.0]))
        write("dev", ["q0", "q0", "q1"], ["c", "a", "d"], np.array([2.0, 1.5, 7.0]))
        write("test", [], [], np.array([]))
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.schema.equals(runs.SCHEMA)
    assert table["rank"].to_pylist() == [1, 1, 2, 1]
    run = runs.read_run(tmp_path, "dev", QUERIES, PASSAGES)
    assert run is not None
    assert run.question_R.tolist() == [0, 0, 1]
    assert run.passage_R.tolist() == [0, 1, 3]
    assert run.score_R.tolist() == [2.0, 1.5, 7.0]
    assert runs.read_run(tmp_path, "test", QUERIES, PASSAGES) is None
    assert "t0" not in (tmp_path / "run.trec").read_text()


def test_writer_refuses_ascending_and_nan_scores(tmp_path):
    with runs.writer(tmp_path) as write:
        with pytest.raises(ValueError, match="descend"):
            write("dev", ["q0", "q0"], ["a", "b"], np.array([1.0, 2.0]))
        with pytest.raises(ValueError, match="numbers"):
            write("dev", ["q0"], ["a"], np.array([np.nan]))
        with pytest.raises(ValueError, match="finite"):
            write("dev", ["q0"] * 3, ["a", "b", "c"], np.full(3, -np.inf))


def test_equal_scores_keep_their_ranks_in_the_trec_file(tmp_path):
    with runs.writer(tmp_path) as write:
        write("test", ["q0"] * 4, ["c", "a", "b", "d"], np.array([2.0, 2.0, 2.0, np.nextafter(np.float32(2), 0)]))
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    scores = [np.float32(line[4]) for line in lines]
    assert [line[2] for line in lines] == ["c", "a", "b", "d"]
    assert all(later < earlier for earlier, later in pairwise(scores))
    # trec_eval, which breaks ties by id, now finds "c" first too.
    ranked = ir_measures.read_trec_run(str(tmp_path / "run.trec"))
    values = list(ir_measures.iter_calc([ir_measures.RR], {"q0": {"c": 1}}, ranked))
    assert [metric.value for metric in values] == [1.0]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_are_distinguished_by_the_smallest_steps(kind):
    rng = np.random.default_rng(0)
    tiny = np.nextafter(kind(0), kind(1))
    values = np.array([3, 1, np.nextafter(kind(1), kind(0)), tiny, 0, -0.0, -tiny, -2, -1e38], kind)
    lists = [-np.sort(-rng.choice(values, size)) for size in rng.integers(1, 60, 300)]
    question_R = np.repeat(np.arange(len(lists)), [*map(len, lists)])
    expected: list[float] = []
    for scores in lists:
        for rank, score in enumerate(scores):
            tied = rank > 0 and score >= expected[-1]
            expected.append(np.nextafter(kind(expected[-1]), kind(-np.inf)) if tied else score)
    scores_R = runs.distinct_scores(question_R, np.concatenate(lists).astype(np.float64), kind)
    assert scores_R.tolist() == [float(score) for score in expected]
    assert runs.distinct_scores(np.zeros(0, np.int32), np.zeros(0), kind).tolist() == []


CLOSE = {
    "near 1.7e9": [1699999999.0 - n for n in range(50)],
    "12th digit": [12.5 - n * 1e-11 for n in range(50)],
    "negative": [-7.0 - n * 1e-13 for n in range(50)],
    "denormal": [5e-324 * n for n in range(50, 0, -1)],
    "about zero": [1e-323, 5e-324, 0.0, -0.0, -5e-324, -1e-50],
    "greatest": [1e38 - n * 1e23 for n in range(50)],
    "least": [-1e38] * 50,
    "equal": [0.5] * 50,
    "far apart": [1e38, 1.0, 1e-38, -1e-38, -1e38],
}


@pytest.mark.parametrize("scores", CLOSE.values(), ids=CLOSE)
def test_a_trec_file_has_the_same_order_for_32_and_64_bit_readers(scores, tmp_path):
    ids = [f"p{n:02}" for n in range(len(scores))]
    with runs.writer(tmp_path) as write:
        write("test", ["q"] * len(ids), ids, np.array(scores))
    assert pq.read_table(tmp_path / "run.parquet")["score"].to_pylist() == scores
    lines = [line.split() for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert [line[2] for line in lines] == ids
    for kind in (np.float32, np.float64):
        assert all(kind(later[4]) < kind(earlier[4]) for earlier, later in pairwise(lines))
    distinct = np.array(scores, np.float32)
    if (distinct[1:] < distinct[:-1]).all():  # then no digit is lost
        assert [float(line[4]) for line in lines] == scores


def test_scores_of_older_runs_are_read(tmp_path):
    schema = runs.SCHEMA.set(4, pa.field("score", pa.float32()))
    rows = {"split": ["dev"] * 2, "query_id": ["q0"] * 2, "passage_id": ["a", "b"], "rank": [1, 2], "score": [0.5, 0.1]}
    pq.write_table(pa.table(rows, schema=schema), tmp_path / "run.parquet")
    run = runs.read_run(tmp_path, "dev", QUERIES, PASSAGES)
    assert run is not None
    assert run.score_R.tolist() == [0.5, float(np.float32(0.1))]


def test_white_space_in_ids_does_not_break_the_trec_file(tmp_path):
    with runs.writer(tmp_path) as write:
        write("test", ["a question"], [" p\t1"], np.array([1.0]))
    documents = list(ir_measures.read_trec_run(str(tmp_path / "run.trec")))
    assert documents == [ir_measures.ScoredDoc("a%20question", "%20p%091", 1.0)]


def test_reading_sorts_by_score_then_passage_order(tmp_path):
    rows = [("test", "q1", "b", 1.0), ("test", "q0", "a", 5.0), ("test", "q0", "c", 5.0), ("test", "q0", "d", 6.0)]
    run = runs.read_run(write(tmp_path, rows), "test", QUERIES, PASSAGES)
    assert run is not None
    assert run.passage_R.tolist() == [3, 0, 1, 2]
    assert run.rank_R.tolist() == [1, 2, 3, 1]


def test_questions_that_are_not_requested_are_left_out(tmp_path):
    run = runs.read_run(
        write(tmp_path, [("test", "other", "a", 1.0), ("test", "q1", "a", 1.0)]), "test", QUERIES, PASSAGES
    )
    assert run is not None
    assert run.question_R.tolist() == [1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("test", "q1", "a", float("nan"))], "query q1: score is NaN"),
        ([("test", "q0", "x", 1.0)], "passage x is not in the collection"),
        ([("test", "q1", "a", 1.0), ("test", "q1", "a", 2.0)], "query q1 lists a passage twice"),
    ],
)
def test_reading_refuses_invalid_rows(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        runs.read_run(write(tmp_path, rows), "test", QUERIES, PASSAGES)
