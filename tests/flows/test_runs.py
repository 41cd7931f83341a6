"""`cocondenser runs`: what it lists of a store's runs."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli import app


def figures(mean: float) -> dict[str, Any]:
    estimate = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
    return dict.fromkeys(("RR@10", "nDCG@10", "R@100"), estimate)


METRICS = {
    "labels": {"bm25": "BM25", "stage1": "stage 1", "fusion": "BM25 + stage 1"},
    "dense": "stage1",
    "fusion": {"method": "weighted_sum", "weight": 0.5},
    "winner_on_dev": "fusion",
    "splits": {
        "dev": {"questions": 7, "systems": {"stage1": figures(0.9)}},
        "test": {
            "questions": 1234,
            "systems": {"bm25": figures(0.3), "stage1": figures(0.4), "fusion": figures(0.5)},
        },
    },
}


def record(store: Store, name: str, day: int, metrics: str | None) -> None:
    """A run of `name` that ended with its evaluation, or (None) before it."""
    nodes = {"ingest": Ref("ingest", "0" * 64, "0" * 64, "0" * 64, store.objects / ("0" * 64), {})}
    if metrics is not None:
        digest = f"{day}" * 64
        folder = store.objects / digest
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text(metrics)
        nodes |= {node: Ref(node, digest, digest, digest, folder, {}) for node in ("evaluate", "report")}
    record_run(store, name, nodes, {"recipe": {}}, datetime(2026, 11, day, 12, 30, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    record(store, "marco", 1, json.dumps(METRICS))
    record(store, "nq", 2, None)
    record(store, "marco", 3, json.dumps({**METRICS, "winner_on_dev": "dense"}))
    record(store, "squad", 4, "damaged")
    return store


def called(store: Store, *arguments: str) -> str:
    ended = CliRunner().invoke(app, ["runs", "--store", str(store.root), *arguments], env={"COLUMNS": "300"})
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_the_newest_stands_first_and_one_that_cannot_be_read_hides_none(store):
    lines = called(store).splitlines()
    for line, (day, name, known) in zip(
        lines[1:5], [(4, "squad", "4"), (3, "marco", "3"), (2, "nq", ""), (1, "marco", "1")], strict=True
    ):
        assert line.split()[: 4 if known else 3] == [f"2026-11-0{day}", "12:30", *([12 * known] if known else []), name]
    assert lines[1].rstrip().endswith("cannot be read")
    assert "1,234 test  stage 1 " in lines[2]
    assert "BM25 + stage 1" in lines[4]
    assert "not measured; reached ingest" in lines[3]
    assert lines[4].split()[-3:] == [".500", ".500", ".500"]
    assert lines[-1] == f"4 runs in {store.root}"


def test_of_one_recipe_and_so_many(store):
    assert called(store, "--recipe", "marco", "-n", "1").splitlines()[1].startswith("2026-11-03")
    assert called(store, "-n", "1").splitlines()[-1] == f"4 runs, the newest 1 of them in {store.root}"


def test_as_json(store):
    newest, *_, oldest = json.loads(called(store, "--json"))
    assert "metrics.json" in newest["problem"]
    assert newest["systems"] is None
    assert (oldest["recipe"], oldest["split"], oldest["questions"], oldest["best"]) == (
        "marco", "test", 1234, "BM25 + stage 1"
    )  # fmt: skip
    assert oldest["systems"]["stage 1"]["RR@10"]["mean"] == 0.4
    assert oldest["report"] == os.path.join(store.objects, "1" * 64, "report.html")


def test_a_run_that_lost_its_evaluation_says_so(store):
    (store.objects / ("3" * 64) / "metrics.json").unlink()
    assert called(store).splitlines()[2].rstrip().endswith("cannot be read")
    warned = CliRunner().invoke(app, ["runs", "--store", str(store.root)]).stderr.splitlines()
    assert [line.split(": ")[0] for line in warned] == ["warning", "warning"]
    assert "metrics.json" in warned[1]
