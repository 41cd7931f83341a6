"""A search log becomes training questions, and questions to judge."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from answering import make_store
from judged import judge, start
from typer.testing import CliRunner

from artifacts.store import Store
from flows.cli.main import app
from flows.judging.questions import sample_questions
from flows.runs.find_collection import find_collection
from pipeline.data.qrels import read_qrels
from pipeline.data.readers import beir
from pipeline.errors import InputError
from pipeline.runtime.work import silent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    passages = [("p1", "d1", "T", "a text"), ("p2", "d2", "", "more")]
    return make_store(tmp_path_factory.mktemp("run") / "store", passages, "text")


def write_log(path: Path, searches: list[tuple[str, list[str], list[int]]], where: str | None = None) -> Path:
    with path.open("a") as log:
        for n, (question, results, clicks) in enumerate(searches):
            search = f"{path.stat().st_size}-{n}"
            row = {"search": search, "question": question, "results": results, "where": where}
            log.write(json.dumps(row) + "\n")
            log.writelines(json.dumps({"search": search, "click": position}) + "\n" for position in clicks)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """`How?` finds p1 three times with a click; `one` is also judged; `gone` finds an unknown passage."""
    searches = [("How?", ["p0", "p1"], [2]), ("how?", ["p0", "p1"], [2]), ("How?", ["p0", "p1"], [1, 2])]
    return write_log(tmp_path / "log", [*searches, *[("ONE", ["p2"], [1])] * 3, *[("gone", ["p9"], [1])] * 3])


def test_clicks_and_judgements_become_one_collection_that_trains(log, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a store
    judged, out = tmp_path / "judged", tmp_path / "clicked"
    with ExitStack() as running:
        judge(start(running, judged, ["one"]), {"p0": 3})
    arguments = ["log-questions", str(log), "--judged", str(judged), "--out", str(out), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    counts = ("searches", "questions", "pairs", "judged_questions", "left_out_judged", "unknown_passages")
    assert [found[name] for name in counts] == [9, 1, 1, 1, 1, 1]
    assert read_qrels(out / "qrels/train.tsv") == {"click1": {"p1": 1}}
    assert read_qrels(out / "qrels/test.tsv") == read_qrels(judged / "qrels/test.tsv")
    config = find_collection(str(out), trains=True).ingest
    source = beir.read(beir.BeirConfig(**config, passage_words=None, passage_overlap=0), silent)
    assert [(one.query_id, one.split, one.text) for _, one in source.queries()] == [
        ("click1", "train", "How?"),
        ("q1", "test", "one"),
    ]
    assert len([*source.passages()]) == 6
    again = CliRunner().invoke(app, arguments)
    assert "must be a new or empty folder" in str(again.exception)


def test_without_judgements_the_passages_are_those_of_the_run(store, log, tmp_path) -> None:
    out = tmp_path / "clicked"
    result = CliRunner().invoke(app, ["log-questions", str(log), "--out", str(out), "--store", str(store.root)])
    assert result.exit_code == 0, result.output
    assert read_qrels(out / "qrels/train.tsv") == {"click1": {"p1": 1}, "click2": {"p2": 1}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicked", "log"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--impressions", "4"], "lower --impressions or --coec"),
        (["--judged", "none"], "--judged none: corpus.jsonl.zst does not exist"),
        (["--judged", "none", "--recipe", "text"], "leave one out"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(store, log, tmp_path, options, what) -> None:
    arguments = ["log-questions", str(log), "--out", str(tmp_path / "clicked"), "--store", str(store.root), *options]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert what in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


def test_a_log_of_test_questions_alone_says_so(store, tmp_path) -> None:
    """As after `judge --log LOG` and `log-questions LOG --judged`."""
    with ExitStack() as running:
        judge(start(running, tmp_path / "judged", ["one"]), {"p0": 3})
    log = write_log(tmp_path / "log", [("ONE", ["p0"], [1])] * 3)
    arguments = ["log-questions", str(log), "--out", str(tmp_path / "clicked"), "--judged", str(tmp_path / "judged")]
    message = str(CliRunner().invoke(app, [*arguments, "--store", str(store.root)]).exception)
    assert "all questions with relevant passages are test questions of --judged" in message


def test_the_log_of_another_collection_is_refused(store, tmp_path) -> None:
    other = write_log(tmp_path / "other", [("How?", ["x1"], [1])] * 3)
    arguments = ["log-questions", str(other), "--out", str(tmp_path / "clicked"), "--store", str(store.root)]
    assert "the log is of another collection" in str(CliRunner().invoke(app, arguments).exception)


def test_questions_to_judge_are_a_random_sample_of_the_searches(tmp_path) -> None:
    rare = [(f"rare {n}", ["p0"], []) for n in range(30)]
    log = write_log(tmp_path / "log", [*rare, *[("often", ["p0"], [])] * 30])
    write_log(log, [("filtered", ["p0"], [])], where="year > 1")
    texts = [one.text for one in sample_questions(log, 42)]
    assert sorted(texts) == sorted([question for question, _, _ in rare] + ["often"])
    assert texts == [one.text for one in sample_questions(log, 42)]
    firsts = [[one.text for one in sample_questions(log, seed)].index("often") for seed in range(40)]
    assert sum(firsts) / 40 < 3  # half of the searches
    filtered = write_log(tmp_path / "filtered", [("filtered", ["p0"], [])], where="year > 1")
    with pytest.raises(InputError, match="no question without a condition"):
        sample_questions(filtered, 42)
