"""The flow of an ablation: one task run for each node of flows/ablations/shared_nodes.py, then the table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from prefect import flow, get_run_logger

from artifacts.errors import Damaged, StoreError
from artifacts.live import live
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.ablations.ablation import Ablation
from flows.ablations.choice import Choice, chosen
from flows.ablations.results import show
from flows.ablations.shared_nodes import Needs, Part, Union, union
from flows.graph import run_nodes
from flows.graph.selection import store_folder
from pipeline.ablation.config import AblationConfig, Negatives
from pipeline.ablation.data import training_questions
from pipeline.errors import InputError
from pipeline.evaluate.config import SPLITS
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.questions import read_asked


@flow(name="ablation", flow_run_name="{ablation.name}", persist_result=False)
def ablation(
    ablation: Ablation,
    set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
    rows: list[str] = [],  # noqa: B006
    negatives: list[Negatives] = [],  # noqa: B006
    sizes: list[int | None] = [],  # noqa: B006
    seeds: list[int] = [],  # noqa: B006
    reference: str | None = None,
    store: str | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> dict[str, Ref]:
    """Rows x negatives x sizes of training data x seeds of one recipe; what cells share is built once.

    A cell that fails stops none that does not read the same artifact, and a row that cannot go on stops no other; there
    is no table then, and the next run goes on. A row that does not fit the collection stops all before any training.

    Args:
        ablation: The complete ablation.
        set: Changes to the recipe of all cells, such as stage1.epochs=2, under those of sizes and rows.
        rows: The rows to run; all where empty.
        negatives: Columns in the place of the ablation's.
        sizes: Numbers of training questions, null for all, in the place of the ablation's.
        seeds: Seeds of fine-tuning, in the place of the ablation's.
        reference: The row that the others are tested against; the ablation's where empty.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    settings = [*set, *([f"machine.device={device}"] if device else [])]
    own, asked = chosen(ablation, Choice(settings, rows, negatives, sizes, seeds, reference))
    root = store_folder(store)
    shelf = Store(root)
    cells = union(own, asked)
    shared = cells.needs[0].cell.recipe
    run_nodes.look_ahead(shelf, cells.nodes, cells.nodes, shared.machine, shared.tracking)

    begun = run_nodes.run_created()
    logs = run_nodes.logs_of(shared.tracking, root, f"ablation {own.name}", begun)
    width = max(len(node.name) for node in cells.nodes)

    def run(part: Part, refs: Mapping[str, Ref]) -> Ref:
        state = run_nodes.run(part.node, refs, part.recipe.machine, part.recipe.name, root, logs=logs, width=width)
        found: Ref = state.result()
        return found

    refs: dict[str, Ref] = {}
    failed: dict[str, str] = {}

    def attempt() -> dict[str, Ref]:
        refs.clear()
        failed.clear()
        make(cells, run, refs, failed)
        return refs

    with live(shelf, f"ablation {own.name}"):
        try:
            run_nodes.until_whole(shelf, attempt, cells.nodes)
        finally:
            details: dict[str, Any] = {"ablation": own.model_dump(mode="json"), "set": set, "rows": asked}
            record_run(shelf, f"ablation {own.name}", refs, details, begun)
        if failed:
            raise RuntimeError(failures(cells, refs, failed))
        table = cells.nodes[-1].config
        assert isinstance(table, AblationConfig)
        show(table, refs["ablation"])
    return refs


def make(
    cells: Union, run: Callable[[Part, Mapping[str, Ref]], Ref], refs: dict[str, Ref], failed: dict[str, str]
) -> None:
    """Runs every part whose inputs are there and that a row still needs. What is made goes to `refs`; what a part said
    that failed, and why a row cannot go on, to `failed`.

    Raises InputError where a row does not fit the collection.
    """
    out: set[str] = set()
    for part in cells.parts:
        name = part.node.name
        readers = {one.cell.row for one in cells.needs if name in one.parts.values()} or {*cells.by_row()}
        if readers <= out or any(given and given.name not in refs for given in part.node.inputs.values()):
            continue
        try:
            refs[name] = run(part, refs)
        except Damaged:
            raise
        except Exception as error:
            known = isinstance(error, RuntimeError | InputError | StoreError)
            failed[name] = str(error) if known else f"{type(error).__name__}: {error}"
            said = "%s failed; what does not read it goes on: %s"
            get_run_logger().error(said, name, failed[name], exc_info=not known)
            continue
        for row, why in unfit(cells, name, refs).items():
            if row not in out:
                out.add(row)
                failed[f"row {row}"] = why
                get_run_logger().error("row %s is left out; the others go on: %s", row, why)


def unfit(cells: Union, part: str, refs: Mapping[str, Ref]) -> dict[str, str]:
    """{row: what is bound to fail in it} now that `part` is there.

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
                    run_nodes.check_first(name, own, new)
                    if name == "ingest":
                        check_sizes(own["ingest"], needs)
                        check_measures(own["ingest"], table.measures, first.cell.recipe.evaluate.relevance)
                except InputError as error:
                    if name == "ingest":
                        raise InputError(f"row {row}: {error}") from None
                    found[row] = str(error)
    return found


def check_measures(ingest: Ref, measures: Sequence[str], relevance: int) -> None:
    """Raises InputError where the questions have none of the measures: the table would be empty."""
    asked = [read_asked(ingest.path, split, relevance) for split in SPLITS]
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
                f"sizes: {one.cell.size:,} training questions asked for, but the collection has {there:,}; null (on "
                "the command line `all`) takes them all"
            )


def failures(cells: Union, refs: Mapping[str, Ref], failed: Mapping[str, str]) -> str:
    """What failed, what could therefore not be made, and what to do."""
    done = [one for one in cells.needs if one.parts["evaluate"] in refs]
    said = "\n".join(f"{name}: {why}" for name, why in failed.items())
    return (
        f"{said}\n{len(done)} of {len(cells.needs)} cells are measured and no table is made; the same command goes on "
        "with the others, --rows leaves rows out"
    )
