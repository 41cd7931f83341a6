"""What all flows do with their nodes: look ahead, run each as a task, and check what the first ones gave."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL

from artifacts.records import Ref
from artifacts.runs import in_file_name, stamp
from artifacts.store import Store
from flows import checks, preflight
from flows.dag import Node
from flows.recipe import Recipe
from pipeline.work import Machine
from tasks import cluster
from tasks.run import Order, stage
from tasks.tracking import Logs, Tracking


def look_ahead(
    store: Store,
    dag: Iterable[Node],
    wanted: Sequence[Node],
    machine: Machine,
    tracking: Tracking | None = None,
    anew: Iterable[str] = (),
) -> None:
    """Raises InputError for what can be known to fail; prepares the cluster where parts will be made on one."""
    dag = list(dag)
    preflight.check(store, dag, wanted, machine, tracking)
    if preflight.on_ray(store, dag, wanted, machine, anew):
        cluster.check(machine, store.root, PREFECT_API_URL.value(), get_run_logger().info)


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

    `logs`: where trainings are followed. `refresh_since`: build anew what is older. `width`: of the names' column in
    the terminal.
    """
    order = Order(
        node=node.name,
        stage=node.stage,
        config=node.config,
        shared=node.shared,
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


def check_first(name: str, refs: Mapping[str, Ref], recipe: Recipe, wanted: list[Node]) -> None:
    """Told when node `name` is there: what of `wanted` is bound to fail with it. Raises InputError."""
    if name == "ingest":
        checks.training_data(refs["ingest"], wanted)
        checks.evaluation(refs["ingest"], wanted)
        checks.indexes(refs["ingest"], wanted)
    if name == "tokens":
        checks.texts(refs, recipe.encoder, wanted)
    if name in ("tokens", "tokens-pretraining"):  # the model is made of no text, and is there where rows share it
        checks.pretraining(refs, checks.first_model(refs, recipe) if "initial" in refs else None, wanted)
    if name == "initial":
        checks.models(refs, recipe, wanted)


def run_created() -> datetime:
    """When the flow run was made: a retry of the run does not build anew what the run itself has built."""
    context = FlowRunContext.get()
    created = context.flow_run.created if context and context.flow_run else None
    return created or datetime.now(UTC)
