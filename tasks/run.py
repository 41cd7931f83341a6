"""The one task of the flow: a stage's artifact, from the store, or built now."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from artifacts.store import Built, Hooks, Request, Store
from pipeline.formatting import counted
from pipeline.notices import read_notices
from pipeline.runtime import bfloat16
from pipeline.runtime.checkpoints import saved_state
from pipeline.runtime.launch import device_of, precision_of
from pipeline.runtime.precision import Precision
from pipeline.runtime.work import Metrics, Progress, Work
from tasks import page, tracking
from tasks.keys import key_of, without_paths
from tasks.lineage import steps
from tasks.locks import gpus, turn_on_gpus
from tasks.node import Node, Order
from tasks.notices import with_notices
from tasks.ray_shards import spread
from tasks.stages import STAGES
from tasks.terminal import bar, duration, first_to_report, lines, log_lines, print_line

EARLIER = 32
"""Maximum number of earlier artifacts whose parts a stage may reuse."""


# The store decides what is reused: Prefect's own cache knows neither the code nor whether the files still exist.
@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="{order.node.name}")
def stage(order: Order, inputs: Mapping[str, Ref | None]) -> State[Ref]:
    """The artifact of a node, from the store or built now. The state's name is Cached if the store had it."""
    started_at, node, store, entry = time.monotonic(), order.node, Store(order.store), STAGES[order.node.stage]
    request = Request(
        key_of(store, node.stage, node.config, inputs, node.shared),
        node=node.name,
        identity=entry.identity,
        recipe=order.recipe,
        keep=order.keep,
        refresh_since=order.refresh_since,
        reads=inputs,
    )
    clock = Clock()
    turn = partial(turn_on_gpus, order.machine.device, partial(report_gpu, node))
    precision: Precision | None = None

    def make(out: Path, checkpoints: Path) -> Metrics:
        nonlocal precision
        folders = {name: ref.path if ref is not None else None for name, ref in inputs.items()}
        with at_work(order, out, checkpoints, clock, turn) as progress:
            lineage = {"lineage": steps(store, inputs)} if entry.lineage else {}
            before = earlier(store, request.key, order.refresh_since) if entry.earlier else []
            elsewhere = partial(spread, node.name, progress) if is_on_ray(order) else None
            precision = known_precision(order, checkpoints)
            machine = order.machine.model_copy(update={"precision": precision}) if precision else order.machine
            work = Work(out, checkpoints, machine, progress, before, elsewhere, store.kept / node.stage, turn)
            metrics = entry.function(node.config, **node.shared, **folders, **lineage, work=work)
            return with_notices(entry.notices, metrics, entry.section_of(node.name))

    built = store.build(request, make, hooks(order, clock, lambda: precision))
    report_artifact(node, built, started_at, order.width)
    return Completed(name="Cached" if built.hit else "Completed", message=built.ref.digest, data=built.ref)


def is_on_ray(order: Order) -> bool:
    """Whether its parts are built on a Ray cluster, where each part waits for its own GPU."""
    return STAGES[order.node.stage].parts and order.machine.ray is not None


def known_precision(order: Order, checkpoints: Path) -> Precision | None:
    """Returns the precision of the stage's model, and logs it. None: no model, or a Ray cluster decides."""
    machine, entry = order.machine, STAGES[order.node.stage]
    if not entry.gpu or (is_on_ray(order) and machine.precision == "auto"):
        return None
    precision = "float32" if entry.float32 else precision_of(machine, checkpoints)
    get_run_logger().info("%s: computes in %s", order.node.name, precision)
    if saved_state(checkpoints) and machine.precision not in ("auto", precision):
        report_line(f"{order.node.name}: keeps {precision}, the precision of its checkpoint")
    if precision == "bfloat16" and device_of(machine) == "cpu" and bfloat16.speedup() < 1:
        ratio = f"{bfloat16.speedup():.2g} times as fast as float32"
        report_line(f"{order.node.name}: machine.precision: bfloat16 is {ratio} on this processor")
    return precision


@contextmanager
def at_work(
    order: Order, out: Path, checkpoints: Path, clock: Clock, turn: Callable[[], AbstractContextManager[None]]
) -> Iterator[Progress]:
    """Surrounds a stage's function: holds the GPUs, measures the time, and shows the progress."""
    node, machine, entry = order.node, order.machine, STAGES[order.node.stage]
    waits = entry.gpu and not entry.takes_turns and not is_on_ray(order)
    if state := saved_state(checkpoints):
        report_line(f"{node.name}: resumes from update {state['step']:,}")
    if machine.torchrun and "optimiser" in type(node.config).model_fields:
        report_line(f"{node.name}: other nodes take part by `cocondenser train-node --store {order.store}`")
    with (
        # entered first, so it ends last: a slow tracker then holds no GPU
        tracking.tracked_progress(
            order.logs, node.name, node.stage, without_paths(node.config), checkpoints, out
        ) as in_trackers,
        turn() if waits else nullcontext(),
        bar(node.name) as in_terminal,
        page.progress_artifact(node.name) as on_page,
        clock.at_work(checkpoints.parent),
        log_lines(lambda line: report_line(f"{node.name}: {line}")),
    ):
        yield each(in_terminal, on_page, lines(node.name, get_run_logger().info), in_trackers)


def report_gpu(node: Node, index: int) -> None:
    report_line(f"{node.name}: waiting for GPU {index}, which another run holds")


def hooks(order: Order, clock: Clock, precision: Callable[[], str | None]) -> Hooks:
    """Returns what the store calls: messages while it waits or sets an artifact aside, and what its record counts."""
    node, machine = order.node, order.machine
    computes = STAGES[node.stage].gpu and machine.device != "cpu"

    def wait_for(holder: Holder) -> None:
        report_line(f"{node.name}: waiting for process {holder.pid} on {holder.host}, which is building it")

    def damaged(line: str) -> None:
        report_line(f"{node.name}: {line}; it is built again")

    def held() -> int | None:
        """Returns the number of GPUs that the stage holds; those of other machines are not known here."""
        elsewhere = is_on_ray(order) or machine.torchrun
        return None if computes and elsewhere else len(gpus()) if computes else 0

    return Hooks(on_wait=wait_for, on_damage=damaged, gpus=held, precision=precision, clock=clock)


def report_artifact(node: Node, built: Built, started_at: float, width: int) -> None:
    """Reports a node's artifact in the log, the terminal and the page. `started_at`: by the monotonic clock."""
    how = "kept from older code" if built.kept else "cached" if built.hit else "built"
    took = duration(time.monotonic() - started_at)
    get_run_logger().info("%s %s in %s: %s", node.name, how, took, built.ref.digest)
    colour = "cyan" if built.hit else "green"
    sizes = [
        counted(int(built.ref.metrics[name] or 0), what)
        for name, what in STAGES[node.stage].sizes.items()
        if name in built.ref.metrics
    ]
    what = f"  {', '.join(sizes)}" if sizes else ""
    print_line(f"  {node.name:<{width}} [{colour}]{how:<6}[/] [dim]{took:>8}  {built.ref.digest[:12]}{what}[/]")
    report_notices(node.name, read_notices(built.ref.metrics))
    page.best_effort(page.show_metrics, node.name, built.ref, how, started_at)
    page.best_effort(page.show_loss, node.name, built.ref.path)
    page.best_effort(page.show_pictures, node.name, built.ref.path)


def report_notices(node: str, notices: Sequence[str]) -> None:
    """Reports notices. Those that another node has reported word for word are counted, such as `ingest-whole`'s."""
    equal: Counter[str] = Counter()
    for notice in notices:
        first = first_to_report(notice, node)
        if first == node:
            report_line(f"{node}: {notice}")
        else:
            equal[first] += 1
    for first, count in equal.items():
        report_line(f"{node}: {counted(count, 'notices')} as for {first}")


def earlier(store: Store, key: Key, since: datetime | None) -> list[Path]:
    """Returns complete artifacts that the code of `key` built from any input, newest first; none older than `since`."""
    same = (key.code, *key.equivalent.code)
    artifacts_of_code = (
        record
        for record in store.records(key.stage)
        if (record.code in same or code_hash(record.code) in same)
        and (record.libraries, record.kept_from) == (key.libraries, None)
        and (since is None or dates.age(record.created) >= (True, since))
    )
    return [store.ref(record).path for record in islice(artifacts_of_code, EARLIER) if store.problem(record) is None]


def report_line(text: str) -> None:
    get_run_logger().info(text)
    print_line(f"  [yellow]{escape(text)}[/]")


def each(*given: Progress) -> Progress:
    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, Any] | None = None) -> None:
        for one in given:
            one(done, total, unit, numbers)

    return progress
