"""A run of the real flow as a file: in another store every stage of its recipe is a hit."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli.main import app
from flows.dag import nodes
from flows.graph.plan import plan
from flows.recipes.recipe import resolve


def call(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def imported(tiny_run: tuple[Path, dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    store, _ = tiny_run
    packed = json.loads(call("artifacts", "pack", "tiny", folder / "tiny.tar.zst", "--store", store, "--json"))
    assert (packed["recipe"], packed["artifacts"], packed["left_out"]) == ("tiny", len(nodes(resolve("tiny"))), [])
    done = json.loads(call("artifacts", "unpack", folder / "tiny.tar.zst", "--store", folder / "store", "--json"))
    assert (done["new"], done["bytes"]) == (packed["artifacts"], sum(size_of(folder / "store")))
    return folder / "store"


def size_of(store: Path) -> list[int]:
    """The bytes of each file that a pack contains."""
    files = [path for name in ("objects", "keys", "runs") for path in (store / name).rglob("*") if path.is_file()]
    return [path.stat().st_size for path in files]


def test_every_stage_is_a_hit_in_the_other_store(imported: Path) -> None:
    assert {step.node: step.action for step in plan(Store(imported), nodes(resolve("tiny")))} == {
        node.name: "reuse" for node in nodes(resolve("tiny"))
    }


@pytest.mark.slow
def test_the_other_commands_work_in_the_other_store(imported: Path, tiny_run: tuple[Path, dict]) -> None:
    store, _ = tiny_run
    listed, imported_runs = (json.loads(call("runs", "--store", s, "--json")) for s in (store, imported))
    assert [run["systems"] for run in imported_runs] == [run["systems"] for run in listed]
    question = "How do I merge two sorted lists into one?"
    answers = [json.loads(call("search", question, "--store", s, "--json"))["answers"] for s in (store, imported)]
    assert answers[0]
    assert answers[1] == answers[0]
    both = json.loads(call("compare", "tiny", imported_runs[0]["id"], "--store", imported, "--json"))
    assert both
    assert json.loads(call("artifacts", "verify", "--store", imported, "--json")) == []


def test_a_run_without_its_indexes_has_its_models_and_measures(tiny_run: tuple[Path, dict], tmp_path: Path) -> None:
    store, _ = tiny_run
    lean = ("--without", "encode", "--without", "index", "--store", store)
    output = call("artifacts", "pack", "tiny", tmp_path / "lean.tar.zst", *lean)
    assert "without encode-pretrained, encode-stage1, encode-stage2, index-pretrained" in output
    call("artifacts", "unpack", tmp_path / "lean.tar.zst", "--store", tmp_path / "store")
    steps = {step.node: step.action for step in plan(Store(tmp_path / "store"), nodes(resolve("tiny")))}
    assert [steps[node] for node in ("cocondenser", "stage1", "encode-stage1")] == ["reuse", "reuse", "build"]
    assert [steps[node] for node in ("stage2", "evaluate")] == [
        "unknown"
    ] * 2  # hits as soon as encode-stage1 has the same bytes again
    assert len(json.loads(call("runs", "--store", tmp_path / "store", "--json"))) == 1
    result = CliRunner().invoke(app, ["search", "anything", "--store", str(tmp_path / "store")])
    assert "has lost index-stage2" in str(result.exception)


def test_a_run_without_measures_is_identified_by_its_recipe(tiny_run: tuple[Path, dict], tmp_path: Path) -> None:
    store, _ = tiny_run
    call("artifacts", "pack", "tiny", tmp_path / "a.tar.zst", "--store", store)
    call("artifacts", "unpack", tmp_path / "a.tar.zst", "--store", tmp_path / "store")
    unpacked = Store(tmp_path / "store")
    record_run(unpacked, "begun", {"initial": unpacked.ref(unpacked.show("initial"))}, {"recipe": {}})
    done = json.loads(call("artifacts", "pack", "begun", tmp_path / "b.tar.zst", "--store", unpacked.root, "--json"))
    assert done["artifacts"] == 4  # and the inputs of the initial model
    result = CliRunner().invoke(app, ["artifacts", "pack", "tyni", "x.tar.zst", "--store", str(unpacked.root)])
    assert "no measured run 'tyni'" in str(result.exception)


def test_every_stage_is_a_hit_after_push_and_pull(tiny_run: tuple[Path, dict], tmp_path: Path) -> None:
    store, _ = tiny_run
    sent = json.loads(call("artifacts", "push", tmp_path / "there", "--store", store, "--json"))
    assert (sent["recipe"], sent["artifacts"]) == ("tiny", len(nodes(resolve("tiny"))))
    assert json.loads(call("artifacts", "pushed", tmp_path / "there", "--json")) == [sent["run"]]
    done = json.loads(call("artifacts", "pull", tmp_path / "there", "tiny", "--store", tmp_path / "store", "--json"))
    assert done["new"] == sent["artifacts"]
    steps = plan(Store(tmp_path / "store"), nodes(resolve("tiny")))
    assert {step.action for step in steps} == {"reuse"}
    again = call("artifacts", "push", tmp_path / "there", "tiny", "--store", tmp_path / "store")
    assert f"{sent['run']}, {sent['artifacts']} artifacts, 0 of them new; " in again
