"""`cocondenser ablation`: rows x negatives x sizes of training data x seeds of a recipe, in one call."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.listing import print_listing
from flows.cli.options import Device, Json, Settings, StoreFolder, columns, out, print_json, print_table, warn
from flows.cli.prefect import prefect
from pipeline.paths import given

if TYPE_CHECKING:
    from flows.ablations.ablation import Ablation
    from flows.ablations.choice import Choice
    from flows.ablations.plan import RowPlan
    from flows.ablations.shared_nodes import Union

ablation_app = typer.Typer(
    no_args_is_help=True,
    help="Compare rows of a recipe: what they share is built once.",
    epilog="Example: [bold]cocondenser ablation plan pydocs-small[/bold]",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="One of `cocondenser ablation list`, or a YAML file.")]
Rows = Annotated[list[str] | None, typer.Option("--rows", metavar="ROW", help="Run this row; may stand several times.")]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", metavar="KIND", help="none, bm25, mined or fusion; may stand several times."),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--sizes", metavar="N", help="Training questions, or all; may stand several times."),
]
Seeds = Annotated[list[int] | None, typer.Option(help="Of fine-tuning; may stand several times.")]
Reference = Annotated[str | None, typer.Option(metavar="ROW", help="What the rows are tested against.")]


@ablation_app.command("list", epilog="Example: [bold]cocondenser ablation list --json[/bold]")
def listed(as_json: Json = False) -> None:
    """List the ablations."""
    from flows.ablations.file import load, named

    found = [load(name) for name in named()]
    if as_json:
        fields = ("name", "title", "description", "negatives", "sizes", "seeds", "reference", "measures")
        print_json(
            [
                {**{field: getattr(one, field) for field in fields}, "recipe": one.recipe.name, "rows": [*one.rows]}
                for one in found
            ]
        )
        return
    print_listing((one.name, one.title, f"{one.description}\n{_scope(one)}") for one in found)


def _scope(ablation: "Ablation") -> str:
    """The recipe, the rows and the sizes, where there are several."""
    from flows.ablations.ablation import size_text

    sizes = f"; sizes {', '.join(map(size_text, ablation.sizes))}" if len(ablation.sizes) > 1 else ""
    return f"recipe {ablation.recipe.name}; rows {', '.join(ablation.rows)}{sizes}"


@ablation_app.command(epilog="Example: [bold]cocondenser ablation plan low-data --sizes 1000 --sizes all[/bold]")
def plan(
    name: Name,
    set: Settings = None,
    rows: Rows = None,
    negatives: Negatives = None,
    sizes: Sizes = None,
    seeds: Seeds = None,
    reference: Reference = None,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Show how many stages each row has, shares with earlier ones, has in the store and would build."""
    from artifacts.store import Store
    from flows.ablations.file import load
    from flows.ablations.plan import plan_rows, total
    from flows.graph.selection import store_folder
    from pipeline.formatting import counted
    from tasks.terminal import duration

    own, cells = _cells(load(name), _choice(set, rows, negatives, sizes, seeds, reference))
    shelf = Store(store_folder(store))
    planned, steps = plan_rows(shelf, cells, own.recipe.name)
    summed = total(planned)
    if as_json:
        parts = [{**asdict(step), "ref": step.ref.digest if step.ref else None} for step in steps]
        print_json({"rows": [asdict(row) for row in planned], "total": asdict(summed), "stages": parts})
        return
    print_table(table(planned, summed))
    saved = f"{summed.shared:,} of {summed.stages:,} stages are shared and built once"
    guess = f"; at most about {duration(summed.seconds)}" if summed.to_build and summed.seconds else ""
    beside = f" and what {counted(summed.unknown, 'stages')} never built here will take" if summed.unknown else ""
    if beside and not guess:
        guess, beside = "; no guess of the time: this recipe never built them here", ""
    out.print(f"\n{saved}{guess}{beside}.", highlight=False, soft_wrap=True)


def table(planned: "list[RowPlan]", summed: "RowPlan") -> Table:
    """A row of the ablation a row, their sum last; names fold."""
    shown = columns()
    shown.add_column("row", min_width=10)
    for heading in ("cells", "stages", "shared", "in the\nstore", "to\nbuild", "time"):
        shown.add_column(heading, justify="right")
    for row in (*planned, summed):
        counts = (row.cells, row.stages, row.shared, row.reused, row.to_build)
        style = "bold" if row is summed else None
        shown.add_row(escape(row.row), *(f"{count:,}" for count in counts), _time(row), style=style)
    return shown


def _time(row: "RowPlan") -> str:
    from tasks.terminal import duration

    if not row.to_build:
        return ""
    if row.seconds is None:
        return "?"
    return duration(row.seconds) + (" + ?" if row.unknown else "")


@ablation_app.command(
    epilog="Example: [bold]cocondenser ablation run pydocs-small --rows BERT --rows coCondenser[/bold]"
)
def run(
    name: Name,
    set: Settings = None,
    rows: Rows = None,
    negatives: Negatives = None,
    sizes: Sizes = None,
    seeds: Seeds = None,
    reference: Reference = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Run an ablation: every cell, what is shared once, and the table with its tests at the end.

    What is in the store is reused. Where a cell fails the others go on; the same command then goes on with the rest.
    """
    from flows.ablations.choice import unheard
    from flows.ablations.prepare import prepare_ablation
    from pipeline.formatting import counted

    # All that can be known to fail does so here, before Prefect is imported.
    choice = _choice(set, rows, negatives, sizes, seeds, reference)
    ready = prepare_ablation(name, choice, store, device)
    for line in unheard(ready.run.recipe, ready.rows, choice.set):
        warn(line)
    cells = ready.cells
    size = f", {counted(len(cells.parts), 'stages')} for {counted(len(cells.needs), 'cells')}"
    with prefect(ready.run, size):
        from flows.ablations.flow import flow_of

        refs = flow_of(ready)(**ready.run.parameters)
    if as_json:
        print_json(_outcome(refs))


@ablation_app.command(epilog="Example: [bold]cocondenser ablation join one/ablation two/ablation --out both[/bold]")
def join(
    parts: Annotated[
        list[Path],
        typer.Argument(
            parser=given, metavar="PART PART...", help="Artifacts `ablation`, copies of them, or files of --keep."
        ),
    ],
    to: Annotated[
        Path, typer.Option("--out", parser=given, metavar="DIR", help="Where the table of all goes: new, or empty.")
    ],
    reference: Reference = None,
    keep: Annotated[
        Path | None,
        typer.Option(parser=given, metavar="FILE.parquet", help="Keep the figures of all parts in one small file too."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Join the tables of an ablation's parts, made on several machines, into one with tests over all rows."""
    from artifacts.objects import changed
    from flows.ablations.results import figures_of, print_all
    from pipeline.ablation.files import AGAIN, FILES
    from pipeline.ablation.join import join_folders
    from pipeline.errors import InputError

    for file in (part / name for part in parts for name in FILES):
        if file.is_file() and changed(file):
            raise InputError(f"{file}: not as its manifest has it; {AGAIN}")
    config = join_folders(parts, to, reference, keep)
    if as_json:
        print_json({"out": to, **figures_of(to)})
        return
    print_all(config, to, out)


def _cells(ablation: "Ablation", choice: "Choice") -> "tuple[Ablation, Union]":
    from flows.ablations.choice import chosen, unheard
    from flows.ablations.shared_nodes import union

    own, asked = chosen(ablation, choice)
    for line in unheard(own, asked, choice.set):
        warn(line)
    return own, union(own, asked)


def _choice(
    set: list[str] | None,
    rows: list[str] | None,
    negatives: list[str] | None,
    sizes: list[str] | None,
    seeds: list[int] | None,
    reference: str | None,
) -> "Choice":
    from flows.ablations.choice import Choice

    kinds: list[Any] = negatives or []  # words, until `chosen` has looked at them
    return Choice(set or [], rows or [], kinds, _sizes(sizes), seeds or [], reference)


def _sizes(given: list[str] | None) -> list[int | None]:
    from pipeline.errors import InputError

    sizes: list[int | None] = []
    for word in given or []:
        if word != "all" and not (word.isdecimal() and len(word) < 20):  # int() has a limit too
            raise InputError(f"--sizes {word}: a number of training questions, or all")
        sizes.append(None if word == "all" else int(word))
    return sizes


def _outcome(refs: dict[str, Any]) -> dict[str, Any]:
    from flows.ablations.results import figures_of

    made = {name: {"digest": ref.digest, "path": str(ref.path), "metrics": ref.metrics} for name, ref in refs.items()}
    return {"artifacts": made, **figures_of(refs["ablation"].path)}
