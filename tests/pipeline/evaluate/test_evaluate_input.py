"""Bad input is refused in one line, incomplete input is counted, and figures equal those of ir-measures."""

import json
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from machines import make_machine
from searched import write_collection
from writing import put

from pipeline.data import runs
from pipeline.errors import InputError
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.tables.short_tables import notes
from pipeline.runtime.work import Work, silent

CONFIG = EVALUATE.model_copy(
    update={"fusion_weights": [0.5], "test": "t", "permutations": 100, "nb_recall": [3], "answers": 1}
)
QUESTIONS = [f"q{n}" for n in range(4)]
JUDGED = {"q0": {"p0": 1, "p3": 1}, "q1": {"p1": 2}, "q2": {"p2": 1}, "q3": {"p3": 0}}


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    passages = [(f"p{n}", f"p{n}", "", f"text {n}") for n in range(120)]
    queries = [(q, "test", f"question {q}") for q in QUESTIONS]
    judged = [("test", q, p, grade) for q, grades in JUDGED.items() for p, grade in grades.items()]
    return write_collection(tmp_path / "collection", passages, queries, judged)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    folder = tmp_path / "stage1"
    folder.mkdir()
    with runs.writer(folder) as write:
        for query_id in QUESTIONS:
            write("test", [query_id] * 4, ["p3", "p1", "p0", "p2"], np.arange(4, 0, -1.0))
    return folder


def measured(collection: Path, dense: Path, out: Path, *lines: str) -> dict:
    out.mkdir()
    config = CONFIG.model_copy(update={"systems": {"other": put(out.parent, "other.trec", *lines)}})
    evaluate(config, collection, None, Work(out, out.parent, make_machine(), silent), stage1=dense)
    return json.loads((out / "metrics.json").read_text())


def expected(lines: list[str], measure: str) -> float:
    """The figure of ir-measures over the three questions with a relevant passage."""
    rows = [line.split() for line in lines]
    run = [ir_measures.ScoredDoc(q, p, float(score)) for q, _, p, _, score, _ in rows]
    qrels = [ir_measures.Qrel(q, p, g) for q, grades in JUDGED.items() if q != "q3" for p, g in grades.items()]
    parsed = ir_measures.parse_measure(measure)
    return ir_measures.calc_aggregate([parsed], qrels, run)[parsed]


LINES = ["q0 Q0 p5 1 9.0 x", "q0 Q0 p0 2 8.5 x", "q1 Q0 p7 1 3.0 x", "q1 Q0 p8 2 2.0 x", "q1 Q0 p1 3 1.0 x"]


@pytest.mark.parametrize(
    ("more", "counts", "first"),
    [
        ([], {"rows_of_other_questions": 0}, ""),
        (["stranger Q0 p0 1 5.0 x", "q9 Q0 p1 1 4.0 x"], {"rows_of_other_questions": 2}, "stranger, q9"),
        (["q3 Q0 p3 1 5.0 x"], {"rows_of_other_questions": 1}, "q3"),  # judged, but nothing is relevant
        ([f"q2 Q0 p{n} {n} {-n}.5 x" for n in range(10, 120)] + ["q2 Q0 gone 99 -999 x"],
         {"rows_of_unknown_passages": 1}, "gone"),
    ],
)  # fmt: skip
def test_rows_left_out_are_counted_and_change_no_figure(collection, dense, tmp_path, more, counts, first):
    metrics = measured(collection, dense, tmp_path / "out", *LINES, *more)
    test = metrics["splits"]["test"]
    for measure in ("RR@10", "nDCG@10", "R@20", "AP", "Success@5"):
        assert test["systems"]["other"][measure]["mean"] == pytest.approx(expected(LINES, measure), abs=1e-6)
    assert test["questions"] == 3
    assert test["questions_without_relevant"] == 1
    missing = 0 if any(line.startswith("q2 ") for line in more) else 1
    assert test["questions_without_results"] == {"stage1": 0, "other": missing}
    assert metrics["systems"]["other"].items() >= {"rows": len(LINES) + len(more), **counts}.items()
    lines = notes(metrics)
    assert ("other: questions without results, each counted as zero: 1" in lines) == bool(missing)
    assert "questions left out because they have no relevant passage: 1" in lines
    assert [line for line in lines if "rows of" in line] == [
        f"other: {key.replace('_', ' ')}, left out: {count} of {len(LINES) + len(more)} (first: {first})"
        for key, count in counts.items()
        if count
    ]


def test_a_missing_question_counts_as_zero_in_the_difference_too(collection, dense, tmp_path):
    test = measured(collection, dense, tmp_path / "out", *LINES)["splits"]["test"]
    difference = test["differences"]["stage1 - other"]["RR@10"]
    # stage 1: q0 1 (p3 is relevant), q1 1/2, q2 1/4; other: 1/2, 1/3, 0
    assert difference["mean"] == pytest.approx((1 / 2 + 1 / 6 + 1 / 4) / 3, abs=1e-6)
    assert (difference["wins"], difference["ties"], difference["losses"]) == (3, 0, 0)
    d = np.array([1 / 2, 1 / 6, 1 / 4])
    t = d.mean() / (d.std(ddof=1) / np.sqrt(3))
    assert difference["p"] == pytest.approx(1 - t / np.sqrt(2 + t * t), abs=1e-6)  # t with 2 degrees of freedom
    assert difference["p_holm"] == difference["p"]  # one pair


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LINES, "q0 Q0 p5 3 1.0 x"], "other.trec:6: this passage appears twice for its question"),
        (["q0 Q0 p5 1 9.0 x", "q1 Q0 p5 1 9.0 x", "q0 Q0 p5 2 9.0 x"], "other.trec:3: this passage appears twice"),
        ([*LINES, "q2 Q0 p5 1 nan x"], "other.trec:6: score 'nan' is not a number"),
        ([*LINES, "q2 Q0 p5 1 inf x"], "other.trec:6: score 'inf' is not a number"),
        ([*LINES, "q2 Q0 p5 1 1_0 x"], "other.trec:6: score '1_0' is not written as a plain number"),
        (["nobody Q0 p5 1 1.0 x"], "other.trec: none of its questions is one"),
        (["q0 Q0 gone 1 1.0 x"], "other.trec:1: unknown passage id 'gone'"),
    ],
)
def test_run_files_that_would_give_wrong_figures_are_refused(collection, dense, tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        measured(collection, dense, tmp_path / "out", *lines)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("score", pa.array([np.nan] * 16, pa.float32()), "query q0: score is NaN"),
        ("passage_id", pa.array(["p3"] * 16), "query q0 lists a passage twice"),
        ("passage_id", pa.array([f"x{n}" for n in range(16)]), "passage x0 is not in the collection"),
    ],
)
def test_damaged_runs_of_the_flow_are_refused(collection, dense, tmp_path, column, value, message):
    table = pq.read_table(dense / "run.parquet")
    pq.write_table(table.set_column(table.column_names.index(column), column, value), dense / "run.parquet")
    with pytest.raises(InputError, match=message):
        measured(collection, dense, tmp_path / "out", *LINES)


def test_a_run_without_rows_of_known_questions_is_zero(collection, dense, tmp_path):
    table = pq.read_table(dense / "run.parquet")
    other = table.set_column(1, "query_id", pa.array(["stranger"] * len(table)))
    pq.write_table(other, dense / "run.parquet")
    test = measured(collection, dense, tmp_path / "out", *LINES)["splits"]["test"]
    assert test["systems"]["stage1"]["RR@10"]["mean"] == 0
    assert test["questions_without_results"]["stage1"] == 3
    assert test["neighbours"] == []
