"""Parts on a Ray cluster of two workers: the same bytes, also when one is killed; other faults are reported."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psutil
import pytest
from clusters import OPEN, children, head, nobody_works, raylets, wait_until_gone
from machines import make_machine
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from pipeline.errors import InputError
from pipeline.runtime.shards import name
from pipeline.runtime.spans import shard_spans
from pipeline.runtime.work import Job, Machine, silent
from tasks import ray_cluster
from tasks.ray_shards import spread

pytestmark = [
    *(pytest.mark.slow, pytest.mark.usefixtures("harness"), pytest.mark.timeout(900)),
    pytest.mark.xdist_group("ray"),
]

SUPPORT = Path(__file__).parents[1] / "support"
SPANS = shard_spans(40, 5)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    os.environ.update(OPEN)  # read once, by the first import of ray
    with head({**os.environ, "OMP_NUM_THREADS": "1"}) as where:
        yield where


@pytest.fixture
def machine(address: str, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))  # for the children
    return make_machine(ray=address)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def make(**more: Any) -> Job:
        arguments = {"folder": str(tmp_path), "spans": SPANS, **more}
        return Job("counting:count", arguments, tmp_path, SPANS, "things")

    return make


def run(job: Job, machine: Machine, progress: Any = silent) -> dict[str, str]:
    """Runs the job as a stage does, in a task of a flow. Returns the states of the parts that the page shows."""

    @task(persist_result=False)
    def stage() -> None:
        spread("count", progress, job, machine)

    @flow
    def around() -> UUID:
        from prefect.context import FlowRunContext

        stage()
        context = FlowRunContext.get()
        assert context is not None
        assert context.flow_run is not None
        return context.flow_run.id

    run_id = around()
    names: dict[str, str] = {}
    end = time.monotonic() + 30
    while set(names.values()) - {"Completed", "Cached"} or len(names) < 6:
        assert time.monotonic() < end, names
        with get_client(sync_client=True) as client:
            runs = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])), limit=200)
        names = {one.name: one.state.name if one.state else "" for one in runs if "/" in one.name}
    return names


def built_rows(job: Job) -> list[int]:
    return np.concatenate([np.load(job.folder / name(i)) for i in range(len(SPANS))]).tolist()


def test_parts_are_built_and_reused(machine: Machine, job: Callable[..., Job]) -> None:
    calls: list[tuple] = []
    one = job()
    assert run(one, machine, lambda *call: calls.append(call)) == {f"count {i}/6": "Completed" for i in range(1, 7)}
    assert built_rows(one) == [*range(40)]
    assert calls[-1][:3] == (40, 40, "things")
    (one.folder / name(3)).unlink()
    inodes = {path.name: path.stat().st_ino for path in one.folder.glob("*.npy")}
    states = run(one, machine)
    assert sorted(states.values()) == ["Cached"] * 5 + ["Completed"]
    assert states["count 4/6"] == "Completed"
    assert built_rows(one) == [*range(40)]
    assert inodes.items() <= {path.name: path.stat().st_ino for path in one.folder.glob("*.npy")}.items()


def test_a_killed_worker_changes_no_byte(machine: Machine, job: Callable[..., Job], capfd: Any) -> None:
    one = job(seconds=2.0)
    killed: list[psutil.Process] = []

    def kill() -> None:
        while not (started := list(one.folder.glob("begun-*"))):
            time.sleep(0.05)
        child = psutil.Process(int(started[0].name.split("-")[2]))
        worker = child.parent()
        assert worker is not None
        worker.send_signal(signal.SIGKILL)
        killed.extend([worker, child])

    thread = threading.Thread(target=kill)
    thread.start()
    states = run(one, machine)
    thread.join()
    assert states == {f"count {i}/6": "Completed" for i in range(1, 7)}
    assert built_rows(one) == [*range(40)]
    assert not psutil.wait_procs(killed, timeout=10)[1]
    assert len(list(one.folder.glob("begun-*"))) > len(SPANS)
    assert capfd.readouterr().out == ""


def test_an_input_error_is_raised_unchanged(machine: Machine, job: Callable[..., Job]) -> None:
    with pytest.raises(InputError, match=r"^row 0 is wrong$"):
        run(job(bad="input"), machine)
    nobody_works()


def test_a_part_whose_workers_always_die_is_reported_in_one_line(machine: Machine, job: Callable[..., Job]) -> None:
    with pytest.raises(RuntimeError, match=r"^count 1/6: Ray gave it up after 3 retries: ") as error:
        run(job(bad="deadly"), machine)
    assert "\n" not in str(error.value)


def test_an_interrupted_run_leaves_no_worker_running(machine: Machine, job: Callable[..., Job]) -> None:
    one = job(seconds=60.0)

    def interrupt(*arguments: Any) -> None:
        if list(one.folder.glob("begun-*")):
            assert children()
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run(one, machine, interrupt)
    nobody_works()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_cluster_is_checked_before_long_work(machine: Machine, tmp_path: Path) -> None:
    from prefect.settings import PREFECT_API_URL

    ray_cluster.check_cluster(machine, tmp_path / "store", PREFECT_API_URL.value(), print)
    assert not list((tmp_path / "store").iterdir())
    with pytest.raises(InputError, match=r"machine\.ray: .* does not reach Prefect at http://127\.0\.0\.1:9/api"):
        ray_cluster.check_cluster(machine, tmp_path / "store", "http://127.0.0.1:9/api", print)
    with pytest.raises(InputError, match="has no GPU"):
        run(Job("counting:count", {}, tmp_path, SPANS, "things"), machine.model_copy(update={"device": "cuda"}))


def test_a_local_cluster_ends_with_the_stage(machine: Machine, job: Callable[..., Job]) -> None:
    before = raylets()
    one = job()
    run(one, machine.model_copy(update={"ray": "local", "workers": 2}))
    assert built_rows(one) == [*range(40)]
    wait_until_gone(lambda: raylets() - before)
