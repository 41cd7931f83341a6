"""`cocondenser runs`: the runs in the store with their measures."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli_artifacts import opened
from flows.cli_options import Json, OfRecipe, StoreFolder, out, print_json, warn

if TYPE_CHECKING:
    from artifacts.runs import Run


@dataclass(frozen=True)
class Listed:
    """A run as a row."""

    recipe: str
    created: str
    """ISO 8601, UTC."""
    id: str | None
    """What `cocondenser compare` knows it by; None where nothing was measured."""
    reached: str
    """The last node that it had."""
    split: str | None = None
    """What was measured: test where there is one. None where nothing was."""
    questions: int | None = None
    best: str | None = None
    """The system that was best on dev, as in `systems`."""
    systems: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None
    """{system, as tables call it: {measure: {mean, low, high}}}."""
    report: Path | None = None
    problem: str | None = None
    """Why its measures cannot be read."""


def runs(
    recipe: OfRecipe = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many, newest first.")] = 20,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """List the runs in the store, newest first, with the measures of what was best on dev."""
    from artifacts.runs import runs as recorded
    from flows import layers

    shelf = opened(store)
    found = recorded(shelf, recipe)
    if recipe and not found:
        layers.read(recipe)  # a name misspelt is no recipe without runs
    rows = [listed(run) for run in found[:number]]
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    out.print(table(rows))
    rest = f", the newest {number} of them" if len(found) > number else ""
    for row in rows:
        if row.problem:
            warn(row.problem)
    out.print(f"\n{len(found)} runs{rest} in {shelf.root}", markup=False, highlight=False, soft_wrap=True)


def listed(run: "Run") -> Listed:
    from flows.compared import run_id
    from flows.results import read_metrics
    from pipeline.errors import InputError
    from pipeline.tables import shown_split

    row: dict[str, Any] = {
        "recipe": run.name,
        "created": run.created,
        "id": run_id(run),
        "reached": next(reversed(run.nodes), "nothing"),
    }
    if "report" in run.nodes and run.nodes["report"].path.exists():
        row["report"] = run.nodes["report"].path / "report.html"
    try:
        metrics = read_metrics(run.nodes)
    except InputError as error:
        return Listed(**row, problem=str(error))
    if metrics is None:
        return Listed(**row)
    split = shown_split(metrics)
    figures = metrics["splits"][split]
    labels = metrics["labels"]
    winner = {"dense": metrics["dense"]}.get(metrics["winner_on_dev"], metrics["winner_on_dev"])
    systems = {labels[name]: found for name, found in figures["systems"].items()}
    return Listed(
        **row, split=split, questions=figures["questions"], best=labels[winner] if winner else None, systems=systems
    )


def table(rows: list[Listed]) -> Table:
    from pipeline.tables import TABLE, share_text

    shown = Table(box=None, pad_edge=False)
    shown.add_column("created", no_wrap=True)
    shown.add_column("id", no_wrap=True)
    shown.add_column("recipe", overflow="fold")
    shown.add_column("questions", justify="right", no_wrap=True)
    shown.add_column("best on dev", overflow="fold")
    for name in TABLE.values():
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        begun = [row.created[:16].replace("T", " "), row.id or "", escape(row.recipe)]
        if row.best is None or row.systems is None or row.best not in row.systems:
            shown.add_row(*begun, "", "cannot be read" if row.problem else f"not measured; reached {row.reached}")
            continue
        figures = (share_text(row.systems[row.best][measure]["mean"]) for measure in TABLE)
        shown.add_row(*begun, f"{row.questions:,} {row.split}", escape(row.best), *figures)
    return shown
