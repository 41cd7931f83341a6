"""Documents that are cut into passages are measured by their best passages."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from hypothesis import given
from hypothesis import strategies as st
from long_documents import write_documents
from machines import make_machine

from pipeline.data.documents import Documents, best_rows
from pipeline.data.runs import Run, ranked, writer
from pipeline.errors import InputError
from pipeline.evaluate.config import EvaluateConfig
from pipeline.evaluate.document_ranking import fewest_documents, fuse_documents, numbered, of_documents
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.fusion.choice import Judged, reciprocal_ranks_of
from pipeline.evaluate.fusion.fuse import Choice, fuse
from pipeline.evaluate.tables.short_tables import notes
from pipeline.runtime.work import Work, silent

DOCUMENTS = {"a": ["a0", "a1 answer", "a2"], "b": ["b0", "b1"], "c": ["c0"], "d": ["d0", "d1"]}
JUDGED = [("dev", "q", "b", 1), ("test", "t", "d", 2), ("test", "t", "c", 1)]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    queries = [("q", "dev", "who?"), ("t", "test", "when?")]
    return write_documents(tmp_path / "collection", DOCUMENTS, queries, JUDGED)


def documents_of(sizes: list[int]) -> Documents:
    first_D = np.cumsum([0, *sizes])
    ids = pa.array([f"d{n}" for n in range(len(sizes))])
    return Documents(ids, first_D, np.repeat(np.arange(len(sizes)), sizes))


def write_run(folder: Path, lists: dict[str, list[str]]) -> Path:
    """lists: {question: passages, best first}; scores descend by one."""
    folder.mkdir()
    (folder / "bm25.json").write_text(json.dumps({"scores": "bm25"}))
    with writer(folder, cut=True) as write:
        for split, query_id in (("dev", "q"), ("test", "t")):
            names = lists[query_id]
            write(split, [query_id] * len(names), names, np.arange(len(names), 0, -1.0))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {
        "bm25": write_run(tmp_path / "bm25", {"q": ["a#0", "a#1", "b#1", "b#0"], "t": ["a#2", "d#1", "a#0", "d#0"]}),
        "stage1": write_run(tmp_path / "stage1", {"q": ["b#0", "a#1", "c#0"], "t": ["c#0", "c#0", "a#1"][1:]}),
    }


def evaluated(collection: Path, out: Path, folders: dict[str, Path], config: EvaluateConfig = EVALUATE) -> dict:
    out.mkdir()
    evaluate(config, collection, work=Work(out, out.parent, make_machine(), silent), **folders)
    return json.loads((out / "metrics.json").read_text())


def test_a_document_has_the_rank_of_its_best_passage(collection: Path, folders, tmp_path: Path) -> None:
    metrics = evaluated(collection, tmp_path / "out", folders)
    dev, test = (metrics["splits"][split]["systems"] for split in ("dev", "test"))
    assert dev["bm25"]["RR@10"]["mean"] == 0.5  # a, b: the passages a#0, a#1, b#1, b#0
    assert (dev["stage1"]["RR@10"]["mean"], test["stage1"]["RR@10"]["mean"]) == (1, 1)
    assert test["bm25"]["R@20"]["mean"] == 0.5  # d of d and c


def test_the_figures_are_those_of_the_written_run_file(collection: Path, folders, tmp_path: Path) -> None:
    from pipeline.evaluate.run_files import evaluate_files

    metrics = evaluated(collection, tmp_path / "out", folders)
    qrels = tmp_path / "qrels.txt"
    qrels.write_text(
        "".join(f"{query} 0 {document} {grade}\n" for split, query, document, grade in JUDGED if split == "test")
    )
    for name in folders:
        path = folders[name] / "run.trec"
        found = evaluate_files([path], qrels, 1, "t", 100, 0).systems[str(path)]
        measured = metrics["splits"]["test"]["systems"][name]
        assert {m: f["mean"] for m, f in found.items()} == {m: f["mean"] for m, f in measured.items()}


def test_a_run_file_ranks_documents_and_the_table_passages(folders) -> None:
    lines = [line.split() for line in (folders["bm25"] / "run.trec").read_text().splitlines()]
    assert [(q, name, int(rank), float(score)) for q, _, name, rank, score, _ in lines] == [
        ("q", "a", 1, 4.0),
        ("q", "b", 2, 2.0),
        ("t", "a", 1, 4.0),
        ("t", "d", 2, 3.0),
    ]
    assert pq.read_table(folders["bm25"] / "run.parquet")["passage_id"].to_pylist()[:3] == ["a#0", "a#1", "b#1"]


def test_the_report_gets_the_best_passages(collection: Path, folders, tmp_path: Path) -> None:
    evaluated(collection, tmp_path / "out", folders)
    rows = pq.read_table(tmp_path / "out" / "answers.parquet").to_pylist()
    shown = [(r["passage_id"], r["rank"], r["relevance"]) for r in rows if (r["system"], r["split"]) == ("bm25", "dev")]
    assert shown == [("a#0", 1, None), ("b#1", 2, 1)]


def test_the_fewest_documents_of_cut_lists_are_reported(collection: Path, folders, tmp_path: Path) -> None:
    metrics = evaluated(collection, tmp_path / "out", folders)
    part = metrics["splits"]["test"]
    assert part["fewest_documents"]["bm25"] == part["cut_at"]["bm25"] == 2
    assert "BM25: lists are cut by passages, and hold at least 2 documents" in notes(metrics)


def test_an_answer_in_the_best_passage_counts(tmp_path: Path, folders) -> None:
    collection = write_documents(tmp_path / "answered", DOCUMENTS, [("q", "dev", "?"), ("t", "test", "?")], JUDGED)
    table = pq.read_table(collection / "queries.parquet")
    answers = pa.array([["answer"], ["answer"]], pa.list_(pa.string()))
    pq.write_table(table.set_column(3, "answers", answers), collection / "queries.parquet")
    metrics = evaluated(collection, tmp_path / "out", folders)
    hits = metrics["splits"]["dev"]["answers"]["systems"]
    assert (hits["bm25"]["hits@5"]["mean"], hits["stage1"]["hits@5"]["mean"]) == (0, 1)  # a#0 and a#1


def test_other_systems_rank_documents(collection: Path, folders, tmp_path: Path) -> None:
    file = tmp_path / "other.tsv"
    file.write_text("q\tb\t1\nq\ta\t2\nt\tc\t1\nt\td\t2\n")
    changed = {"systems": {"other": file}, "fusions": [["stage1", "other"]], "fusion_weights": [0.5]}
    metrics = evaluated(collection, tmp_path / "out", folders, EVALUATE.model_copy(update=changed))
    test = metrics["splits"]["test"]["systems"]
    assert (test["other"]["RR@10"]["mean"], test["other"]["R@20"]["mean"]) == (1, 1)
    assert test["stage1 + other"]["R@20"]["mean"] == 1  # c of both, d of the other
    rows = pq.read_table(tmp_path / "out" / "answers.parquet").to_pylist()
    assert [r["passage_id"] for r in rows if (r["system"], r["split"]) == ("other", "test")] == ["c#0", "d#0"]


def test_other_systems_that_rank_passages_are_refused(collection: Path, folders, tmp_path: Path) -> None:
    file = tmp_path / "other.tsv"
    file.write_text("q\tb#0\t1\n")
    with pytest.raises(InputError, match="unknown passage id 'b#0'"):
        evaluated(collection, tmp_path / "out", folders, EVALUATE.model_copy(update={"systems": {"other": file}}))


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 5)), max_size=40)
SIZES = [3, 1, 4, 2, 2]


def run_of(rows: list[tuple[int, int, int]]) -> Run:
    unique = {(question, passage): score for question, passage, score in rows}
    columns = np.array([(q, p, s) for (q, p), s in unique.items()], np.int64).reshape(-1, 3).T
    return ranked(*columns)


@given(ROWS)
def test_the_best_score_of_each_document_in_order(rows: list[tuple[int, int, int]]) -> None:
    documents, run = documents_of(SIZES), run_of(rows)
    best: dict[tuple[int, int], float] = {}
    for question, passage, score in zip(run.question_R, run.passage_R, run.score_R, strict=True):
        key = int(question), int(documents.of_P[passage])
        best[key] = max(best.get(key, -1.0), float(score))
    found = numbered(of_documents(run, documents, 0), documents)
    pairs = list(zip(found.question_R.tolist(), found.passage_R.tolist(), strict=True))
    assert dict(zip(pairs, found.score_R.tolist(), strict=True)) == best
    assert pairs == sorted(best, key=lambda key: (key[0], -best[key], key[1]))


@given(ROWS, ROWS, st.integers(0, 4), st.sampled_from([0, 0.25, 1]))
def test_fusions_are_chosen_by_the_ranks_of_documents(first, second, relevant: int, share: float) -> None:
    documents, runs = documents_of(SIZES), [run_of(first), run_of(second)]
    pairs = np.arange(3), np.full(3, relevant)
    choices = [Choice("weighted_sum", weight) for weight in (0.2, 0.5, 0.8)]
    lists = [numbered(of_documents(run, documents, share), documents) for run in runs]
    measured_QC = reciprocal_ranks_of(lists, choices, 60, Judged(pairs, 3))
    for measured_Q, choice in zip(measured_QC.T, choices, strict=True):
        run = fuse_documents(runs, [documents.of_P[run.passage_R] for run in runs], share, choice, 60)
        total = sum(1 / run.rank_R[documents.of_P[run.passage_R] == relevant])
        assert measured_Q.sum() == pytest.approx(total)


@given(ROWS)
def test_the_best_three_passages_of_a_document_count(rows: list[tuple[int, int, int]]) -> None:
    documents, run = documents_of(SIZES), run_of(rows)
    scores = defaultdict[tuple[int, int], list[float]](list)
    for question, passage, score in zip(run.question_R, run.passage_R, run.score_R, strict=True):
        scores[int(question), int(documents.of_P[passage])].append(float(score))
    expected = {key: 0.75 * best[0] + 0.25 * np.mean(best[:3]) for key, best in scores.items()}
    found = of_documents(run, documents, 0.25)
    best = of_documents(run, documents, 0)
    assert {*zip(found.question_R, found.passage_R, strict=True)} == {
        *zip(best.question_R, best.passage_R, strict=True)
    }
    pairs = zip(found.question_R.tolist(), documents.of_P[found.passage_R].tolist(), strict=True)
    assert dict(zip(pairs, found.score_R.tolist(), strict=True)) == pytest.approx(expected)
    assert all(np.diff(found.score_R)[np.diff(found.question_R) == 0] <= 0)


def test_a_document_found_by_both_in_different_passages_is_first() -> None:
    """The fused list of passages has it third, after the first passage of each list."""
    documents = documents_of([2, 1, 1, 1])
    bm25, dense = run_of([(0, 2, 10), (0, 0, 9), (0, 4, 1)]), run_of([(0, 3, 10), (0, 1, 9), (0, 4, 1)])
    equal = Choice("z_score_sum", 0.5)
    passages = fuse([bm25, dense], equal)
    assert passages.passage_R.tolist() == [2, 3, 0, 1, 4]
    fused = fuse_documents([bm25, dense], [documents.of_P[run.passage_R] for run in (bm25, dense)], 0, equal)
    assert fused.passage_R.tolist() == [0, 2, 3, 4]

    def last(run: Run) -> np.ndarray:
        return run.passage_R != 0

    fused = fuse_documents([bm25, dense], [documents.of_P[run.passage_R] for run in (bm25, dense)], 0, equal, 60, last)
    assert fused.passage_R.tolist() == [1, 2, 3, 4]


def test_a_fusion_of_passages_that_are_documents_is_the_fusion() -> None:
    runs = [run_of([(0, 2, 3), (0, 1, 2), (1, 0, 1)]), run_of([(0, 1, 5), (1, 2, 4)])]
    choice = Choice("z_score_sum", 0.5)
    found = fuse_documents(runs, [run.passage_R for run in runs], 0.25, choice)
    expected = fuse(runs, choice)
    for name in ("question_R", "passage_R", "score_R"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_whole_documents_are_returned_as_they_are() -> None:
    run = run_of([(0, 1, 3), (0, 0, 3), (1, 2, 1)])
    documents = documents_of([1, 1, 1])
    assert of_documents(run, documents, 0) is run
    assert numbered(run, documents) is run


def test_a_list_that_ends_early_does_not_count_as_cut() -> None:
    documents = documents_of([2, 1, 1])
    lists = {"dense": run_of([(0, 0, 9), (0, 1, 8), (0, 2, 7), (1, 3, 5)])}
    runs = {name: of_documents(run, documents, 0) for name, run in lists.items()}
    assert fewest_documents(lists, runs, {"dense": 3}) == {"dense": 2}
    assert fewest_documents(lists, runs, {}) == {}


def test_no_row_at_all() -> None:
    assert best_rows(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []
