"""The flow of an ablation: the parts of flows/union.py, one task run each, and the table at their end."""

from collections.abc import Mapping
from typing import Any, Literal

from prefect import flow, get_run_logger

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows import walk
from flows.ablation import Ablation, chosen
from flows.ablation_results import show
from flows.selection import store_folder
from flows.union import Needs, Union, union
from pipeline.ablation import AblationConfig, training_questions
from pipeline.errors import InputError


@flow(name="ablation", flow_run_name="{ablation.name}", persist_result=False)
def ablation(
    ablation: Ablation,
    set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
    rows: list[str] = [],  # noqa: B006
    sizes: list[int | None] = [],  # noqa: B006
    seeds: list[int] = [],  # noqa: B006
    reference: str | None = None,
    store: str | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> dict[str, Ref]:
    """Rows x negatives x sizes of training data x seeds of one recipe; what cells share is built once.

    A cell that fails stops none that does not read the same artifact; there is no table then, and the next run goes on.

    Args:
        ablation: The complete ablation.
        set: Changes to the recipe of all cells, such as stage1.epochs=2, under those of sizes and rows.
        rows: The rows to run; all where empty.
        sizes: Numbers of training questions, null for all, in the place of the ablation's.
        seeds: Seeds of fine-tuning, in the place of the ablation's.
        reference: The row that the others are tested against; the ablation's where empty.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    settings = [*set, *([f"machine.device={device}"] if device else [])]
    own, asked = chosen(ablation, settings, rows, sizes, seeds, reference)
    root = store_folder(store)
    shelf = Store(root)
    cells = union(own, asked)
    shared = cells.needs[0].cell.recipe
    walk.look_ahead(shelf, cells.nodes, cells.nodes, shared.machine, shared.tracking)

    begun = walk.run_created()
    logs = walk.logs_of(shared.tracking, root, f"ablation {own.name}", begun)
    refs: dict[str, Ref] = {}
    failed: dict[str, str] = {}
    width = max(len(node.name) for node in cells.nodes)
    for part in cells.parts:
        lost = [given.name for given in part.node.inputs.values() if given and given.name not in refs]
        if lost:
            continue
        state = walk.run(part.node, refs, part.recipe.machine, part.recipe.name, root, logs=logs, width=width)
        try:
            refs[part.node.name] = state.result()
        except (RuntimeError, InputError) as error:  # of a child process that failed, or of bad input
            failed[part.node.name] = str(error)
            get_run_logger().error("%s failed; what does not read it goes on: %s", part.node.name, error)
            continue
        check_first(cells, part.node.name, refs)
    details: dict[str, Any] = {"ablation": own.model_dump(mode="json"), "set": set, "rows": asked}
    record_run(shelf, f"ablation {own.name}", refs, details, begun)
    if failed:
        raise RuntimeError(failures(cells, refs, failed))
    table = cells.nodes[-1].config
    assert isinstance(table, AblationConfig)
    show(table, refs["ablation"])
    return refs


def check_first(cells: Union, part: str, refs: Mapping[str, Ref]) -> None:
    """What is bound to fail in any row now that `part` is there. Raises InputError that names the row."""
    for row, needs in cells.by_row().items():
        first = needs[0]
        own = {name: refs[made] for name, made in first.parts.items() if made in refs}
        new = [node for one in needs for node in one.new]
        for name in ("ingest", "tokens", "initial"):
            if first.parts[name] == part:
                try:
                    walk.check_first(name, own, first.cell.recipe, new)
                    if name == "ingest":
                        check_sizes(own["ingest"], needs)
                except InputError as error:
                    raise InputError(f"row {row}: {error}") from None


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
