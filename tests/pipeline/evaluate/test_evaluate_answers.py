"""The stage on questions with answers: hits, their judgements, fusions chosen by them, splits without qrels."""

import io
import json
from collections import Counter
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from machines import make_machine
from rich.console import Console

from pipeline.data import runs
from pipeline.data.collection import schemas, write_table
from pipeline.evaluate import answer_qrels
from pipeline.evaluate.evaluate import answering_system, evaluate
from pipeline.evaluate.tables.short_tables import notes, tables
from pipeline.runtime.work import Work, silent

CONFIG = EVALUATE.model_copy(update={"fusion_weights": [0.25, 0.75], "permutations": 100, "seed": 3, "nb_recall": []})
TEXTS = ["Paris is a capital.", "Berlin, too.", "Rome was not built in a day.", "Oslo", "Comparison", "U.S. cities"]
QUESTIONS = {
    "d0": ("dev", ["paris"]),
    "d1": ("dev", ["Oslo", "Bergen"]),
    "t0": ("test", ["Paris"]),
    "t1": ("test", ["rome was"]),
    "t2": ("test", ["U.S."]),
    "t3": ("test", []),
    "t4": ("test", [" ", "\u200b"]),  # no tokens: the same as no answers
}
RUNS = {
    "bm25": {"d0": "40", "d1": "13", "t0": "40", "t1": "210", "t3": "5"},
    "stage2": {"d0": "04", "d1": "310", "t0": "0", "t1": "111"[:1] + "02", "t2": "43210", "t4": "0"},
}


def make_collection(folder: Path, judged: list[tuple[str, str, str, int]] | None = None) -> Path:
    """Titles and texts differ: `Paris` is in the title of p1 and in the text of p0."""
    folder.mkdir()
    passages = [(f"p{n}", f"p{n}", "Paris" if n == 1 else "", text) for n, text in enumerate(TEXTS)]
    write_table(folder / "passages.parquet", schemas()["passages"], passages)
    queries = [(q, split, f"question {q}", answers) for q, (split, answers) in QUESTIONS.items()]
    write_table(folder / "queries.parquet", schemas()["queries"], queries)
    write_table(folder / "qrels.parquet", schemas()["qrels"], judged or [])
    return folder


def make_run(folder: Path, lists: dict[str, str]) -> Path:
    """lists: {question: passage numbers, best first}."""
    folder.mkdir()
    (folder / "bm25.json").write_text('{"scores": "bm25"}')
    with runs.writer(folder) as write:
        for query_id, passages in lists.items():
            ids = [f"p{n}" for n in passages]
            write(QUESTIONS[query_id][0], [query_id] * len(ids), ids, np.arange(len(ids), 0, -1.0))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {name: make_run(tmp_path / name, lists) for name, lists in RUNS.items()}


def evaluated(collection: Path, out: Path, config=CONFIG, progress=silent, **folders: Path):
    out.mkdir()
    figures = evaluate(config, collection, work=Work(out, out.parent, make_machine(), progress), **folders)
    return figures, json.loads((out / "metrics.json").read_text())


def test_hits_are_passages_whose_text_holds_an_answer(tmp_path, folders):
    figures, metrics = evaluated(make_collection(tmp_path / "c"), tmp_path / "out", **folders)
    answers = metrics["splits"]["test"]["answers"]
    assert answers["questions"] == 3  # t3 and t4 have none
    assert answers["questions_without_results"] == {"bm25": 1, "stage2": 0, "fusion": 0}
    # t0: both; t1: both; t2: no run has p5. Titles are not searched, and `Comparison` does not hold `Paris`.
    assert figures["test/bm25/hits@5"] == figures["test/stage2/hits@20"] == pytest.approx(2 / 3, abs=1e-6)
    assert [*answers["systems"]["bm25"]] == ["hits@5", "hits@20", "hits@100"]
    assert [*answers["differences"]] == ["fusion - bm25", "fusion - stage2"]
    difference = answers["differences"]["fusion - bm25"]["hits@5"]
    assert difference == {"mean": 0, "low": 0, "high": 0, "p": 1, "p_holm": 1, "wins": 0, "ties": 3, "losses": 0}


def test_a_split_without_judgements_is_accepted(tmp_path, folders):
    figures, metrics = evaluated(make_collection(tmp_path / "c"), tmp_path / "out", **folders)
    test = metrics["splits"]["test"]
    assert (test["questions"], test["systems"], test["differences"]) == (0, {}, {})
    assert test["questions_without_relevant"] == 5
    assert not any(name.endswith("RR@10") for name in figures)
    console = Console(width=100, file=io.StringIO())
    for table in tables(metrics):
        console.print(table)
    text = console.file.getvalue()
    assert "test: 3 questions with answers" in text
    assert "hits@20" in text
    assert "MRR@10" not in text
    lines = [line for line in notes(metrics) if "without results" in line]
    assert lines == ["BM25: questions with answers, but without results, each counted as zero: 1"]


def test_judgements_and_answers_are_reported_together(tmp_path, folders):
    judged = [("test", "t0", "p4", 1), ("test", "t3", "p5", 1)]
    figures, metrics = evaluated(make_collection(tmp_path / "c", judged), tmp_path / "out", **folders)
    test = metrics["splits"]["test"]
    assert (test["questions"], test["answers"]["questions"]) == (2, 3)
    assert figures["test/bm25/RR@10"] == 1.0  # p4 of t0, p5 of t3: passages that hold an answer count only in hits
    assert figures["test/bm25/hits@5"] == pytest.approx(2 / 3, abs=1e-6)
    rows = {(r["query_id"], r["system"]): r for r in pq.read_table(tmp_path / "out" / "per_query.parquet").to_pylist()}
    assert (rows["t0", "bm25"]["RR@10"], rows["t0", "bm25"]["hits@5"]) == (1.0, 1.0)
    assert (rows["t1", "bm25"]["RR@10"], rows["t1", "bm25"]["hits@5"]) == (None, 1.0)
    assert (rows["t3", "bm25"]["RR@10"], rows["t3", "bm25"]["hits@5"]) == (1.0, None)
    assert rows["t2", "bm25"]["hits@100"] == 0.0
    assert ("t4", "bm25") not in rows
    stored = pq.read_table(tmp_path / "out" / "answers.parquet").to_pylist()
    first = {(r["query_id"], r["system"], r["rank"]): (r["relevance"], r["holds_answer"]) for r in stored}
    assert first["t0", "bm25", 1] == (1, False)
    assert first["t0", "bm25", 2] == (None, True)
    assert first["t3", "bm25", 1] == (1, None)


def test_the_judgements_of_answers_give_another_tool_the_same_figures(tmp_path, folders):
    _, metrics = evaluated(make_collection(tmp_path / "c"), tmp_path / "out", **folders)
    table = pq.read_table(tmp_path / "out" / "answer_qrels.parquet")
    assert table.schema.equals(schemas()["qrels"])
    rows = {(r["query_id"], r["passage_id"]): r["relevance"] for r in table.to_pylist() if r["split"] == "test"}
    assert rows["t0", "p0"] == rows["t1", "p2"] == 1
    assert rows["t0", "p4"] == rows["t1", "p1"] == 0
    assert {q for q, _ in rows} == {"t0", "t1", "t2"}
    qrels = [ir_measures.Qrel(q, p, relevance) for (q, p), relevance in rows.items()]
    run = ir_measures.read_trec_run(str(folders["stage2"] / "run.trec"))
    hits = {f"hits@{k}": ir_measures.parse_measure(f"Success@{k}") for k in (5, 20, 100)}
    figures = ir_measures.calc_aggregate(hits.values(), qrels, run)
    for name, measure in hits.items():
        mean = metrics["splits"]["test"]["answers"]["systems"]["stage2"][name]["mean"]
        assert figures[measure] == pytest.approx(mean, abs=1e-6)


def test_a_fusion_is_chosen_by_answers_if_dev_has_no_judgements(tmp_path):
    """60 dev questions: BM25 has the answer first, stage 2 has it last; so BM25 gets the larger weight."""
    collection = make_collection(tmp_path / "c")
    names = [f"d{n}" for n in range(60)]
    queries = [(q, "dev", "question", ["Paris"]) for q in names]
    write_table(collection / "queries.parquet", schemas()["queries"], queries)
    folders = {}
    for name, passages in {"bm25": "0432", "stage2": "4320"}.items():
        folders[name] = tmp_path / name
        folders[name].mkdir()
        (folders[name] / "bm25.json").write_text('{"scores": "bm25"}')
        with runs.writer(folders[name]) as write:
            for query_id in names:
                write("dev", [query_id] * 4, [f"p{n}" for n in passages], np.arange(4, 0, -1.0))
    config = CONFIG.model_copy(update={"permutations": 10_000})
    _, metrics = evaluated(collection, tmp_path / "out", config, **folders)
    assert metrics["fusion"] == {
        "method": "reciprocal_rank",
        "weight": 0.75,
        "chosen_on_dev": True,
        "why": "better than the default on 60 dev questions, p < .001",
    }
    # If dev has judgements, they choose the fusion.
    write_table(collection / "qrels.parquet", schemas()["qrels"], [("dev", q, "p3", 1) for q in names])
    _, metrics = evaluated(collection, tmp_path / "judged", config, **folders)
    assert metrics["fusion"]["weight"] == 0.25


def test_the_winner_is_found_by_answers_if_dev_has_no_judgements():
    """hits@20 of 60 questions: the dense run is better than the fusion, with certainty or without."""
    for p, winner in ((0.01, "dense"), (0.06, "fusion")):
        differences = {
            "fusion - bm25": {"hits@20": {"mean": 0.1, "p_holm": 0.01}},
            "fusion - stage1": {"hits@20": {"mean": -0.1, "p_holm": p}},
        }
        answers = {"questions": 60, "systems": {"fusion": {}}, "differences": differences}
        dev = {"questions": 0, "systems": {}, "differences": {}, "answers": answers}
        assert answering_system({"dev": dev}, "stage1") == winner


def test_answers_are_searched_in_other_systems_run_files_too(tmp_path, folders):
    file = tmp_path / "gar.trec"
    file.write_text("t2 Q0 p5 1 2.0 x\nt0 Q0 p4 1 2.0 x\nt3 Q0 p0 1 2.0 x\nnobody Q0 p0 1 2.0 x\n")
    config = CONFIG.model_copy(update={"systems": {"GAR": file}})
    figures, metrics = evaluated(make_collection(tmp_path / "c"), tmp_path / "out", config, **folders)
    assert figures["test/GAR/hits@5"] == pytest.approx(1 / 3, abs=1e-6)  # t2 by p5; t0 by nothing; t1 is missing
    answers = metrics["splits"]["test"]["answers"]
    assert answers["questions_without_results"]["GAR"] == 1
    assert metrics["systems"]["GAR"]["rows_of_other_questions"] == 2
    assert answers["differences"]["stage2 - GAR"]["hits@5"]["wins"] == 2
    assert answers["differences"]["stage2 - GAR"]["hits@5"]["losses"] == 1
    assert "GAR" not in metrics["splits"]["dev"]["answers"]["systems"]
    assert any(line.startswith("GAR: rows of other questions, left out: 2 of 4 (first: ") for line in notes(metrics))


def test_each_passage_is_cut_into_tokens_once(tmp_path, folders, monkeypatch):
    tokenized: list[str] = []
    normalised = answer_qrels.normalised
    monkeypatch.setattr(answer_qrels, "normalised", lambda text: (tokenized.append(text), normalised(text))[1])
    monkeypatch.setattr(answer_qrels, "PASSAGES", 2)  # in several batches
    reports: list[tuple[int, int | None]] = []

    def progress(done, total, unit, numbers=None):
        if unit == "passages":
            reports.append((done, total))

    evaluated(make_collection(tmp_path / "c"), tmp_path / "out", progress=progress, **folders)
    dev, test = {"p4", "p0", "p1", "p3"}, {"p4", "p0", "p2", "p1", "p3"}  # p5 is listed for questions without answers
    texts = sorted(TEXTS[int(p[1])] for p in [*dev, *test])
    answers = [answer for _, accepted in QUESTIONS.values() for answer in accepted]
    assert sorted((Counter(tokenized) - Counter(answers)).elements()) == texts
    assert reports == [(4, 4), (5, 5)]


def test_only_the_first_hundred_ranks_are_checked(tmp_path):
    passages = 130
    (tmp_path / "c").mkdir()
    rows = [(f"p{n}", f"p{n}", "", "right" if n in (99, 100) else "wrong") for n in range(passages)]
    write_table(tmp_path / "c" / "passages.parquet", schemas()["passages"], rows)
    queries = [("q0", "test", "", ["right"]), ("q1", "test", "", ["right"])]
    write_table(tmp_path / "c" / "queries.parquet", schemas()["queries"], queries)
    write_table(tmp_path / "c" / "qrels.parquet", schemas()["qrels"], [])
    # An answer is at rank 100 of both lists.
    order = {"q0": range(passages), "q1": [n for n in range(passages) if n != 99]}
    folder = tmp_path / "stage1"
    folder.mkdir()
    with runs.writer(folder) as write:
        for query_id, numbers in order.items():
            ids = [f"p{n}" for n in numbers]
            write("test", [query_id] * len(ids), ids, np.arange(len(ids), 0, -1.0))
    figures, _ = evaluated(tmp_path / "c", tmp_path / "out", bm25=None, stage1=folder)
    assert (figures["test/stage1/hits@20"], figures["test/stage1/hits@100"]) == (0.0, 1.0)
    assert len(pq.read_table(tmp_path / "out" / "answer_qrels.parquet")) == 200


def test_without_answers_there_is_no_table_of_them(tmp_path, folders):
    collection = make_collection(tmp_path / "c", [("test", "t0", "p0", 1)])
    queries = [(q, split, "", []) for q, (split, _) in QUESTIONS.items()]
    write_table(collection / "queries.parquet", schemas()["queries"], queries)
    _, metrics = evaluated(collection, tmp_path / "out", **folders)
    assert "answers" not in metrics["splits"]["test"]
    assert not (tmp_path / "out" / "answer_qrels.parquet").exists()
    assert set(pq.read_table(tmp_path / "out" / "per_query.parquet")["hits@5"].to_pylist()) == {None}


def test_equal_inputs_give_equal_bytes(tmp_path, folders):
    collection = make_collection(tmp_path / "c", [("test", "t0", "p4", 1)])
    for out in ("one", "two"):
        evaluated(collection, tmp_path / out, **folders)
    for name in ("metrics.json", "per_query.parquet", "answers.parquet", "answer_qrels.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
