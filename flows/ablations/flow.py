"""The flow of an ablation, which runs each node of flows/ablations/shared_nodes.py as a task, then builds the table."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from prefect import Flow, flow, get_run_logger
from pydantic import WithJsonSchema

from artifacts.errors import StoreError
from artifacts.records import Ref
from flows.ablations import file
from flows.ablations.choice import Choice
from flows.ablations.file import ABLATIONS
from flows.ablations.prepare import AblationRun, prepare_ablation
from flows.ablations.results import show as show_tables
from flows.ablations.shared_nodes import Needs, SharedNodes
from flows.graph import run_nodes
from flows.graph.prepare import Device
from flows.graph.run_nodes import Done
from pipeline.ablation.config import AblationConfig, Negatives
from pipeline.ablation.data import training_questions
from pipeline.errors import InputError
from pipeline.evaluate.config import SPLITS
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.questions import read_split_questions

AblationName = Annotated[str, WithJsonSchema(run_nodes.name_or_file(file.listed()))]


def flow_of(prepared: AblationRun | None = None) -> Flow[..., Any]:
    """The flow of a run that the command line has prepared. None: the flow prepares a run from its parameters."""
    name = partial(run_nodes.run_name, prepared.run if prepared else None, "ablation", ABLATIONS)

    @flow(name="ablation", flow_run_name=name, persist_result=False)
    def ablation(
        ablation: AblationName,
        set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
        rows: list[str] = [],  # noqa: B006
        negatives: list[Negatives] = [],  # noqa: B006
        sizes: list[int | None] = [],  # noqa: B006
        seeds: list[int] = [],  # noqa: B006
        reference: str | None = None,
        store: str | None = None,
        device: Device = None,
    ) -> Any:
        """Rows x negatives x sizes of training data x seeds of one recipe; what cells share is built once.

        If a cell fails, cells that do not read the same artifact continue, and so do other rows. There is no table
        then, and the next run builds the rest. A row that does not fit the collection stops all rows before any
        training.

        Args:
            ablation: The name of one of the project's ablations, or the path of a YAML file.
            set: Changes to the recipe of all cells, such as stage1.epochs=2, under those of sizes and rows.
            rows: The rows to run; if empty, all.
            negatives: Columns instead of the ablation's.
            sizes: Numbers of training questions, null for all, instead of the ablation's.
            seeds: Seeds of fine-tuning, instead of the ablation's.
            reference: The row that the others are tested against; if empty, that of the ablation.
            store: The folder of artifacts; if empty, COCONDENSER_STORE or ./store.
            device: auto, cpu or cuda; if empty, that of the recipe.
        """
        try:
            choice = Choice(set, rows, negatives, sizes, seeds, reference)
            ready = prepared or prepare_ablation(ablation, choice, store, device)
        except (InputError, StoreError) as error:
            return run_nodes.refused(error)
        return run_nodes.run_graph(ready.run, partial(leave_out, ready.cells), partial(show, ready.cells))

    return ablation


def show(cells: SharedNodes, done: Done) -> None:
    """Shows the table. Raises RuntimeError if something failed, because there is no table then."""
    if done.failed:
        raise RuntimeError(failures(cells, done.refs, done.failed))
    table = cells.nodes[-1].config
    assert isinstance(table, AblationConfig)
    show_tables(table, done.refs["ablation"])


def leave_out(cells: SharedNodes, part: str, done: Done) -> None:
    """Leaves out the rows that will fail with the finished `part`, and the nodes that only they read.

    Raises InputError if a row does not fit the collection.
    """
    for row, why in unfit(cells, part, done.refs).items():
        if f"row {row}" not in done.failed:
            done.failed[f"row {row}"] = why
            get_run_logger().error("row %s is left out; the others continue: %s", row, why)
    rows = {row for row in cells.by_row() if f"row {row}" in done.failed}
    done.left_out |= {name for name, readers in readers_of(cells).items() if readers <= rows}


def readers_of(cells: SharedNodes) -> dict[str, set[str]]:
    """{part: the rows that read it}. All rows read the table."""
    rows = cells.by_row()
    read = {
        name: {row for row, needs in rows.items() if any(name in one.parts.values() for one in needs)}
        for name in (node.name for node in cells.nodes)
    }
    return {name: readers or {*rows} for name, readers in read.items()}


def unfit(cells: SharedNodes, part: str, refs: Mapping[str, Ref]) -> dict[str, str]:
    """{row: why it will fail} with the finished `part`.

    Raises InputError that names the row for what does not fit the collection: all share it, and nothing is trained yet.
    """
    found: dict[str, str] = {}
    table = cells.nodes[-1].config
    assert isinstance(table, AblationConfig)
    for row, needs in cells.by_row().items():
        first = needs[0]
        own = {name: refs[other] for name, other in first.parts.items() if other in refs}
        new = [node for one in needs for node in one.new]
        for name, made in first.parts.items():
            if made == part:
                try:
                    run_nodes.check_later_nodes(name, own, new)
                    if name == "ingest":
                        check_sizes(own["ingest"], needs)
                        check_measures(own["ingest"], table.measures, first.cell.recipe.evaluate.relevance)
                except InputError as error:
                    if name == "ingest":
                        raise InputError(f"row {row}: {error}") from None
                    found[row] = str(error)
    return found


def check_measures(ingest: Ref, measures: Sequence[str], relevance: int) -> None:
    """Raises InputError if no measure applies to the questions, because the table would be empty."""
    asked = [read_split_questions(ingest.path, split, relevance) for split in SPLITS]
    judged, answered = any(found.qrels for found in asked), any(found.answers for found in asked)
    if not any(judged if measure in MEASURES else answered for measure in measures):
        lacking = "judgements" if answered else "answers"
        raise InputError(f"measures: {', '.join(measures)}, but no dev or test question has {lacking}")


def check_sizes(ingest: Ref, needs: list[Needs]) -> None:
    """Raises InputError for more training questions than there are."""
    there = training_questions(ingest.path)
    for one in needs:
        if one.cell.size is not None and one.cell.size > there:
            raise InputError(
                f"sizes: {one.cell.size:,} training questions, but the collection has {there:,}; null (on the "
                "command line `all`) uses all of them"
            )


def failures(cells: SharedNodes, refs: Mapping[str, Ref], failed: Mapping[str, str]) -> str:
    """What failed, what is missing therefore, and what to do."""
    done = [one for one in cells.needs if one.parts["evaluate"] in refs]
    lines = "\n".join(f"{name}: {why}" for name, why in failed.items())
    return (
        f"{lines}\n{len(done)} of {len(cells.needs)} cells are measured, and there is no table; the same command "
        "continues with the others, and --rows can leave rows out"
    )


ablation = flow_of()
"""As Prefect deploys it."""
