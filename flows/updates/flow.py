"""The flow of an update: the nodes of flows/dag.py with an existing model, then the figures before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prefect import Flow, flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed
from rich.markup import escape

from artifacts.errors import StoreError
from artifacts.live import protect_from_gc
from artifacts.records import Ref
from artifacts.runs import RunRecord
from flows.flow import RecipeName
from flows.graph import run_nodes, summary
from flows.graph.prepare import Device
from flows.runs.series import trained_run
from flows.updates.counts import update_counts, update_summary
from flows.updates.figures import FELL, BeforeAndAfter, before_and_after
from flows.updates.prepare import MEASURE, Update, ineffective_changes, prepare_update
from pipeline.errors import InputError
from tasks import page
from tasks.run import report_line
from tasks.terminal import print_line


@dataclass(frozen=True)
class Updated:
    """A finished update."""

    refs: Mapping[str, Ref]
    counts: Mapping[str, int]
    figures: BeforeAndAfter | None
    """None: nothing to compare."""


def flow_of(prepared: Update | None = None) -> Flow[..., Any]:
    """The flow of an update that the command line has prepared. None: the flow prepares it from its parameters."""
    name = partial(run_nodes.run_name, prepared.run if prepared else None, "recipe")

    @flow(name="update", flow_run_name=name, persist_result=False)
    def update(
        recipe: RecipeName,
        set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
        judged: str | None = None,
        measure: str = MEASURE,
        store: str | None = None,
        device: Device = None,
    ) -> Any:
        """Updates a collection with new, changed and deleted files, without training, and compares the figures.

        Args:
            recipe: The name of one of the project's recipes, or the path of a YAML file; its newest run is updated.
            set: Changes to the settings of that run, such as bm25.k1=1.2.
            judged: A folder with your test questions in BEIR's layout, such as that of `judge`; if empty, the run's.
            measure: The measure that is compared: RR@10, nDCG@10, R@100, ...
            store: The folder of artifacts; if empty, COCONDENSER_STORE or ./store.
            device: auto, cpu or cuda; if empty, that of the recipe.
        """
        try:
            one = prepared or prepare_update(recipe, set, judged, measure, store, device)
        except (InputError, StoreError) as error:
            return run_nodes.refused(error)
        for line in ineffective_changes(one):
            report_line(line)
        started = run_nodes.run_created()
        with protect_from_gc(one.run.store, one.run.name):
            refs = run_nodes.run_graph(
                one.run,
                ready=lambda node, done: run_nodes.check_later_nodes(node, done.refs, one.run.wanted),
                show=lambda done: summary.show(one.run.recipe, done.refs, one.run.store.root),
            )
            counts = update_counts(one.run.store, refs, started)
            print_line("")
            show_line(update_summary(counts))
            figures = compared(one, refs, started)
        if figures is not None:
            show_line(figures.line, warning=figures.fell)
            page.best_effort(show_figures, figures.line)
        return ended(Updated(refs, counts, figures))

    return update


def show_line(line: str, warning: bool = False) -> None:
    """In the terminal and in the log."""
    print_line(f"[yellow]{escape(line)}[/]" if warning else escape(line))
    get_run_logger().info(line)


def ended(updated: Updated) -> State[Updated]:
    """The state of a finished update, which an automation sees. Its message is the figures, if there are any."""
    if updated.figures is None:
        return Completed(message=update_summary(updated.counts), data=updated)
    return Completed(name=FELL if updated.figures.fell else None, message=updated.figures.line, data=updated)


def compared(one: Update, refs: Mapping[str, Ref], started: datetime) -> BeforeAndAfter | None:
    """Compares the run that trained the model with the update. `started`: with time zone.

    None, and a line with the reason, if the runs have no test question in common.
    Raises InputError if the user's own test questions cannot be answered.
    """
    update = RunRecord(one.run.name, started.astimezone(UTC).isoformat(), {**refs}, {**one.run.details})
    try:
        return before_and_after(trained_run(one.run.store, one.engine), update, one.measure, one.judged)
    except InputError as error:
        if one.judged is not None:
            raise
        report_line(f"no figures to compare: {error}")
        return None


def show_figures(line: str) -> None:
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(line, key="update", description="Figures before and after the update")


update = flow_of()
"""As Prefect deploys it."""
