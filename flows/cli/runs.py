"""`cocondenser runs`: the runs in the store with their measures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.artifacts import opened
from flows.cli.options import Json, OfRecipe, StoreFolder, columns, out, print_json, print_table, warn

if TYPE_CHECKING:
    from artifacts.runs import Run


@dataclass(frozen=True)
class Listed:
    """A run as a row."""

    recipe: str
    created: str
    """ISO 8601, UTC."""
    reached: str
    """The last node that it had."""
    report: Path | None
    """Its page: of an ablation that of the table."""
    problem: str | None = None
    """Why its measures cannot be read."""
    id: str | None = None
    """What `cocondenser compare` knows it by; this and all below None where nothing was measured."""
    split: str | None = None
    """What was measured: test where there is one."""
    questions: int | None = None
    best: str | None = None
    """The system that was best on dev, as tables call it; without dev what answers questions."""
    on_dev: bool | None = None
    """Whether there are dev questions, on which one was best."""
    shallow: Sequence[str] = ()
    """What to know of its measures in the table that look deeper than its lists go."""
    notes: Sequence[str] = ()
    """What to know of all measures of all systems."""
    systems: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None
    """{system, as tables call it: {measure: {mean, low, high}}}."""


def runs(
    recipe: OfRecipe = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many, newest first.")] = 20,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """List the runs in the store, newest first, with the measures of what was best on dev (where there is dev)."""
    from artifacts.runs import runs_and_unreadable
    from flows.recipes import yaml_layers

    shelf = opened(store)
    found, unreadable = runs_and_unreadable(shelf, recipe)
    if recipe and not found:
        yaml_layers.read(recipe)  # a name misspelt is no recipe without runs
    rows = [listed(run) for run in found[:number]]
    if as_json:
        print_json([asdict(row) for row in rows])
        warn_of(unreadable)
        return
    if rows:
        print_table(table(rows))
    for row in rows:
        if row.problem:
            warn(row.problem)
    for line in notes(rows):
        out.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    warn_of(unreadable)
    newest = f", the newest {number} of them" if len(found) > number else ""
    makes = "" if found else f"; `cocondenser run {recipe or 'pydocs-small'}` makes one"
    out.print(f"\nRuns in {shelf.root}: {len(found)}{newest}{makes}", markup=False, highlight=False, soft_wrap=True)


def warn_of(unreadable: Sequence[Path]) -> None:
    """On standard error, so that JSON stays JSON."""
    for path in unreadable:
        warn(f"{path}: no record of a run")


def listed(run: "Run") -> Listed:
    """A run with its measures, or why these cannot be read."""
    from flows.runs.evaluated import measured
    from pipeline.errors import InputError
    from pipeline.evaluate.short_tables import SHORT, all_notes, shown_split

    pages = [run.nodes[node].path / f"{node}.html" for node in ("report", "ablation") if node in run.nodes]
    there = next((page for page in pages if page.exists()), None)
    reached = next(reversed(run.nodes), "nothing")
    try:
        one = measured(run)
    except InputError as error:
        return Listed(run.name, run.created, reached, there, problem=str(error))
    if one is None:
        return Listed(run.name, run.created, reached, there)
    split = shown_split(one.metrics)
    systems = {one.label(name): figures for name, figures in one.systems(split).items()}
    part = one.metrics["splits"][split]
    questions = (part if part["systems"] else part["answers"])["questions"]
    best, measures = one.label(one.best), [m for m in SHORT if m in one.systems(split).get(one.best, {})]
    about = one.shallow(split, measures, [one.best]), all_notes(one.metrics)
    return Listed(
        run.name, run.created, reached, there, None, one.id, split, questions, best, one.on_dev, *about, systems
    )


def notes(rows: list[Listed]) -> list[str]:
    """What a reader of the rows must know."""
    from pipeline.evaluate.short_tables import NO_DEV

    without = [row.id for row in rows if row.on_dev is False and row.id]
    return [
        *(["system: what was best on dev"] if any(row.on_dev for row in rows) else []),
        *(f"{name}: not tuned: {NO_DEV}" for name in dict.fromkeys(without)),
        *dict.fromkeys(f"{row.id}: {line}" for row in rows for line in row.shallow),
    ]


def table(rows: list[Listed]) -> Table:
    """A row a run: means alone, of the measures that one of them has."""
    from pipeline.evaluate.short_tables import SHORT
    from pipeline.formatting import share_text

    there = {measure for row in rows for figures in (row.systems or {}).values() for measure in figures}
    measures = {measure: heading for measure, heading in SHORT.items() if measure in there}
    shown = columns()
    for name in ("created", "id"):
        shown.add_column(name)
    shown.add_column("recipe", min_width=6)
    shown.add_column("split")
    shown.add_column("system", min_width=6)
    for name in measures.values():
        shown.add_column(name, justify="right")
    for row in rows:
        begun = [row.created[:10], row.id or "", escape(row.recipe)]
        if row.reached == "ablation":
            shown.add_row(*begun, "", "a table of all its cells")
        elif row.systems is None or row.best is None:
            shown.add_row(*begun, "", "cannot be read" if row.problem else f"not measured; reached {row.reached}")
        elif row.best in row.systems:
            figures = row.systems[row.best]
            means = (share_text(figures[measure]["mean"]) if measure in figures else "" for measure in measures)
            shown.add_row(*begun, row.split, escape(row.best), *means)
        else:
            shown.add_row(*begun, row.split, f"{escape(row.best)}, not measured on {row.split}")
    return shown
