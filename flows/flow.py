"""The flow: the nodes of flows/dag.py, one task run each, in order."""

from typing import Any, Literal

from prefect import flow

from artifacts.live import live
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.dag import nodes
from flows.graph import run_nodes, summary
from flows.graph.selection import names, select, store_folder, upstream
from flows.recipes.recipe import Recipe, change


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
        refresh: Stages to build again.
        keep: Stages whose artifacts of older code are accepted.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    recipe = change(recipe, [*set, *([f"machine.device={device}"] if device else [])])
    root = store_folder(store)
    shelf = Store(root)
    dag = nodes(recipe)
    wanted = select(dag, until, only)
    refreshed, kept = names(dag, refresh), names(dag, keep)
    run_nodes.look_ahead(shelf, dag, wanted, recipe.machine, recipe.tracking, refreshed)

    begun = run_nodes.run_created()
    logs = run_nodes.logs_of(recipe.tracking, root, recipe.name, begun)
    refs: dict[str, Ref] = {}

    def make() -> dict[str, Ref]:
        refs.clear()
        refs.update(upstream(shelf, dag, wanted, recipe.name) if only else {})
        for node in wanted:
            since = begun if node.name in refreshed else None
            keeps = node.name in kept
            state = run_nodes.run(
                node, refs, recipe.machine, recipe.name, root, logs=logs, keep=keeps, refresh_since=since
            )
            refs[node.name] = state.result()
            run_nodes.check_first(node.name, refs, wanted)
        return refs

    with live(shelf, recipe.name):
        run_nodes.until_whole(shelf, make, wanted)
        details: dict[str, Any] = {"recipe": recipe.model_dump(mode="json"), "set": set, "until": until, "only": only}
        record_run(shelf, recipe.name, refs, details, begun)
        summary.show(recipe, refs, root)
    return refs
