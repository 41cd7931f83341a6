"""Messages use the singular for a count of one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner
from writing import put

from artifacts.keys import make_key
from artifacts.store import Request, Store
from flows.cli.evaluate_model import print_measures
from flows.cli.main import app
from flows.updates.counts import update_summary
from pipeline.evaluate.tables.short_tables import headed_tables
from pipeline.formatting import counted

FIGURES = {name: {"mean": 0.5, "low": 0.4, "high": 0.6} for name in ("RR@10", "nDCG@10", "R@100")}
METRICS = {"labels": {"bm25": "BM25"}, "splits": {"test": {"questions": 1, "systems": {"bm25": FIGURES}}}}


def test_counted_uses_the_singular_only_for_one() -> None:
    assert [counted(n, "questions") for n in (0, 1, 2, 1234)] == [
        "0 questions", "1 question", "2 questions", "1,234 questions"
    ]  # fmt: skip


def test_one_question_of_run_files_is_singular(tmp_path: Path) -> None:
    run, qrels = put(tmp_path, "run", "q Q0 a 1 1 x"), put(tmp_path, "qrels", "q 0 a 1")
    result = CliRunner().invoke(app, ["evaluate", str(run), "--qrels", str(qrels)])
    assert result.stdout.startswith("1 question, mean [95 % interval]\n")


def test_one_question_of_a_run_is_singular(capsys: pytest.CaptureFixture[str]) -> None:
    print_measures(METRICS)
    assert "test: 1 question, mean" in capsys.readouterr().out
    assert headed_tables(METRICS)[0][0][0] == "test, 1 question"


def test_one_artifact_is_singular(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def make(out: Path, checkpoints: Path) -> dict:
        (out / "a").write_text("a")
        return {}

    store.build(Request(make_key("ingest", {}, {}, {}, {}, {}), node="ingest"), make)
    result = CliRunner().invoke(app, ["artifacts", "ls", "--store", str(store.root)])
    assert result.stdout.splitlines()[-1].startswith("1 artifact, ")


def test_one_document_of_an_update_is_singular() -> None:
    done = {"documents": 1, "passages": 1, "shards": 1, "shards_encoded": 1, "shards_reused": 0}
    assert update_summary(done) == "1 document, 1 passage: 1 of 1 shard encoded again, 0 reused"
