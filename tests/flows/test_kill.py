"""kill -9 in every stage, and two runs at once: the same command goes on, and gives what one run gives."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from artifacts.locks import read_holder
from flows.dag import nodes
from flows.recipe import resolve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
# A checkpoint after each update, so that there is always one to go on from.
COMMAND = [sys.executable, "-m", "flows.cli", "run", "tiny", "--device", "cpu", "--set", "machine.checkpoint_minutes=0"]
DAG = nodes(resolve("tiny"))
TRAINED = ("condenser", "cocondenser", "finetune")


@pytest.fixture(scope="module")
def served(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of runs that share one Prefect server, which saves each its start."""
    from flows.processes import free_port, healthy

    port = free_port()
    there = {**environment, "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    with (tmp_path_factory.mktemp("server") / "log").open("w") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, env=there, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            end = time.monotonic() + 120
            while not healthy(there["PREFECT_API_URL"]):
                assert time.monotonic() < end
                time.sleep(0.3)
            yield there
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def run(environment: dict[str, str], store: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, "--json"],
        env={**environment, "COCONDENSER_STORE": str(store)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> tuple[dict, str]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return json.loads(out), err


@pytest.fixture(scope="module")
def uninterrupted(served: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict:
    return finished(run(served, tmp_path_factory.mktemp("whole") / "store"))[0]


def at_work_on(store: Path, node: str) -> str | None:
    """The key that a living process is building for `node`."""
    for lock in (store / "locks").glob("*.lock"):
        holder = read_holder(lock)
        if holder and holder.node == node and psutil.pid_exists(holder.pid) and (store / "work" / lock.stem).exists():
            return lock.stem
    return None


def kill_in(node: str, stage: str, environment: dict[str, str], store: Path) -> bool:
    """Starts a run and kills it while it builds `node`; in a training, once that has a checkpoint. False: too late."""
    process = run(environment, store)
    family: list[psutil.Process] = []
    try:
        while True:
            key = at_work_on(store, node)
            training = stage in TRAINED and not list((store / "work" / str(key) / "checkpoints").glob("step-*"))
            if key and not training:
                break
            if process.poll() is not None:
                return False
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.2))
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        return process.poll() is None
    finally:
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive, "a killed run leaves processes behind"


def test_killed_in_every_stage(uninterrupted: dict, served: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "store"
    killed = [node.name for node in DAG if kill_in(node.name, node.stage, served, store)]
    assert {node.name for node in DAG if node.stage in TRAINED} <= set(killed)
    assert len(killed) > len(DAG) / 2  # some stages are over before the signal comes
    given, _ = finished(run(served, store))
    assert given["results"] == uninterrupted["results"]
    different = {
        name
        for name, artifact in given["artifacts"].items()
        if artifact["digest"] != uninterrupted["artifacts"][name]["digest"]
    }
    assert different <= {"bm25"}  # Lucene's bytes vary


def test_two_runs_at_once_build_each_artifact_once(uninterrupted: dict, served: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "store"
    both = [run(served, store) for _ in range(2)]
    ended = [finished(process) for process in both]
    for node in DAG:
        how = [line.split()[1] for _, said in ended for line in said.splitlines() if line.split()[:1] == [node.name]]
        assert sorted(how) == ["built", "cached"], node.name
    assert ended[0][0]["artifacts"] == ended[1][0]["artifacts"]
    assert ended[0][0]["results"] == uninterrupted["results"]
