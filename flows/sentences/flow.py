"""The flow of sentence tasks: the nodes of flows/sentences/dag.py, one task run each, in order."""

from typing import Literal

from prefect import flow, get_run_logger

from artifacts.live import live
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.graph import preflight, run_nodes
from flows.graph.selection import store_folder
from flows.sentences import results
from flows.sentences.checks import check_sizes
from flows.sentences.dag import SUMMARY, nodes
from flows.sentences.recipe import SentenceRecipe, change
from tasks import page


@flow(name="sentences", flow_run_name="{recipe.name}", persist_result=False)
def sentences(
    recipe: SentenceRecipe,
    set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
    store: str | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> dict[str, Ref]:
    """Models on a table of sentences, by training size; every training is reused where it can be.

    Args:
        recipe: The complete recipe of sentence tasks.
        set: Changes to it, such as repeats=5, applied last.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    recipe = change(recipe, [*set, *([f"machine.device={device}"] if device else [])])
    root = store_folder(store)
    shelf = Store(root)
    dag = nodes(recipe, shelf)
    preflight.check(shelf, dag, dag, recipe.machine)
    begun = run_nodes.run_created()
    refs: dict[str, Ref] = {}

    def make() -> dict[str, Ref]:
        for node in dag:
            refs[node.name] = run_nodes.run(node, refs, recipe.machine, recipe.name, root).result()
            if node.name == "table":
                check_sizes(recipe, int(refs["table"].metrics["train"]))  # before the first training
        return refs

    with live(shelf, recipe.name):
        run_nodes.until_whole(shelf, make, dag)
        record_run(shelf, recipe.name, refs, {"sentences": recipe.model_dump(mode="json"), "set": set}, begun)
        found = results.read(refs[SUMMARY].path)
    get_run_logger().info("results\n%s", results.markdown(found, recipe.published))
    page.best_effort(results.on_page, found, recipe.published)
    return refs
