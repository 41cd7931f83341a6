"""The flow, which runs each node of flows/dag.py as a task, in order."""

from functools import partial
from typing import Annotated, Any

from prefect import Flow, flow
from pydantic import WithJsonSchema

from artifacts.errors import StoreError
from flows.graph import run_nodes, summary
from flows.graph.ineffective_settings import ineffective_settings
from flows.graph.prepare import Device, Run, prepare
from flows.recipes import yaml_layers
from flows.recipes.recipe import Recipe, resolve
from pipeline.errors import InputError
from tasks.run import report_line

RecipeName = Annotated[str, WithJsonSchema(run_nodes.name_or_file(yaml_layers.listed()))]


def flow_of(prepared: Run[Recipe] | None = None) -> Flow[..., Any]:
    """The flow of a run that the command line has prepared. None: the flow prepares a run from its parameters."""

    @flow(name="cocondenser", flow_run_name=partial(run_nodes.run_name, prepared, "recipe"), persist_result=False)
    def cocondenser(
        recipe: RecipeName,
        set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
        until: str | None = None,
        only: str | None = None,
        refresh: list[str] = [],  # noqa: B006
        keep: list[str] = [],  # noqa: B006
        store: str | None = None,
        device: Device = None,
    ) -> Any:
        """Trains a dense retriever on a text collection and training questions; finished stages come from the store.

        Args:
            recipe: The name of one of the project's recipes, or the path of a YAML file.
            set: Changes to it, such as condenser.budget=100 steps, applied last.
            until: The last stage to run, after all stages that it needs.
            only: The only stage to run; its inputs must be in the store.
            refresh: Stages to build again.
            keep: Stages whose artifacts of older code are accepted.
            store: The folder of artifacts; if empty, COCONDENSER_STORE or ./store.
            device: auto, cpu or cuda; if empty, that of the recipe.
        """
        try:
            run = prepared or prepare(recipe, set, until, only, refresh, keep, store, device)
        except (InputError, StoreError) as error:
            return run_nodes.refused(error)
        if prepared is None:  # else the command line has reported them
            for line in ineffective_settings(partial(resolve, recipe), set, set):
                report_line(line)
        return run_nodes.run_graph(
            run,
            ready=lambda node, done: run_nodes.check_later_nodes(node, done.refs, run.wanted),
            show=lambda done: summary.show(run.recipe, done.refs, run.store.root),
        )

    return cocondenser


cocondenser = flow_of()
"""As Prefect deploys it."""
