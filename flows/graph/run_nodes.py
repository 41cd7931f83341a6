"""What all flows do with their nodes: look ahead, run each as a task, and check what the first ones gave."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL

from artifacts.errors import Damaged
from artifacts.records import Ref
from artifacts.runs import in_file_name, stamp
from artifacts.store import Store
from flows.graph import early_checks, preflight
from pipeline.errors import InputError
from pipeline.runtime.work import Machine
from tasks import ray_cluster
from tasks.node import Node, Order
from tasks.run import stage, tell
from tasks.stages import STAGES
from tasks.tracking import Logs, Tracking


def look_ahead(
    store: Store,
    dag: Iterable[Node],
    wanted: Sequence[Node],
    machine: Machine,
    tracking: Tracking | None = None,
    refreshed: Iterable[str] = (),
) -> None:
    """Raises InputError for what can be known to fail; prepares the cluster where parts will be made on one."""
    dag = list(dag)
    preflight.check(store, dag, wanted, machine, tracking)
    if preflight.on_ray(store, dag, wanted, machine, refreshed):
        ray_cluster.check(machine, store.root, PREFECT_API_URL.value(), get_run_logger().info)


def until_whole(store: Store, make: Callable[[], Mapping[str, Ref]], wanted: Iterable[Node]) -> None:
    """Calls `make`, which gives the artifacts of `wanted`, until none of them was found damaged.

    It is called again where an artifact that a stage was to read, or that is shown to the user, is not as it was
    written: that is set aside by then, and built again. Raises `Damaged` where the same occurs twice.
    Where `wanted` is not all that they read, what was damaged may be another's: `make` says what is missing then.
    """
    wanted = list(wanted)
    names = {node.name for node in wanted}
    complete = all(given.name in names for node in wanted for given in node.inputs.values() if given is not None)
    seen: set[str] = set()
    while True:
        try:
            refs = make()
            store.check(refs[node] for node in nodes_to_check(wanted) if node in refs)
            return
        except Damaged as error:
            if str(error) in seen:
                raise
            seen.add(str(error))
            tell(f"{error}; it is built again" if complete else str(error))


def nodes_to_check(wanted: Iterable[Node]) -> list[str]:
    """The nodes whose files a user is shown at the end: those that no other reads, and what the terminal tells of."""
    wanted = list(wanted)
    read = {given.name for node in wanted for given in node.inputs.values() if given is not None}
    return [node.name for node in wanted if node.name not in read or STAGES[node.stage].shown]


def run(
    node: Node,
    refs: Mapping[str, Ref],
    machine: Machine,
    recipe: str,
    store: Path,
    logs: Logs | None = None,
    keep: bool = False,
    refresh_since: datetime | None = None,
    width: int = 18,
) -> State[Any]:
    """One task on the page: the node's artifact, from those of its inputs among `refs`, by their names.

    `logs`: where trainings are followed. `refresh_since`: build again what is older. `width`: of the names' column in
    the terminal.
    """
    order = Order(
        node=node,
        machine=machine,
        store=store,
        recipe=recipe,
        keep=keep,
        refresh_since=refresh_since,
        logs=logs,
        width=width,
    )
    inputs = {name: refs[given.name] if given else None for name, given in node.inputs.items()}
    state: State[Any] = stage.with_options(name=node.name)(order, inputs, return_state=True)
    return state


def logs_of(tracking: Tracking, store: Path, name: str, begun: datetime) -> Logs:
    """STORE/logs/NAME/TIME."""
    return Logs(tracking, store / "logs", f"{in_file_name(name).lstrip('.') or '_'}/{stamp(begun)}")


def check_first(name: str, refs: Mapping[str, Ref], wanted: list[Node]) -> None:
    """Called once node `name` exists: raises InputError for what in `wanted` will fail with it.

    Raises `Damaged` where the reason may be that an artifact is not as it was written.
    """
    try:
        early_checks.check(name, refs, wanted)
    except InputError:
        Store.of(refs[name]).check([refs[name]])
        raise


def run_created() -> datetime:
    """When the flow run was made: a retry of the run does not build again what the run itself has built."""
    context = FlowRunContext.get()
    created = context.flow_run.created if context and context.flow_run else None
    return created or datetime.now(UTC)
