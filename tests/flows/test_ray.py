"""Encoding, search and mining on a Ray cluster of two workers give the bytes of a run without Ray."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest
from clusters import OPEN, children, head, nobody_works, raylets, wait_until_gone
from killing import ROOT, command, finished, run
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("ray")]

UNTIL = ["--until", "mine"]
AGAIN = [word for stage in ("encode", "search", "mine") for word in ("--refresh", stage)]
SMALL = ["--set", "encode.shard_passages=60"]


@pytest.fixture(scope="module")
def environment_of_ray(served: dict[str, str]) -> dict[str, str]:
    return {**served, **OPEN}


@pytest.fixture(scope="module")
def address(environment_of_ray: dict[str, str]):
    with head(environment_of_ray) as head_address:
        yield head_address


@pytest.fixture(scope="module")
def plain(
    tiny_run: tuple[Path, dict], served: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict, dict]:
    """(store, digests of a run without Ray, those with smaller shards)."""
    shutil.copytree(tiny_run[0], store := tmp_path_factory.mktemp("plain") / "store")
    small = digests(finished(run([*command("tiny"), *UNTIL, *SMALL], served, store))[0])
    whole = {node: digest for node, digest in digests(tiny_run[1]).items() if node in small}
    return store, whole, small


def digests(results: dict) -> dict[str, str]:
    return {node: artifact["digest"] for node, artifact in results["artifacts"].items() if node != "bm25"}


def on_ray(cluster: str) -> list[str]:
    return [*command("tiny", (f"machine.ray={cluster}", "machine.workers=2")), *UNTIL]


def parts(environment: dict[str, str], node: str) -> list[str]:
    """The states of the node's parts in the newest run, as Prefect's page shows them."""
    with temporary_settings({PREFECT_API_URL: environment["PREFECT_API_URL"]}), get_client(sync_client=True) as client:
        (newest,) = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
        of_newest = FlowRunFilter(id=FlowRunFilterId(any_=[newest.id]))
        task_runs = client.read_task_runs(flow_run_filter=of_newest, limit=200)
    return sorted(
        task_run.state.name for task_run in task_runs if task_run.name.startswith(f"{node} ") and task_run.state
    )


def kill_a_worker(killed: list[psutil.Process]) -> None:
    while not (at_work := children()):
        time.sleep(0.05)
    worker = at_work[0].parent()
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    killed.extend([worker, at_work[0]])


def test_the_bytes_are_the_same_when_a_worker_is_killed(
    plain: tuple, address: str, environment_of_ray: dict[str, str], tmp_path: Path
) -> None:
    store, expected, _ = plain
    shutil.copytree(store, tmp_path / "store")
    killed: list[psutil.Process] = []
    killer = threading.Thread(target=kill_a_worker, args=(killed,), daemon=True)
    killer.start()
    results, stderr = finished(run([*on_ray(address), *AGAIN], environment_of_ray, tmp_path / "store"))
    assert len(killed) == 2
    assert not psutil.wait_procs(killed, timeout=10)[1]
    assert digests(results) == expected
    built = {line.split()[0] for line in stderr.splitlines() if " built " in line}
    assert built == {"encode-stage1", "search-stage1", "mine"}
    assert "raylet" not in stderr
    assert parts(environment_of_ray, "encode-stage1") == ["Completed"] * 6

    again, stderr = finished(run(on_ray("127.0.0.1:9"), environment_of_ray, tmp_path / "store"))
    assert digests(again) == expected  # existing artifacts need no cluster
    assert " built " not in stderr


def test_an_interrupted_local_cluster_leaves_only_shards(
    plain: tuple, address: str, environment_of_ray: dict[str, str], tmp_path: Path
) -> None:
    _, _, expected = plain
    store, before = tmp_path / "store", raylets()
    shutil.copytree(plain[0], store)
    for record in (store / "keys").glob("*.json"):
        if json.loads(record.read_text())["node"] in ("encode-stage1", "search-stage1", "mine"):
            record.unlink()
    process = subprocess.Popen(
        [*on_ray("local"), *SMALL],
        env={**environment_of_ray, "COCONDENSER_STORE": str(store)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (list((store / "work").glob("*/checkpoints/shards/*.npy")) and children()):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, stderr = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert stderr.endswith("interrupted; the same command resumes from the last checkpoint\n")
    wait_until_gone(lambda: raylets() - before)
    nobody_works()
    results, _ = finished(run([*on_ray(address), *SMALL], environment_of_ray, store))
    assert digests(results) == expected
    assert "Cached" in parts(environment_of_ray, "encode-stage1")


def test_a_missing_cluster_is_one_line(run_cli, tmp_path: Path) -> None:
    result = run_cli("run", "tiny", "--set", "machine.ray=127.0.0.1:9", store=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    line = "error: machine.ray: 127.0.0.1:9: no Ray cluster answers (connection refused); `ray start --head` starts one"
    assert result.stderr.splitlines()[-1] == line
    assert not list((tmp_path / "keys").glob("*"))
