"""kill -9 in every kind of stage, and two runs at once: the same command resumes, and the results are the same."""

from pathlib import Path

import pytest
from killing import TRAINED, command, cut_off, finished, run

from flows.dag import nodes
from flows.recipes.recipe import resolve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COMMAND = command("tiny")
DAG = nodes(resolve("tiny"))
KILLED = ("ingest", "tokens", "bm25", "condenser", "cocondenser", "encode-pretrained", "stage1", "search-stage1")
"""A node of each kind: plain work, Java, trainings, shards. The other nodes are of the same kinds."""


def test_a_run_killed_in_every_kind_of_stage_gives_the_same_results(
    tiny_run: tuple[Path, dict], served: dict[str, str], tmp_path: Path
) -> None:
    (_, uninterrupted), store = tiny_run, tmp_path / "store"
    chosen = [node for node in DAG if node.name in KILLED]
    killed = [node.name for node in chosen if cut_off(node.name, node.stage, COMMAND, served, store)]
    assert {node.name for node in chosen if node.stage in TRAINED} <= set(killed)
    assert len(killed) > len(chosen) / 2  # some stages end before the signal arrives
    output, _ = finished(run(COMMAND, served, store))
    assert output["results"] == uninterrupted["results"]
    different = {
        name
        for name, artifact in output["artifacts"].items()
        if artifact["digest"] != uninterrupted["artifacts"][name]["digest"]
    }
    assert different <= {"bm25", "report"}  # Lucene's bytes vary, and the page shows the seconds of each step


def test_two_runs_at_once_build_each_artifact_once(
    tiny_run: tuple[Path, dict], served: dict[str, str], tmp_path: Path
) -> None:
    (_, uninterrupted), store = tiny_run, tmp_path / "store"
    both = [run(COMMAND, served, store) for _ in range(2)]
    results = [finished(process) for process in both]
    for node in DAG:
        actions = [
            line.split()[1] for _, stderr in results for line in stderr.splitlines() if line.split()[:1] == [node.name]
        ]
        assert sorted(actions) == ["built", "cached"], node.name
    assert results[0][0]["artifacts"] == results[1][0]["artifacts"]
    assert results[0][0]["results"] == uninterrupted["results"]
