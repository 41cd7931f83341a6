"""What all flows do with their nodes: build each as a task, and check what the first ones gave."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Failed

from artifacts.errors import Damaged, StoreError
from artifacts.live import live
from artifacts.records import Ref
from artifacts.runs import in_file_name, record_run, stamp
from artifacts.store import Store
from flows.graph import early_checks, preflight
from flows.graph.prepare import Run
from flows.recipes import yaml_layers
from flows.recipes.yaml_layers import RECIPES, Family
from pipeline.errors import InputError
from tasks import page, ray_cluster
from tasks.node import Node
from tasks.run import stage, tell
from tasks.stages import STAGES
from tasks.tracking import Logs, Tracking


@dataclass
class Done:
    """How far a run has come."""

    refs: dict[str, Ref] = field(default_factory=dict)
    """The artifacts that are there, by their nodes."""
    failed: dict[str, str] = field(default_factory=dict)
    """What failed, a node or a row of an ablation, and why."""
    left_out: set[str] = field(default_factory=set)
    """Nodes that need not be built any more."""

    def has_inputs(self, node: Node) -> bool:
        return all(given is None or given.name in self.refs for given in node.inputs.values())


Ready = Callable[[str, Done], None]
"""Called with a node's name once its artifact is there. Raises InputError for what will fail with it."""


def run_graph(run: Run[Any], ready: Ready, show: Callable[[Done], None]) -> dict[str, Ref]:
    """Builds the artifacts of a run in order, a task each, records the run, and shows it: all flows' loop.

    `ready` is called after each node, `show` after the record. Where the run `continues` after a failure, a node is
    built if its inputs are there, and a failing run is recorded too.
    """
    if preflight.on_ray(run.store, list(run.dag), run.wanted, run.machine, run.refreshed):
        ray_cluster.check(run.machine, run.store.root, PREFECT_API_URL.value(), get_run_logger().info)
    page.best_effort(page.show_recipe, run.details)
    begun, done = run_created(), Done()
    logs = None if run.tracking is None else logs_of(run.tracking, run.store.root, run.name, begun)

    def build_all() -> dict[str, Ref]:
        nonlocal done
        done = Done({**run.before()})
        for order in run.orders:
            node = order.node
            if node.name in done.left_out or not done.has_inputs(node):
                continue
            inputs = {name: done.refs[given.name] if given else None for name, given in node.inputs.items()}
            order = replace(order, refresh_since=begun if node.name in run.refreshed else None, logs=logs)
            try:
                state: State[Any] = stage.with_options(name=node.name)(order, inputs, return_state=True)
                done.refs[node.name] = state.result()
            except Damaged:
                raise
            except Exception as error:
                if not run.continues:
                    raise
                done.failed[node.name] = reason(error)
                said = "%s failed; what does not read it is built nevertheless: %s"
                get_run_logger().error(said, node.name, reason(error), exc_info=not is_known(error))
                continue
            ready(node.name, done)
        return done.refs

    def record() -> None:
        record_run(run.store, run.name, done.refs, run.details, begun)

    with live(run.store, run.name):
        try:
            until_whole(run.store, build_all, run.wanted)
        except BaseException:
            if run.continues:
                record()
            raise
        record()
        show(done)
    return done.refs


def reason(error: Exception) -> str:
    return str(error) if is_known(error) else f"{type(error).__name__}: {error}"


def is_known(error: Exception) -> bool:
    """Whether its text alone says what went wrong."""
    return isinstance(error, RuntimeError | InputError | StoreError)


def run_name(run: Run[Any] | None, parameter: str, family: Family = RECIPES) -> str:
    """Of a flow run, once it begins: the recipe's name. `parameter`: the flow's that names it, where `run` is None."""
    return str(run.recipe.name) if run else yaml_layers.called(flow_run.parameters[parameter], family)


def name_or_file(names: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a parameter that names a recipe: the page's form offers `names`, or takes a file's path."""
    return {
        "anyOf": [
            {"title": "One of the project's", "type": "string", "enum": [*names]},
            {"title": "A YAML file", "type": "string"},
        ]
    }


def refused(error: Exception) -> State[Any]:
    """The state of a run whose parameters are at fault: one line on its page, and no traceback."""
    return Failed(message=str(error))


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
