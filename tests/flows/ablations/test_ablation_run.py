"""An ablation on 300 documents, as a user starts it: every cell, the table, and what becomes of a cell that fails."""

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


def made(stderr: str, how: str) -> list[str]:
    """The parts of which the run said that they were `built` or `cached`."""
    return [line.partition(f" {how} ")[0].strip() for line in stderr.splitlines() if f" {how} " in line]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def stages(run_cli, store: Path) -> int:
    """What is to be built, as the plan has it before there is anything."""
    total = json.loads(run_cli("ablation", "plan", "tiny", "--json", store=store).stdout)["total"]
    assert total["reused"] == 0
    assert total["stages"] == total["to_build"] + total["shared"]
    return total["to_build"]


@pytest.fixture(scope="module")
def first(run_served, store: Path, stages: int):
    ended = run_served("ablation", "run", "tiny", "--json", "--device", "cpu", store=store, seconds=800)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.fixture(scope="module")
def given(first) -> dict[str, Any]:
    return json.loads(first.stdout)


def test_what_cells_share_is_built_once(first, stages: int) -> None:
    built = made(first.stderr, "built")
    assert len(built) == len({*built}) == stages
    assert not made(first.stderr, "cached")
    assert [name for name in built if name.startswith(("condenser", "cocondenser"))] == ["condenser", "cocondenser"]
    assert len([name for name in built if name.startswith("stage1")]) == len(CELLS)
    assert "MRR@10, dev" in first.stderr
    assert "ablation.html" in first.stderr


def test_the_table_holds_the_cells_own_figures(given: dict[str, Any]) -> None:
    table = {(f["row"], f["seed"], f["split"], f["measure"]): f for f in given["table"]}
    for row, seed in CELLS:
        path = Path(given["artifacts"][f"evaluate ({row})"]["path"])
        for split, found in json.loads((path / "metrics.json").read_text())["splits"].items():
            for measure, figure in found["systems"]["stage1"].items():
                own = table[row, seed, split, measure]
                assert {name: own[name] for name in ("mean", "low", "high")} == figure
    for split in ("dev", "test"):
        assert table["coCondenser", None, split, "RR@10"] | {"seed": 1} == table["coCondenser", 1, split, "RR@10"]
    assert {(t["row"], t["reference"]) for t in given["tests"]} == {("coCondenser", "initialisation only")}


def test_again_all_is_reused_and_the_plan_says_so(first, given, stages: int, run_served, call_cli, store: Path) -> None:
    again = run_served("ablation", "run", "tiny", "--json", "--device", "cpu", store=store)
    assert again.returncode == 0, again.stderr
    assert made(again.stderr, "cached") == made(first.stderr, "built")
    assert json.loads(again.stdout) == given
    planned = json.loads(call_cli("ablation", "plan", "tiny", "--json", store=store).stdout)
    assert (planned["total"]["to_build"], planned["total"]["reused"]) == (0, stages)


def test_chosen_negatives_reach_the_flow(first, given, run_served, store: Path) -> None:
    last = ("--json", "--device", "cpu")
    ended = run_served("ablation", "run", "tiny", "--negatives", "none", "--negatives", "bm25", *last, store=store)
    assert ended.returncode == 0, ended.stderr
    assert {cell["negatives"] for cell in json.loads(ended.stdout)["table"]} == {None, "none", "bm25"}
    assert not [name for name in made(ended.stderr, "built") if name.startswith("stage")]


def test_a_cell_is_a_run_of_its_recipe(given: dict[str, Any], call_cli, store: Path) -> None:
    """Of the same artifacts."""
    table = Path(given["artifacts"]["ablation"]["path"]) / "ablation.html"
    command = next(
        line for line in table.read_text().splitlines() if "--set stage1.seed=1" in line and "head_layers=0" not in line
    )
    settings = [word for word in command.replace("</pre>", " ").split() if "=" in word and not word.startswith("<")]
    steps = json.loads(
        call_cli("plan", "tiny", "--json", *(w for one in settings for w in ("--set", one)), store=store).stdout
    )
    assert [step["node"] for step in steps if step["action"] != "reuse"] == ["report"]


def test_a_cell_that_fails_stops_no_other(first, run_served, store: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(BROKEN)
    own = ("ablation", "run", str(tmp_path / "own.yaml"), "--device", "cpu")
    ended = run_served(*own, store=store)
    assert ended.returncode == 1
    assert "encode-stage1 (broken): vectors beyond float16" in ended.stderr
    assert "2 of 3 cells are measured" in ended.stderr
    assert "evaluate (coCondenser)" in made(ended.stderr, "cached")
    rest = run_served(*own, "--rows", "initialisation only", "--rows", "coCondenser", store=store)
    assert rest.returncode == 0, rest.stderr
    assert not [name for name in made(rest.stderr, "built") if name != "ablation"]


def test_too_many_training_questions_are_reported_before_any_training(first, run_served, store: Path) -> None:
    ended = run_served("ablation", "run", "tiny", "--sizes", "999999", "--device", "cpu", store=store)
    assert ended.returncode == 2
    assert "999,999 training questions, but the collection has" in ended.stderr.splitlines()[-1]
    assert not [name for name in made(ended.stderr, "built") + made(ended.stderr, "cached") if "stage1" in name]
