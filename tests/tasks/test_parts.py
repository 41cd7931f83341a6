"""Parts of a stage without a cluster: how a job is split, what one part does, what is reported before long work."""

import asyncio
import importlib
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import make_machine
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.events.clients import AssertingEventsClient, EventsClient
from prefect.events.schemas.events import Event
from prefect.events.worker import EventsWorker
from pydantic import ValidationError

from artifacts.store import Store
from flows.dag import nodes
from flows.graph.preflight import check, on_ray
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from pipeline.runtime.shards import name, row_count
from pipeline.runtime.work import Job, Machine, Metrics, Work
from tasks import ray_cluster, ray_shards
from tasks.ray_shards import Part, cut_job
from tasks.stages import STAGES, Stage

SPANS = [(0, 2), (2, 9), (9, 10), (10, 17), (17, 20)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("counting:count", {"folder": str(tmp_path), "spans": SPANS}, tmp_path, SPANS, "things")


def build_in_flow(part: Part) -> State[Any]:
    @flow
    def around() -> Any:
        return ray_shards.build_part(part, return_state=True)

    return around()


def test_parts_are_of_similar_size_and_hold_every_shard_once(job: Job, machine: Machine) -> None:
    parts = cut_job("encode-stage1", job, machine, 2)
    assert [part.name for part in parts] == ["encode-stage1 1/2", "encode-stage1 2/2"]
    assert [list(part.numbers) for part in parts] == [[1, 4, 2], [3, 0]]
    assert [row_count(SPANS, part.numbers) for part in parts] == [11, 9]
    assert [list(part.numbers) for part in cut_job("a", job, machine, 99)] == [[1], [3], [4], [0], [2]]


def test_a_part_is_finished_when_all_its_shards_are(job: Job, machine: Machine) -> None:
    for number in (3, 4, 0):
        np.save(job.folder / name(number), np.arange(row_count(SPANS, [number])))
    assert [part.finished for part in cut_job("a", job, machine, 2)] == [False, True]
    np.save(job.folder / name(0), np.arange(9))  # of another size
    assert [part.finished for part in cut_job("a", job, machine, 2)] == [False, False]


@pytest.mark.usefixtures("harness")
def test_a_part_builds_only_its_own_shards(job: Job, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(function: str, arguments: dict, machine: Machine, progress: Any, checkpoints: Path, kept: int) -> dict:
        module, called = function.split(":")
        return getattr(importlib.import_module(module), called)(progress=progress, device="cpu", **arguments)

    monkeypatch.setattr(ray_shards, "launch", launch)
    first, second = cut_job("a", job, machine, 2)
    assert build_in_flow(first).name == "Completed"
    assert {path.name for path in job.folder.glob("*.npy")} == {name(i) for i in (1, 4, 2)}
    cached = build_in_flow(cut_job("a", job, machine, 2)[0])
    assert (cached.name, cached.message) == ("Cached", "3 shards")
    build_in_flow(second)
    assert np.concatenate([np.load(job.folder / name(i)) for i in range(5)]).tolist() == [*range(20)]


@pytest.mark.usefixtures("harness")
def test_a_part_ends_after_its_state_was_sent_to_the_page(
    job: Job, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray may end a worker with its last part; what the worker has not sent by then is lost."""
    sent: list[str] = []

    async def slowly(_client: EventsClient, event: Event) -> None:
        await asyncio.sleep(0.2)
        sent.append(event.event)

    monkeypatch.setattr(AssertingEventsClient, "_emit", slowly)

    @flow  # the end of a flow itself would wait for all events
    def around(part: Part) -> list[str]:
        ray_shards.build_part(part, return_state=True)
        return [*sent]

    monkeypatch.setattr(ray_shards, "launch", lambda *_: {})
    whole = cut_job("a", job, machine, 1)[0]
    EventsWorker.set_client_override(AssertingEventsClient)
    try:
        assert "prefect.task-run.Completed" in around(whole)
        assert "prefect.task-run.Failed" in around(replace(whole, folder=job.folder / "elsewhere"))
    finally:
        EventsWorker.set_client_override(None)


@pytest.mark.usefixtures("harness")
def test_a_machine_without_the_store_is_reported(job: Job, machine: Machine, tmp_path: Path) -> None:
    part = replace(cut_job("a", job, machine, 1)[0], folder=tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"machine.ray: {socket.gethostname()} does not see .*elsewhere: all machines"):
        build_in_flow(part).result()


@pytest.mark.parametrize("address", ["local", "auto", "head:6379", "10.0.0.1:6379", "ray://head:10001"])
def test_addresses_of_a_cluster_are_accepted(address: str) -> None:
    assert make_machine(ray=address).ray == address


@pytest.mark.parametrize("address", ["", "head", "http://head:6379", "head:port", "Local"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="local, auto, HOST:PORT or ray://HOST:PORT"):
        make_machine(ray=address)


@pytest.fixture
def nowhere() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_does_not_answer_is_reported_before_the_run(nowhere: str, scheme: str, tmp_path: Path) -> None:
    dag = nodes(resolve("tiny"))
    selected = [node for node in dag if node.stage == "encode"]
    address = f"{scheme}{nowhere}"
    with pytest.raises(InputError) as error:
        check(Store(tmp_path), dag, selected, make_machine(ray=address))
    line = f"machine.ray: {address}: no Ray cluster answers (connection refused); `ray start --head` starts one"
    assert str(error.value) == line


def test_ray_is_needed_only_if_it_has_parts_to_build(nowhere: str, tmp_path: Path) -> None:
    dag = nodes(resolve("tiny"))
    store, far = Store(tmp_path), make_machine(ray=nowhere)
    without = [node for node in dag if not STAGES[node.stage].parts]
    check(store, dag, without, far)
    assert not on_ray(store, dag, dag, make_machine())
    assert on_ray(store, dag, dag, far)


def test_missing_ray_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None if name == "prefect_ray" else name)
    ray_cluster.check_address(None)
    with pytest.raises(InputError, match=r"machine\.ray: Ray is not installed: pip install 'cocondenser\[ray\]'"):
        ray_cluster.check_address("local")


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("store", False, r"does not see .*: all machines of the cluster must see the store"),
        ("writable", False, "may not write in"),
        ("code", "another", "has another version of cocondenser"),
        (
            "libraries",
            {"torch": "1.0", "numpy": "2", "faiss": "1"},
            r"has torch 1\.0, this machine \d.*: vectors would differ",
        ),
        ("page", False, r"does not reach Prefect at http://server/api: `prefect server start --host 0\.0\.0\.0`"),
    ],
)
def test_what_a_machine_of_the_cluster_lacks_is_reported(field: str, value: object, line: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("token")
    seen = ray_cluster.inspect_machine(str(token), None)
    assert ray_cluster.complaint(seen, tmp_path, None) is None
    complaint = ray_cluster.complaint({**seen, field: value}, tmp_path, "http://server/api")
    assert complaint is not None
    assert re.search(line, complaint)


def test_an_inspection_reports_store_page_and_code(tmp_path: Path, nowhere: str) -> None:
    (tmp_path / "token").write_text("another's")
    seen = ray_cluster.inspect_machine(str(tmp_path / "token"), f"http://{nowhere}/api")
    assert (seen["store"], seen["page"], seen["code"]) == (False, False, ray_cluster.code())


@pytest.mark.usefixtures("harness")
@pytest.mark.parametrize(
    ("ray", "has_parts", "elsewhere", "turns"), [("local", True, 1, 0), ("local", False, 0, 1), (None, True, 0, 1)]
)
def test_a_stage_on_ray_leaves_the_gpus_to_its_parts(
    ray: str | None, has_parts: bool, elsewhere: int, turns: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    from letters import letter
    from test_run import order, run

    seen: list[Callable[..., None] | None] = []
    taken: list[str] = []

    def recording(config: Any, before: Path | None, work: Work) -> Metrics:
        seen.append(work.elsewhere)
        return letter(config, before, work)

    def turn(device: str, on_wait: Callable[[int], None]) -> nullcontext[None]:
        taken.append(device)
        return nullcontext()

    monkeypatch.setitem(STAGES, "letter", Stage(recording, gpu=True, parts=has_parts))
    monkeypatch.setattr("tasks.run.turn_on_gpus", turn)
    run(order(store, make_machine(ray=ray), "a"), {"before": None})
    assert (sum(one is not None for one in seen), len(taken)) == (elsewhere, turns)
