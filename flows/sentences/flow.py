"""The flow of sentence tasks: the nodes of flows/sentences/dag.py, one task run each, in order."""

from functools import partial
from typing import Annotated, Any

from prefect import Flow, flow, get_run_logger
from pydantic import WithJsonSchema

from artifacts.errors import StoreError
from flows.graph import run_nodes
from flows.graph.prepare import Device, Run
from flows.graph.run_nodes import Done
from flows.recipes import yaml_layers
from flows.sentences import results
from flows.sentences.checks import check_sizes
from flows.sentences.dag import SUMMARY
from flows.sentences.prepare import prepare_sentences
from flows.sentences.recipe import SENTENCES, SentenceRecipe
from pipeline.errors import InputError
from tasks import page

RecipeName = Annotated[str, WithJsonSchema(run_nodes.name_or_file(yaml_layers.listed(SENTENCES)))]


def flow_of(prepared: Run[SentenceRecipe] | None = None) -> Flow[..., Any]:
    """The flow of a run that the command line has prepared; with None, one that prepares what its parameters name."""

    @flow(
        name="sentences", flow_run_name=partial(run_nodes.run_name, prepared, "recipe", SENTENCES), persist_result=False
    )
    def sentences(
        recipe: RecipeName,
        set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
        store: str | None = None,
        device: Device = None,
    ) -> Any:
        """Models on a table of sentences, by training size; every training is reused where it can be.

        Args:
            recipe: The name of one of the project's recipes of sentence tasks, or the path of a YAML file.
            set: Changes to it, such as repeats=5, applied last.
            store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
            device: auto, cpu or cuda; the recipe's where empty.
        """
        try:
            run = prepared or prepare_sentences(recipe, set, store, device)
        except (InputError, StoreError) as error:
            return run_nodes.refused(error)

        def ready(node: str, done: Done) -> None:
            if node == "table":
                check_sizes(run.recipe, int(done.refs["table"].metrics["train"]))  # before the first training

        return run_nodes.run_graph(run, ready, partial(show, run.recipe))

    return sentences


def show(recipe: SentenceRecipe, done: Done) -> None:
    """The table, in the log and on the page."""
    found = results.read(done.refs[SUMMARY].path)
    get_run_logger().info("results\n%s", results.markdown(found, recipe.published))
    page.best_effort(results.on_page, found, recipe.published)


sentences = flow_of()
"""As Prefect deploys it."""
