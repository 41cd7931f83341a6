"""The whole flow on 300 documents."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from flows.dag import nodes
from flows.recipes.recipe import resolve

NODES = [node.name for node in nodes(resolve("tiny"))]


def stages(stderr: str) -> list[tuple[str, str]]:
    """(node, built or cached) of each line that the run prints about a stage."""
    words = [line.split() for line in stderr.splitlines()]
    return [(line[0], line[1]) for line in words if len(line) > 1 and line[0] in NODES]


@pytest.fixture(scope="module")
def store(tiny_ended, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy for these tests, because some write into it."""
    return shutil.copytree(tiny_ended[0], tmp_path_factory.mktemp("own") / "store")


@pytest.fixture(scope="module")
def first(tiny_ended, store: Path) -> subprocess.CompletedProcess[str]:
    """The run that filled the store; its paths are those of the copy."""
    original, result = tiny_ended
    moved = result.stdout.replace(str(original), str(store))
    return subprocess.CompletedProcess(result.args, result.returncode, moved, result.stderr)


def test_every_stage_is_built(first) -> None:
    assert stages(first.stderr) == [(name, "built") for name in NODES]
    assert "cocondenser search" in first.stderr
    assert "95 % interval" in first.stderr


def test_the_results_hold_every_row(first) -> None:
    output = json.loads(first.stdout)
    assert list(output["artifacts"]) == NODES
    systems = output["results"]["splits"]["test"]["systems"]
    assert list(systems) == ["bm25", "pretrained", "stage1", "stage2", "fusion"]
    assert systems["bm25"]["RR@10"]["mean"] > 0.3
    assert (Path(output["artifacts"]["report"]["path"]) / "report.html").stat().st_size > 10_000


def test_a_second_run_of_the_flow_reuses_everything(first, run_served, store: Path) -> None:
    start = time.monotonic()
    result = run_served("run", "tiny", "--json", "--device", "cpu", store=store)
    seconds = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    assert stages(result.stderr) == [(name, "cached") for name in NODES]
    assert json.loads(result.stdout) == json.loads(first.stdout)
    assert seconds < 90  # 15 s on a machine that does nothing else


def test_the_plan_agrees_with_the_run(first, call_cli, store: Path) -> None:
    def plan(*more: str) -> dict[str, dict]:
        steps = json.loads(call_cli("plan", "tiny", "--json", *more, store=store).stdout)
        return {step["node"]: step for step in steps}

    assert {step["action"] for step in plan().values()} == {"reuse"}
    changed = plan("--set", "stage2.epochs=2")
    assert changed["stage2"]["why"] == ["config epochs: 1 -> 2"]
    assert changed["stage2"]["seconds"] > 0
    assert changed["encode-stage2"]["why"] == ["unknown until stage2 is built"]
    assert {changed[name]["action"] for name in NODES[: NODES.index("stage2")]} == {"reuse"}


@pytest.mark.slow
def test_only_one_stage_is_built(first, run_served, store: Path) -> None:
    result = run_served("run", "tiny", "--only", "evaluate", "--refresh", "evaluate", "--device", "cpu", store=store)
    assert result.returncode == 0, result.stderr
    assert stages(result.stderr) == [("evaluate", "built")]


@pytest.mark.slow
def test_a_damaged_artifact_is_detected_and_built_again(first, run_served, call_cli, store: Path) -> None:
    mine = Path(json.loads(first.stdout)["artifacts"]["mine"]["path"])
    table = mine / "negatives.parquet"
    damaged = bytearray(table.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    table.chmod(0o644)
    table.write_bytes(damaged)
    checked = call_cli("artifacts", "verify", "mine", store=store)
    assert checked.returncode == 1
    assert "negatives.parquet" in checked.stdout
    result = run_served("run", "tiny", "--json", "--until", "stage2", "--device", "cpu", store=store)
    assert result.returncode == 0, result.stderr
    assert dict(stages(result.stderr))["mine"] == "built"
    assert dict(stages(result.stderr))["stage2"] == "cached"
    assert call_cli("artifacts", "verify", store=store).returncode == 0


def test_search_answers_from_the_run(first, call_cli, store: Path) -> None:
    result = call_cli("search", "parse an email message header", "-k", "3", "--json", store=store)
    assert result.returncode == 0, result.stderr
    answers = json.loads(result.stdout)["answers"]
    assert [answer["rank"] for answer in answers] == [1, 2, 3]
    assert len({answer["doc_id"] for answer in answers}) == 3
    assert [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)
    output = call_cli("search", "parse an email message header", "-k", "1", store=store).stdout
    assert answers[0]["title"] in output
    empty = call_cli("search", "  ", store=store)
    assert (empty.returncode, empty.stderr) == (2, "error: the question is empty\n")


def test_the_artifacts_are_listed(first, call_cli, store: Path) -> None:
    listed = json.loads(call_cli("artifacts", "ls", "--json", store=store).stdout)
    assert {record["node"] for record in listed} >= set(NODES)
    stage1 = json.loads(call_cli("artifacts", "show", "stage1", "--json", store=store).stdout)
    assert stage1["config"]["epochs"] == 1
    assert stage1["recipe"] == "tiny"
    path = Path(call_cli("artifacts", "path", "stage1", store=store).stdout.strip())
    assert (path / "model.safetensors").is_file()
    removed = json.loads(call_cli("artifacts", "gc", "--dry-run", "--json", store=store).stdout)
    assert not [item for item in removed if item["path"].startswith("keys/")]
