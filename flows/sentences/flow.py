"""The flow of sentence tasks: one task run per node of flows/sentences/dag.py, in order."""

from functools import partial
from typing import Annotated, Any

from prefect import Flow, flow, get_run_logger
from pydantic import WithJsonSchema

from artifacts.errors import StoreError
from flows.graph import run_nodes
from flows.graph.prepare import Device, Run
from flows.graph.run_nodes import Done
from flows.recipes import yaml_layers
from flows.sentences.checks import check_sizes
from flows.sentences.dag import SUMMARY
from flows.sentences.prepare import prepare_sentences
from flows.sentences.recipe import SentenceRecipe
from flows.sentences.results import add_to_page, read_summary, results_markdown
from pipeline.errors import InputError
from tasks import page

RecipeName = Annotated[str, WithJsonSchema(run_nodes.name_or_file(yaml_layers.listed(yaml_layers.SENTENCES)))]


def flow_of(prepared: Run[SentenceRecipe] | None = None) -> Flow[..., Any]:
    """The flow of a prepared run. With None, the flow prepares its run from its parameters."""

    @flow(
        name="sentences",
        flow_run_name=partial(run_nodes.run_name, prepared, "recipe", yaml_layers.SENTENCES),
        persist_result=False,
    )
    def sentences(
        recipe: RecipeName,
        set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
        store: str | None = None,
        device: Device = None,
    ) -> Any:
        """Measures models on a table of sentences, by training size. Trainings in the store are reused.

        Args:
            recipe: The name of one of the project's recipes of sentence tasks, or the path of a YAML file.
            set: Changes to it, such as repeats=5.
            store: The folder of the artifacts. If empty: COCONDENSER_STORE, otherwise ./store.
            device: auto, cpu or cuda. If empty: as the recipe says.
        """
        try:
            run = prepared or prepare_sentences(recipe, set, store, device)
        except (InputError, StoreError) as error:
            return run_nodes.refused(error)

        def on_ready(node: str, done: Done) -> None:
            if node == "table":
                check_sizes(run.recipe, int(done.refs["table"].metrics["train"]))  # before the first training

        return run_nodes.run_graph(run, on_ready, partial(show_results, run.recipe))

    return sentences


def show_results(recipe: SentenceRecipe, done: Done) -> None:
    """Shows the table in the log and on the page."""
    summary = read_summary(done.refs[SUMMARY].path)
    get_run_logger().info("results\n%s", results_markdown(summary, recipe.published))
    page.best_effort(add_to_page, summary, recipe.published)


sentences = flow_of()
"""The flow that Prefect deploys."""
