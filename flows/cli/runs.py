"""`cocondenser runs`: the runs in the store with their measures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.options import Json, StoreFolder, columns, existing_store, out, print_json, print_table, warn

if TYPE_CHECKING:
    from artifacts.runs import RunRecord


@dataclass(frozen=True)
class RunRow:
    """A run in the list. The fields from `id` on are None if the run has no measures."""

    recipe: str
    created: str
    """ISO 8601, UTC."""
    reached: str
    """The last node of the run."""
    report: Path | None
    """The run's page: report.html, or the page of an ablation's table."""
    problem: str | None = None
    """Why the measures cannot be read."""
    id: str | None = None
    """Names the run for `cocondenser compare`."""
    split: str | None = None
    """The split with the measures: test if there is one. None also without questions to measure with."""
    questions: int | None = None
    answering: str | None = None
    """The label of the system that answers questions (`short_tables.default_system`)."""
    on_dev: bool | None = None
    """Whether there are dev questions, which can prove another system better."""
    shallow: Sequence[str] = ()
    """Notes on measures of the table that need longer ranked lists."""
    notes: Sequence[str] = ()
    """Notes on all measures of all systems."""
    systems: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None
    """{label of a system: {measure: {mean, low, high}}}."""


def runs(
    recipe: Annotated[str | None, typer.Option(metavar="RECIPE", help="List only the runs of this recipe.")] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, metavar="N", help="List the N newest runs.")] = 20,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """List the runs in the store, newest first, with the measures of the system that answers questions."""
    from artifacts.runs import runs_and_unreadable
    from flows.recipes import yaml_layers

    artifact_store = existing_store(store)
    all_runs, unreadable = runs_and_unreadable(artifact_store, recipe)
    if recipe and not all_runs:
        yaml_layers.read(recipe)  # raises InputError for an unknown or misspelt name
    rows = [run_row(run) for run in all_runs[:number]]
    if as_json:
        print_json([asdict(row) for row in rows])
        warn_unreadable(unreadable)
        return
    if rows:
        print_table(runs_table(rows))
    for row in rows:
        if row.problem:
            warn(row.problem)
    for line in runs_notes(rows):
        out.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    warn_unreadable(unreadable)
    newest = f", the newest {number} of them" if len(all_runs) > number else ""
    advice = "" if all_runs else f"; `cocondenser run {recipe or 'pydocs-small'}` makes one"
    text = f"\nRuns in {artifact_store.root}: {len(all_runs)}{newest}{advice}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def warn_unreadable(unreadable: Sequence[Path]) -> None:
    """Prints on standard error, to keep the JSON on standard output valid."""
    for path in unreadable:
        warn(f"{path}: no record of a run")


def run_row(run: "RunRecord") -> RunRow:
    """A run with its measures, or the reason why they cannot be read."""
    from flows.runs.evaluated import read_evaluated
    from pipeline.errors import InputError
    from pipeline.evaluate.tables.short_tables import SHORT, all_notes, shown_split

    pages = [run.nodes[node].path / f"{node}.html" for node in ("report", "ablation") if node in run.nodes]
    report = next((page for page in pages if page.exists()), None)
    reached = next(reversed(run.nodes), "nothing")
    try:
        evaluated = read_evaluated(run)
    except InputError as error:
        return RunRow(run.name, run.created, reached, report, problem=str(error))
    if evaluated is None:
        return RunRow(run.name, run.created, reached, report)
    split = shown_split(evaluated.metrics)
    systems = evaluated.systems(split) if split else {}
    part = evaluated.metrics["splits"][split] if split else None
    measures = [measure for measure in SHORT if measure in systems.get(evaluated.answering, {})]
    return RunRow(
        recipe=run.name,
        created=run.created,
        reached=reached,
        report=report,
        id=evaluated.id,
        split=split,
        questions=(part if part["systems"] else part["answers"])["questions"] if part else 0,
        answering=evaluated.label(evaluated.answering),
        on_dev=evaluated.on_dev,
        shallow=evaluated.shallow(split, measures, [evaluated.answering]) if split else (),
        notes=all_notes(evaluated.metrics),
        systems={evaluated.label(name): figures for name, figures in systems.items()},
    )


def runs_notes(rows: list[RunRow]) -> list[str]:
    """What a reader of the table must know."""
    from pipeline.evaluate.tables.short_tables import NOTHING_CHOSEN

    without_dev = [row.id for row in rows if row.on_dev is False and row.id]
    return [
        *(["system: the one that answers questions"] if any(row.id for row in rows) else []),
        *(f"{name}: {NOTHING_CHOSEN}" for name in dict.fromkeys(without_dev)),
        *dict.fromkeys(f"{row.id}: {line}" for row in rows for line in row.shallow),
    ]


def runs_table(rows: list[RunRow]) -> Table:
    """One row per run: the means of all measures that at least one run has."""
    from pipeline.evaluate.tables.short_tables import SHORT
    from pipeline.formatting import share_text

    known = {measure for row in rows for figures in (row.systems or {}).values() for measure in figures}
    measures = {measure: heading for measure, heading in SHORT.items() if measure in known}
    table = columns()
    for name in ("created", "id"):
        table.add_column(name)
    table.add_column("recipe", min_width=6)
    table.add_column("split")
    table.add_column("system", min_width=6)
    for name in measures.values():
        table.add_column(name, justify="right")
    for row in rows:
        first = [row.created[:10], row.id or "", escape(row.recipe)]
        if row.reached == "ablation":
            table.add_row(*first, "", "a table of all its cells")
        elif row.systems is None or row.answering is None:
            table.add_row(*first, "", "cannot be read" if row.problem else f"not measured; reached {row.reached}")
        elif row.answering in row.systems:
            figures = row.systems[row.answering]
            means = (share_text(figures[measure]["mean"]) if measure in figures else "" for measure in measures)
            table.add_row(*first, row.split, escape(row.answering), *means)
        elif row.split is None:
            table.add_row(*first, "", f"{escape(row.answering)}, no questions to measure with")
        else:
            table.add_row(*first, row.split, f"{escape(row.answering)}, not measured on {row.split}")
    return table
