"""One run file has one order and the same figures, however it is read: as a file, as the first stage, as a row of the
table, fused with another run, and as the TREC run that the program writes from it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from evaluating import EVALUATE
from machines import make_machine
from searched import CONFIG, build, write_collection
from writing import put

from pipeline.data import runs
from pipeline.evaluate import systems
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.fusion.files import fuse_files, numbered_run
from pipeline.evaluate.fusion.fuse import union
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.run_files import evaluate_files
from pipeline.runtime.work import Work, silent

PASSAGES = [f"p{n:02}" for n in range(60)]
LISTED = [f"p{n:02}" for n in range(50, 20, -1)]  # neither in passage order nor in the order of ids
RELEVANT = ("p50", "p44", "p31")
SCORES = {
    "near 1.7e9": [1699999999 - n for n in range(30)],
    "12th digit": [12.5 - n * 1e-11 for n in range(30)],
    "negative": [-0.25 - n * 1e-12 for n in range(30)],
    "denormal": [1e-310 * (30 - n) for n in range(30)],
    "greatest": [1e38 - n * 1e24 for n in range(30)],
    "minus zero": [1e-60, 0.0, *[-0.0] * 27, -1e-60],
    "equal": [7.0] * 30,
    "some equal": [5 - n // 7 for n in range(30)],
}


def figures_of_file(run: Path, qrels: Path) -> dict[str, float]:
    result = evaluate_files([run], qrels, 1, "randomisation", samples=100, seed=1)
    return {measure: result.systems[str(run)][measure]["mean"] for measure in MEASURES}


def figures_of_stage(collection: Path, out: Path, name: str, bm25: Path | None, **systems: Path) -> dict[str, float]:
    out.mkdir()
    config = EVALUATE.model_copy(update={"systems": systems})
    evaluate(config, collection, bm25, Work(out, out.parent, make_machine(), silent))
    figures = json.loads((out / "metrics.json").read_text())["splits"]["test"]["systems"][name]
    return {measure: figures[measure]["mean"] for measure in MEASURES}


def lines_of(scores: Sequence[float]) -> list[str]:
    return [f"{q} Q0 {p} 9 {s!r} x" for q in ("q0", "q1") for p, s in zip(LISTED, scores, strict=True)]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    passages = [(p, p, "", f"text of {p}") for p in PASSAGES]
    queries = [("q0", "test", "one"), ("q1", "test", "two")]
    judged = [("test", "q0", RELEVANT[0], 1), ("test", "q1", RELEVANT[1], 1), ("test", "q1", RELEVANT[2], 2)]
    return write_collection(tmp_path / "collection", passages, queries, judged)


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_a_run_has_the_same_order_however_it_is_read(scores, collection, tmp_path):
    run, qrels = put(tmp_path, "run.trec", *lines_of(scores)), collection / "qrels.parquet"
    expected = figures_of_file(run, qrels)
    assert expected["RR@10"] == pytest.approx((1 + 1 / 7) / 2, abs=1e-6)  # in the order of the file
    assert figures_of_stage(collection, tmp_path / "row", "MINE", None, MINE=run) == expected
    first = tmp_path / "bm25"
    build(collection, first, CONFIG.model_copy(update={"run": run, "depth": 1000}))
    assert figures_of_stage(collection, tmp_path / "first", "bm25", first) == expected
    assert figures_of_file(first / "run.trec", qrels) == expected
    (tmp_path / "copy.trec").write_bytes(run.read_bytes())
    for method in ("reciprocal_rank", "weighted_sum", "z_score_sum"):
        out = tmp_path / f"{method}.trec"
        settings = {"qrels": None, "weight": None, "relevance": 1, "depth": 1000}
        fuse_files([run, tmp_path / "copy.trec"], out, method=method, **settings)
        assert figures_of_file(out, qrels) == expected


@pytest.mark.parametrize("scores", [SCORES["equal"], SCORES["some equal"], [0.3, *[0.1] * 28, -0.0]])
def test_scores_that_are_equal_in_a_file_are_equal_in_a_fusion(scores, collection, tmp_path):
    run, passage_ids = put(tmp_path, "run.trec", *lines_of(scores)), pa.array(PASSAGES)
    build(collection, tmp_path / "bm25", CONFIG.model_copy(update={"run": run, "depth": 1000}))
    query_ids = pa.array(["q0", "q1"])
    numbers: dict[str, int] = {p: n for n, p in enumerate(PASSAGES)}
    read_runs = {
        "fuse": numbered_run(run, {}, numbers),
        "evaluate.systems": systems.read_systems({"MINE": run}, {"test": query_ids}, passage_ids, silent)[0]["test"][
            "MINE"
        ],
        "bm25.run": runs.read_run(tmp_path / "bm25", "test", query_ids, passage_ids),
    }
    for read_run in read_runs.values():
        assert read_run is not None
        assert [PASSAGES[n] for n in read_run.passage_R] == [*LISTED, *LISTED]  # in the order of the file
        assert read_run.score_R.tolist() == [*scores, *scores]
        for method in ("weighted_sum", "z_score_sum"):
            assert len({*union([read_run], method, 60).part_NR[0].tolist()}) == len({*scores})


def test_a_list_of_equal_scores_changes_no_order(collection, tmp_path):
    """It adds the same value to each of its passages, whatever their order."""
    ranked = put(tmp_path, "own.trec", *lines_of(range(30, 0, -1)))
    equal = put(tmp_path, "same.trec", *(f"{q} Q0 {p} 1 1 x" for q in ("q0", "q1") for p in reversed(LISTED)))
    qrels = put(tmp_path, "qrels", "q0 0 p50 1", "q1 0 p44 1")
    expected = figures_of_file(ranked, qrels)
    config = EVALUATE.model_copy(update={"systems": {"A": ranked, "B": equal}, "fusions": [["A", "B"], ["B", "A"]]})
    for method in ("weighted_sum", "z_score_sum"):
        out = tmp_path / f"{method}.trec"
        fuse_files([ranked, equal], out, qrels=None, weight=0.1, relevance=1, depth=1000, method=method)
        assert figures_of_file(out, qrels) == expected
        folder = tmp_path / method
        folder.mkdir()
        stage = config.model_copy(update={"fusion_methods": [method], "fusion_weights": [0.5]})
        evaluate(stage, collection, None, Work(folder, tmp_path, make_machine(), silent))
        figures = json.loads((folder / "metrics.json").read_text())["splits"]["test"]["systems"]
        assert figures["A + B"] == figures["B + A"] == figures["A"]


@pytest.mark.parametrize(
    ("lacking", "recall", "rank"),
    [
        ([("q0", "gone", 1)], 0.75, 1),  # half of the relevant passages of q0
        ([("q0", "gone", 1), ("q2", "lost", 1)], 0.5, 2 / 3),  # all relevant passages of q2
        ([("q0", "gone", 0), ("q2", "lost", 2), ("q1", "lost", 2)], (1 + 2 / 3 + 0) / 3, 2 / 3),
        ([("q2", "lost", 0)], 1, 1),  # nothing relevant: left out
    ],
)
def test_relevant_passages_that_the_collection_lacks_count_however_a_run_is_read(lacking, recall, rank, tmp_path):
    passages = [(p, p, "", f"text of {p}") for p in PASSAGES]
    queries = [(f"q{n}", "test", f"question {n}") for n in range(3)]
    judged = [("q0", "p50", 1), ("q1", "p50", 1), ("q1", "p49", 1), *lacking]
    collection = write_collection(tmp_path / "collection", passages, queries, [("test", *row) for row in judged])
    run = put(tmp_path, "run.trec", *lines_of(SCORES["12th digit"]), "q2 Q0 p00 1 1 x")
    qrels = put(tmp_path, "qrels", *(f"{q} 0 {p} {grade}" for q, p, grade in judged))
    expected = figures_of_file(run, qrels)
    assert (expected["R@100"], expected["RR@10"]) == (pytest.approx(recall, abs=1e-6), pytest.approx(rank, abs=1e-6))
    assert figures_of_file(run, collection / "qrels.parquet") == expected
    assert figures_of_stage(collection, tmp_path / "row", "MINE", None, MINE=run) == expected
    build(collection, tmp_path / "bm25", CONFIG.model_copy(update={"run": run, "depth": 1000}))
    assert figures_of_stage(collection, tmp_path / "first", "bm25", tmp_path / "bm25") == expected
    assert figures_of_file(tmp_path / "bm25" / "run.trec", qrels) == expected


def test_rows_of_a_question_need_not_be_together_or_in_order(collection, tmp_path):
    """Ties keep the order of the file, even if the rows of a question are not adjacent."""
    rows = lines_of([3, 3, 3, *range(2, -25, -1)])
    spread = [row for first in (*range(1, 30), 0) for row in (rows[first], rows[30 + first])]
    run, qrels = put(tmp_path, "run.trec", *spread), collection / "qrels.parquet"
    expected = figures_of_file(run, qrels)
    assert expected["RR@10"] == pytest.approx((1 / 3 + 1 / 7) / 2, abs=1e-6)
    assert figures_of_stage(collection, tmp_path / "row", "MINE", None, MINE=run) == expected
