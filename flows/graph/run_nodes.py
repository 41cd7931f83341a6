"""Builds the nodes of a flow, each as a task, and checks the first artifacts for later failures."""

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
from artifacts.live import protect_from_gc
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
from tasks.run import report_line, stage
from tasks.stages import STAGES
from tasks.tracking import Logs, Tracking


@dataclass
class Done:
    """The progress of a run."""

    refs: dict[str, Ref] = field(default_factory=dict)
    """The finished artifacts, by node."""
    failed: dict[str, str] = field(default_factory=dict)
    """{node, or row of an ablation: why it failed}."""
    left_out: set[str] = field(default_factory=set)
    """Nodes that are no longer needed."""

    def has_inputs(self, node: Node) -> bool:
        return all(source is None or source.name in self.refs for source in node.inputs.values())


Ready = Callable[[str, Done], None]
"""Called with a node's name once its artifact exists. Raises InputError if a later node will fail with it."""


def run_graph(run: Run[Any], ready: Ready, show: Callable[[Done], None]) -> dict[str, Ref]:
    """Builds the artifacts of a run in order, each in a task, records the run, and shows it. All flows call it.

    `ready` is called after each node, `show` after the record. If the run `continues` after a failure, a node is built
    if its inputs exist, and a failed run is recorded too.
    """
    if preflight.on_ray(run.store, list(run.dag), run.wanted, run.machine, run.refreshed):
        ray_cluster.check_cluster(run.machine, run.store.root, PREFECT_API_URL.value(), get_run_logger().info)
    page.best_effort(page.show_recipe, run.details)
    started_at, done = run_created(), Done()
    logs = None if run.tracking is None else logs_of(run.tracking, run.store.root, run.name, started_at)

    def build_all() -> dict[str, Ref]:
        nonlocal done
        done = Done({**run.before()})
        for order in run.orders:
            node = order.node
            if node.name in done.left_out or not done.has_inputs(node):
                continue
            inputs = {name: done.refs[source.name] if source else None for name, source in node.inputs.items()}
            order = replace(order, refresh_since=started_at if node.name in run.refreshed else None, logs=logs)
            try:
                state: State[Any] = stage.with_options(name=node.name)(order, inputs, return_state=True)
                done.refs[node.name] = state.result()
            except Damaged:
                raise
            except Exception as error:
                if not run.continues:
                    raise
                done.failed[node.name] = reason(error)
                message = "%s failed; nodes that do not read it are still built: %s"
                get_run_logger().error(message, node.name, reason(error), exc_info=not is_known(error))
                continue
            ready(node.name, done)
        return done.refs

    def record() -> None:
        record_run(run.store, run.name, done.refs, run.details, started_at)

    with protect_from_gc(run.store, run.name):
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
    """Whether its message alone says what is wrong."""
    return isinstance(error, RuntimeError | InputError | StoreError)


def run_name(run: Run[Any] | None, parameter: str, family: Family = RECIPES) -> str:
    """The name of a flow run: the recipe's name. `parameter`: the flow's parameter that has it, if `run` is None."""
    return str(run.recipe.name) if run else yaml_layers.called(flow_run.parameters[parameter], family)


def name_or_file(names: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of a parameter that names a recipe: the page's form offers `names`, and accepts a file's path."""
    return {
        "anyOf": [
            {"title": "One of the project's", "type": "string", "enum": [*names]},
            {"title": "A YAML file", "type": "string"},
        ]
    }


def refused(error: Exception) -> State[Any]:
    """The state of a run with wrong parameters: one line on its page, without a traceback."""
    return Failed(message=str(error))


def until_whole(store: Store, build: Callable[[], Mapping[str, Ref]], wanted: Iterable[Node]) -> None:
    """Calls `build`, which returns the artifacts of `wanted`, until none of them is damaged.

    If a stage's input, or an artifact that the user sees, differs from what was written, it is set aside and built
    again. Raises `Damaged` if the same damage occurs twice. If `wanted` does not include all inputs, the damaged
    artifact may be one that is not built here; `build` then reports that it is missing.
    """
    wanted = list(wanted)
    names = {node.name for node in wanted}
    complete = all(source.name in names for node in wanted for source in node.inputs.values() if source is not None)
    seen: set[str] = set()
    while True:
        try:
            refs = build()
            store.check(refs[node] for node in nodes_to_check(wanted) if node in refs)
            return
        except Damaged as error:
            if str(error) in seen:
                raise
            seen.add(str(error))
            report_line(f"{error}; it is built again" if complete else str(error))


def nodes_to_check(wanted: Iterable[Node]) -> list[str]:
    """The nodes whose files the user sees at the end: those that no other node reads or that the terminal shows."""
    wanted = list(wanted)
    read = {source.name for node in wanted for source in node.inputs.values() if source is not None}
    return [node.name for node in wanted if node.name not in read or STAGES[node.stage].shown]


def logs_of(tracking: Tracking, store: Path, name: str, started_at: datetime) -> Logs:
    """STORE/logs/NAME/TIME."""
    return Logs(tracking, store / "logs", f"{in_file_name(name).lstrip('.') or '_'}/{stamp(started_at)}")


def check_later_nodes(name: str, refs: Mapping[str, Ref], wanted: list[Node]) -> None:
    """Called once the artifact of node `name` exists. Raises InputError if a node in `wanted` will fail with it.

    Raises `Damaged` if the reason may be a damaged artifact.
    """
    try:
        early_checks.check(name, refs, wanted)
    except InputError:
        Store.of(refs[name]).check([refs[name]])
        raise


def run_created() -> datetime:
    """The time at which the flow run was created. A retry does not build again what the run itself has built."""
    context = FlowRunContext.get()
    created = context.flow_run.created if context and context.flow_run else None
    return created or datetime.now(UTC)
