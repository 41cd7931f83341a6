"""Measures that look deeper than the lists: when a message appears, and its text."""

import json
from pathlib import Path

import pytest
from evaluating import EVALUATE
from machines import make_machine
from searched import CONFIG, build, write_collection
from typer.testing import CliRunner
from writing import put

from flows.cli.main import app
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.shallow import cut_at, shallow
from pipeline.evaluate.tables.short_tables import all_notes, notes
from pipeline.runtime.work import Work, silent

EXPECTED = {
    1000: "",
    999: "R@1000 is R@999 there, and AP is cut",
    100: "R@1000 is R@100 there, and AP is cut",
    50: "RR@100 is RR@50, R@100 and R@1000 are R@50, Success@100 is Success@50 there, and AP is cut",
    5: "RR@10 and RR@100 are RR@5, R@20, R@50, R@100 and R@1000 are R@5, Success@20 and Success@100 are Success@5 "
    "there, and nDCG@10 and AP are cut",
}


@pytest.mark.parametrize(("longest", "expected"), EXPECTED.items())
def test_the_note_on_lists_of_a_length(longest, expected):
    assert shallow(longest, MEASURES) == (f"no list is longer than {longest}; {expected}" if expected else "")


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        (["RR@10", "nDCG@10"], ""),
        (["hits@100"], "no list is longer than 20; hits@100 is hits@20 there"),
        (["AP"], "no list is longer than 20; AP is cut"),
        ([], ""),
    ],
)
def test_the_note_names_only_measures_that_are_shown(measures, expected):
    assert shallow(20, measures) == expected
    assert shallow(None, measures) == ""


@pytest.mark.parametrize(
    ("longest", "passages", "depth", "cut"),
    [
        (100, None, None, 100),
        (100, 101, None, 100),
        (100, 100, None, None),  # the whole collection
        (60, 5000, 1000, None),  # no other passage holds a word of any question
        (1000, 5000, 1000, 1000),
        (0, None, None, None),
    ],
)
def test_where_lists_are_cut(longest, passages, depth, cut):
    assert cut_at(longest, passages, depth) == cut


def trec(folder: Path, name: str, *lengths: int) -> Path:
    return put(folder, name, *(f"q{n} Q0 p{i} 1 {-i} x" for n, length in enumerate(lengths) for i in range(length)))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((100, 100), "no list is longer than 100; R@1000 is R@100 there, and AP is cut"),
        ((300, 7), "no list is longer than 300; R@1000 is R@300 there, and AP is cut"),
        ((20, 20), "Success@100 is Success@20 there, and AP is cut"),
        ((1000, 1), None),  # single questions may have short lists
    ],
)
def test_a_shallow_run_file_is_reported(lengths, expected, tmp_path):
    qrels = put(tmp_path, "qrels", "q0 0 p0 1", "q1 0 p0 1")
    runs = [trec(tmp_path, "top.trec", *lengths), trec(tmp_path, "deep.trec", 1000, 1000)]
    command = ["evaluate", *map(str, runs), "--qrels", str(qrels)]
    result = CliRunner().invoke(app, [*command, "--samples", "100"], env={"COLUMNS": "300"})
    lines = [line for line in result.stderr.splitlines() if "no list is longer" in line]
    assert [expected in line and "top.trec: " in line for line in lines] == [True] * bool(expected)
    counts_by_run = json.loads(CliRunner().invoke(app, [*command, "--samples", "100", "--json"]).stdout)["counts"]
    assert [counts["cut_at"] for counts in counts_by_run.values()] == [max(lengths), 1000]
    assert [bool(counts["shallow"]) for counts in counts_by_run.values()] == [bool(expected), False]


@pytest.mark.parametrize(
    ("length", "short", "whole"),
    [
        (5, ["MINE: no list is longer than 5; RR@10 is RR@5, R@100 is R@5 there, and nDCG@10 is cut"], True),
        (20, ["MINE: no list is longer than 20; R@100 is R@20 there"], True),
        (110, [], True),
        (150, [], False),  # the whole collection
    ],
)
def test_shallow_rows_of_the_table_are_reported(length, short, whole, tmp_path):
    passages = [(f"p{n}", f"p{n}", "", f"text of p{n}") for n in range(150)]
    queries = [("q0", "test", "one"), ("q1", "test", "two")]
    judged = [("test", q, "p0", 1) for q, *_ in queries]
    collection = write_collection(tmp_path / "collection", passages, queries, judged)
    run, bm25, out = trec(tmp_path, "run", length, 1), tmp_path / "bm25", tmp_path / "out"
    deep = trec(tmp_path, "deep", 150, 150)
    build(collection, bm25, CONFIG.model_copy(update={"run": deep, "depth": 1000}))
    out.mkdir()
    config = EVALUATE.model_copy(update={"systems": {"MINE": run}})
    evaluate(config, collection, bm25, Work(out, tmp_path, make_machine(), silent))
    metrics = json.loads((out / "metrics.json").read_text())
    assert notes(metrics) == short
    assert [line for line in all_notes(metrics) if line.startswith("test: MINE: no list is longer")] == [
        f"test: MINE: {shallow(length, MEASURES)}"
    ] * whole
    assert not any("first stage" in line for line in all_notes(metrics))


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"scores": "bm25", "depth": 1000}, False),  # no further passage is found
        ({"scores": "weights", "depth": 21}, False),
        ({"scores": "bm25", "depth": 20}, True),
        ({"scores": "bm25"}, True),  # of an older version: the depth is unknown
        ({"scores": "run"}, True),
    ],
)
def test_lists_that_end_without_a_cut_are_not_reported(settings, reported, tmp_path):
    passages = [(f"p{n}", f"p{n}", "", f"text of p{n}") for n in range(150)]
    collection = write_collection(tmp_path / "collection", passages, [("q0", "dev", "one")], [("dev", "q0", "p0", 1)])
    bm25, out = tmp_path / "bm25", tmp_path / "out"
    build(collection, bm25, CONFIG.model_copy(update={"run": trec(tmp_path, "run", 20), "depth": 1000}))
    (bm25 / "bm25.json").write_text(json.dumps(settings))
    out.mkdir()
    evaluate(EVALUATE, collection, bm25, Work(out, tmp_path, make_machine(), silent))
    lines = notes(json.loads((out / "metrics.json").read_text()))
    assert ["no list is longer than 20; R@100 is R@20 there" in line for line in lines] == [True] * reported
