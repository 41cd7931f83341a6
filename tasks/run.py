"""The one task of the flow: a stage's artifact, taken from the store or built."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed
from rich.markup import escape

from artifacts import dates
from artifacts.build_clock import Clock
from artifacts.keys import Key, code_hash
from artifacts.locks import Holder
from artifacts.records import Ref
from artifacts.store import Built, Store
from pipeline.notices import read_notices
from pipeline.runtime.checkpoints import saved_state
from pipeline.runtime.work import Metrics, Progress, Work
from tasks import page, tracking
from tasks.keys import key_of, without_paths
from tasks.lineage import steps
from tasks.locks import gpus, turn_on_gpus
from tasks.node import Order
from tasks.notices import with_notices
from tasks.ray_shards import spread
from tasks.stages import STAGES
from tasks.terminal import bar, duration, lines, say

EARLIER = 32
"""Artifacts at most that a stage may take parts of."""


# The store decides what is reused: Prefect's own cache knows neither the code nor whether the files still exist.
@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="{order.node.name}")
def stage(order: Order, inputs: Mapping[str, Ref | None]) -> State[Ref]:
    """Builds the artifact of a stage, or finds it; a state named Cached tells that it was there."""
    since = time.monotonic()
    built = build(order, inputs)
    how = "kept from older code" if built.kept else "cached" if built.hit else "built"
    took = duration(time.monotonic() - since)
    get_run_logger().info("%s %s in %s: %s", order.node.name, how, took, built.ref.digest)
    colour = "cyan" if built.hit else "green"
    say(f"  {order.node.name:<{order.width}} [{colour}]{how:<6}[/] [dim]{took:>8}  {built.ref.digest[:12]}[/]")
    for line in read_notices(built.ref.metrics):
        tell(f"{order.node.name}: {line}")
    page.best_effort(page.show_metrics, order.node.name, built.ref, how, since)
    page.best_effort(page.show_loss, order.node.name, built.ref.path)
    page.best_effort(page.show_pictures, order.node.name, built.ref.path)
    return Completed(name="Cached" if built.hit else "Completed", message=built.ref.digest, data=built.ref)


def build(order: Order, inputs: Mapping[str, Ref | None]) -> Built:
    """The artifact from the store, made by the stage's function where it is not there."""
    store, node = Store(order.store), order.node
    entry = STAGES[node.stage]
    key = key_of(store, node.stage, node.config, inputs, node.shared)
    on_ray = entry.parts and order.machine.ray is not None  # where each part takes the turn of its own GPU
    computes = entry.gpu and order.machine.device != "cpu"
    clock = Clock()

    def held() -> int | None:
        """GPUs that the stage holds; those of other machines are not known here."""
        elsewhere = on_ray or order.machine.torchrun
        return None if computes and elsewhere else len(gpus()) if computes else 0

    def make(out: Path, checkpoints: Path) -> Metrics:
        folders = {name: ref.path if ref is not None else None for name, ref in inputs.items()}
        turn = turn_on_gpus(order.machine.device, wait_for_gpu) if entry.gpu and not on_ray else nullcontext()
        if state := saved_state(checkpoints):
            tell(f"{node.name}: goes on from update {state['step']:,}")
        if order.machine.torchrun and "optimiser" in type(node.config).model_fields:
            tell(f"{node.name}: other nodes take part by `cocondenser join --store {order.store}`")
        in_log = lines(node.name, get_run_logger().info)
        log = tracking.live(order.logs, node.name, node.stage, without_paths(node.config), checkpoints, out)
        with (
            log as in_trackers,  # first, and so the last to end: what a tracker takes then holds no GPU
            turn,
            bar(node.name) as in_terminal,
            page.live(node.name) as on_page,
            clock.at_work(checkpoints.parent),
        ):
            before = earlier(store, key, order.refresh_since) if entry.earlier else []
            progress = each(in_terminal, on_page, in_log, in_trackers)
            elsewhere = partial(spread, node.name, progress) if on_ray else None
            work = Work(out, checkpoints, order.machine, progress, before, elsewhere)
            lineage = {"lineage": steps(store, inputs)} if entry.lineage else {}
            metrics = entry.function(node.config, **node.shared, **folders, **lineage, work=work)
            return with_notices(entry.notices, metrics)

    def wait_for_gpu(index: int) -> None:
        tell(f"{node.name}: waiting for GPU {index}, which another run holds")

    def wait_for(holder: Holder) -> None:
        tell(f"{node.name}: waiting for process {holder.pid} on {holder.host}, which is building it")

    def damaged(line: str) -> None:
        tell(f"{node.name}: {line}; it is built again")

    return store.build(
        key,
        make,
        node=node.name,
        identity=entry.identity,
        recipe=order.recipe,
        keep=order.keep,
        refresh_since=order.refresh_since,
        on_wait=wait_for,
        on_damage=damaged,
        gpus=held,
        clock=clock,
        reads=inputs,
    )


def earlier(store: Store, key: Key, since: datetime | None) -> list[Path]:
    """Whole artifacts that the code of `key` has made of anything, newest first; with `since` none that is older."""
    same = (key.code, *key.equivalent.code)
    made = (
        record
        for record in store.records(key.stage)
        if (record.code in same or code_hash(record.code) in same)
        and (record.libraries, record.kept_from) == (key.libraries, None)
        and (since is None or dates.age(record.created) >= (True, since))
    )
    return [store.ref(record).path for record in islice(made, EARLIER) if store.problem(record) is None]


def tell(text: str) -> None:
    get_run_logger().info(text)
    say(f"  [yellow]{escape(text)}[/]")


def each(*given: Progress) -> Progress:
    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, Any] | None = None) -> None:
        for one in given:
            one(done, total, unit, numbers)

    return progress
