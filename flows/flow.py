"""The flow: the nodes of flows/dag.py, one task run each, in order."""

from datetime import UTC, datetime
from typing import Any, Literal

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL

from artifacts.records import Ref
from artifacts.runs import in_file_name, record_run, stamp
from artifacts.store import Store
from flows import checks, preflight, results
from flows.dag import nodes
from flows.recipe import Recipe, change
from flows.selection import names, select, store_folder, upstream
from tasks import cluster
from tasks.run import Order, stage
from tasks.tracking import Logs


@flow(name="cocondenser", flow_run_name="{recipe.name}", persist_result=False)
def cocondenser(
    recipe: Recipe,
    set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
    until: str | None = None,
    only: str | None = None,
    refresh: list[str] = [],  # noqa: B006
    keep: list[str] = [],  # noqa: B006
    store: str | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> dict[str, Ref]:
    """From a text collection and training questions to a dense retriever; every stage is reused where it can be.

    Args:
        recipe: The complete recipe.
        set: Changes to it, such as condenser.steps=100, applied last.
        until: The last stage to run, with all that it needs.
        only: The one stage to run; what it reads must be in the store.
        refresh: Stages to build anew.
        keep: Stages whose artifacts of older code are accepted.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    recipe = change(recipe, [*set, *([f"machine.device={device}"] if device else [])])
    root = store_folder(store)
    shelf = Store(root)
    dag = nodes(recipe)
    wanted = select(dag, until, only)
    anew, kept = names(dag, refresh), names(dag, keep)
    preflight.check(shelf, dag, wanted, recipe.machine, recipe.tracking)
    if preflight.on_ray(shelf, dag, wanted, recipe.machine, anew):
        cluster.check(recipe.machine, root, PREFECT_API_URL.value(), get_run_logger().info)

    begun = run_created()
    logs = Logs(recipe.tracking, root / "logs", f"{in_file_name(recipe.name).lstrip('.') or '_'}/{stamp(begun)}")
    refs: dict[str, Ref] = upstream(shelf, dag, wanted, recipe.name) if only else {}
    for node in wanted:
        order = Order(
            node=node.name,
            stage=node.stage,
            config=node.config,
            shared=node.shared,
            machine=recipe.machine,
            store=root,
            recipe=recipe.name,
            keep=node.name in kept,
            refresh_since=begun if node.name in anew else None,
            logs=logs,
        )
        inputs = {name: refs[given.name] if given else None for name, given in node.inputs.items()}
        state: State[Any] = stage.with_options(name=node.name)(order, inputs, return_state=True)
        refs[node.name] = state.result()
        if node.name == "ingest":
            checks.training_data(refs["ingest"], wanted)
            checks.evaluation(refs["ingest"], wanted)
            checks.indexes(refs["ingest"], wanted)
        if node.name == "tokens":
            checks.texts(refs, recipe.encoder, wanted)
        if node.name == "initial":
            checks.models(refs, recipe, wanted)

    details: dict[str, Any] = {"recipe": recipe.model_dump(mode="json"), "set": set, "until": until, "only": only}
    record_run(shelf, recipe.name, refs, details, begun)
    results.show(recipe, refs, root)
    return refs


def run_created() -> datetime:
    """When the flow run was made: a retry of the run does not build anew what the run itself has built."""
    context = FlowRunContext.get()
    created = context.flow_run.created if context and context.flow_run else None
    return created or datetime.now(UTC)
