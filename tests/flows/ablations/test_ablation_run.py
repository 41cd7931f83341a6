"""An ablation on 300 documents, as a user starts it: every cell, the table, and a cell that fails."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BROKEN = """\
extends: tiny
rows:
  broken: [stage1.optimiser.learning_rate=1e30]
"""
CELLS = [("initialisation only", 1), ("coCondenser", 1)]


def parts_reported_as(stderr: str, action: str) -> list[str]:
    """The parts that the run reports as `built` or `cached`."""
    return [line.partition(f" {action} ")[0].strip() for line in stderr.splitlines() if f" {action} " in line]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def stages(run_cli, store: Path) -> int:
    """The number of stages to build, as the plan counts them with an empty store."""
    total = json.loads(run_cli("ablation", "plan", "tiny", "--json", store=store).stdout)["total"]
    assert total["reused"] == 0
    assert total["stages"] == total["to_build"] + total["shared"]
    return total["to_build"]


@pytest.fixture(scope="module")
def first(run_served, store: Path, stages: int):
    result = run_served("ablation", "run", "tiny", "--json", "--device", "cpu", store=store)
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def output(first) -> dict[str, Any]:
    return json.loads(first.stdout)


def test_each_shared_stage_is_built_once(first, stages: int) -> None:
    built_parts = parts_reported_as(first.stderr, "built")
    assert len(built_parts) == len({*built_parts}) == stages
    assert not parts_reported_as(first.stderr, "cached")
    assert [name for name in built_parts if name.startswith(("condenser", "cocondenser"))] == [
        "condenser",
        "cocondenser",
    ]
    assert len([name for name in built_parts if name.startswith("stage1")]) == len(CELLS)
    assert "MRR@10, dev" in first.stderr
    assert "ablation.html" in first.stderr


def test_the_table_holds_the_figures_of_the_cells(output: dict[str, Any]) -> None:
    table = {(f["row"], f["seed"], f["split"], f["measure"]): f for f in output["table"]}
    for row, seed in CELLS:
        path = Path(output["artifacts"][f"evaluate ({row})"]["path"])
        for split, split_metrics in json.loads((path / "metrics.json").read_text())["splits"].items():
            for measure, figure in split_metrics["systems"]["stage1"].items():
                table_row = table[row, seed, split, measure]
                assert {name: table_row[name] for name in ("mean", "low", "high")} == figure
    for split in ("dev", "test"):
        assert table["coCondenser", None, split, "RR@10"] | {"seed": 1} == table["coCondenser", 1, split, "RR@10"]
    assert {(t["row"], t["reference"]) for t in output["tests"]} == {("coCondenser", "initialisation only")}


def test_a_second_run_reuses_everything_and_so_does_the_plan(
    first, output, stages: int, run_served, call_cli, store: Path
) -> None:
    again = run_served("ablation", "run", "tiny", "--json", "--device", "cpu", store=store)
    assert again.returncode == 0, again.stderr
    assert parts_reported_as(again.stderr, "cached") == parts_reported_as(first.stderr, "built")
    assert json.loads(again.stdout) == output
    planned = json.loads(call_cli("ablation", "plan", "tiny", "--json", store=store).stdout)
    assert (planned["total"]["to_build"], planned["total"]["reused"]) == (0, stages)


def test_chosen_negatives_reach_the_flow(first, output, run_served, store: Path) -> None:
    last = ("--json", "--device", "cpu")
    result = run_served("ablation", "run", "tiny", "--negatives", "none", "--negatives", "bm25", *last, store=store)
    assert result.returncode == 0, result.stderr
    assert {cell["negatives"] for cell in json.loads(result.stdout)["table"]} == {None, "none", "bm25"}
    assert not [name for name in parts_reported_as(result.stderr, "built") if name.startswith("stage")]


def test_a_cell_is_a_run_of_its_recipe(output: dict[str, Any], call_cli, store: Path) -> None:
    """Its plan reuses all artifacts of the cell."""
    table = Path(output["artifacts"]["ablation"]["path"]) / "ablation.html"
    command = next(
        line for line in table.read_text().splitlines() if "--set stage1.seed=1" in line and "head_layers=0" not in line
    )
    settings = [word for word in command.replace("</pre>", " ").split() if "=" in word and not word.startswith("<")]
    steps = json.loads(
        call_cli("plan", "tiny", "--json", *(w for setting in settings for w in ("--set", setting)), store=store).stdout
    )
    assert [step["node"] for step in steps if step["action"] != "reuse"] == ["report"]


def test_a_cell_that_fails_does_not_stop_the_others(first, run_served, store: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BROKEN)
    arguments = ("ablation", "run", str(tmp_path / "own.yaml"), "--device", "cpu")
    result = run_served(*arguments, store=store)
    assert result.returncode == 1
    assert "encode-stage1 (broken): vectors beyond float16" in result.stderr
    assert "2 of 3 cells are measured" in result.stderr
    assert "evaluate (coCondenser)" in parts_reported_as(result.stderr, "cached")
    rest = run_served(*arguments, "--rows", "initialisation only", "--rows", "coCondenser", store=store)
    assert rest.returncode == 0, rest.stderr
    assert not [name for name in parts_reported_as(rest.stderr, "built") if name != "ablation"]


def test_too_many_training_questions_are_reported_before_any_training(first, run_served, store: Path) -> None:
    result = run_served("ablation", "run", "tiny", "--sizes", "999999", "--device", "cpu", store=store)
    assert result.returncode == 2
    assert "999,999 training questions, but the collection has" in result.stderr.splitlines()[-1]
    assert not [
        name
        for name in parts_reported_as(result.stderr, "built") + parts_reported_as(result.stderr, "cached")
        if "stage1" in name
    ]
