"""`cocondenser ablation`: a table of rows x negatives x training sizes x seeds of one recipe."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.listing import print_listing
from flows.cli.options import Device, Json, Settings, StoreFolder, columns, out, print_json, print_table, warn
from flows.cli.running.prefect import prefect_for
from flows.cli.running.run import artifacts_as_json
from pipeline.paths import expand_home

if TYPE_CHECKING:
    from flows.ablations.ablation import Ablation
    from flows.ablations.choice import Choice
    from flows.ablations.plan import RowPlan
    from flows.ablations.shared_nodes import SharedNodes

ablation_app = typer.Typer(
    no_args_is_help=True,
    help="Compare variants of a recipe (rows) in one table. Stages that they share are built once.",
    epilog="Example: [bold]cocondenser ablation plan pydocs-small[/bold]",
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of an ablation (see `cocondenser ablation list`), or a YAML file.")
]
Rows = Annotated[
    list[str] | None, typer.Option("--rows", metavar="ROW", help="Only this row (default: all rows). Repeatable.")
]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", metavar="KIND", help="Hard negatives: none, bm25, mined or fusion. Repeatable."),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--sizes", metavar="N", help="Number of training questions, or all. Repeatable."),
]
Seeds = Annotated[list[int] | None, typer.Option(help="Random seed for fine-tuning. Repeatable.")]
Reference = Annotated[str | None, typer.Option(metavar="ROW", help="Row that the other rows are compared with.")]


@ablation_app.command("list", epilog="Example: [bold]cocondenser ablation list --json[/bold]")
def list_ablations(as_json: Json = False) -> None:
    """List the ablations."""
    from flows.ablations.file import listed, load

    ablations = [load(name) for name in listed()]
    if as_json:
        fields = ("name", "title", "description", "negatives", "sizes", "seeds", "reference", "measures")
        print_json(
            [
                {**{field: getattr(one, field) for field in fields}, "recipe": one.recipe.name, "rows": [*one.rows]}
                for one in ablations
            ]
        )
        return
    print_listing((one.name, one.title, f"{one.description}\n{_scope(one)}") for one in ablations)


def _scope(ablation: "Ablation") -> str:
    """The recipe, the rows, and the sizes if there are several."""
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
    """Show how many stages each row has, shares with earlier rows, reuses from the store and would build."""
    from flows.ablations.file import load
    from flows.ablations.plan import plan_rows, total
    from flows.graph.selection import store_to_fill

    own, cells = _cells(load(name), _choice(set, rows, negatives, sizes, seeds, reference))
    planned, steps = plan_rows(store_to_fill(store), cells, own.recipe.name)
    summed = total(planned)
    if as_json:
        parts = [{**asdict(step), "ref": step.ref.digest if step.ref else None} for step in steps]
        print_json({"rows": [asdict(row) for row in planned], "total": asdict(summed), "stages": parts})
        return
    print_table(plan_table(planned, summed))
    shared = f"{summed.shared:,} of {summed.stages:,} stages are shared and built once"
    out.print(f"\n{shared}{_estimate(summed)}.", highlight=False, soft_wrap=True)


def _estimate(summed: "RowPlan") -> str:
    """The estimated time, from earlier builds of this recipe."""
    from pipeline.formatting import counted
    from tasks.terminal import duration

    if summed.to_build and summed.seconds:
        unknown = f", without {counted(summed.unknown, 'stages')} never built here" if summed.unknown else ""
        return f"; at most about {duration(summed.seconds)}{unknown}"
    return "; no estimate of the time: this recipe was never built here" if summed.unknown else ""


def plan_table(planned: "list[RowPlan]", summed: "RowPlan") -> Table:
    """One line per row of the ablation, then their sum. Long names fold."""
    table = columns()
    table.add_column("row", min_width=10)
    for heading in ("cells", "stages", "shared", "in the\nstore", "to\nbuild", "time"):
        table.add_column(heading, justify="right")
    for row in (*planned, summed):
        counts = (row.cells, row.stages, row.shared, row.reused, row.to_build)
        style = "bold" if row is summed else None
        table.add_row(escape(row.row), *(f"{count:,}" for count in counts), _time(row), style=style)
    return table


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
    """Run all cells of an ablation, and print the table with its significance tests.

    Stages that cells share run once, and stages in the store are reused.
    If a cell fails, the other cells continue. The same command then runs the rest.
    """
    from flows.ablations.prepare import prepare_ablation
    from pipeline.formatting import counted

    # Everything that can fail early fails here, before the slow import of Prefect.
    choice = _choice(set, rows, negatives, sizes, seeds, reference)
    prepared = prepare_ablation(name, choice, store, device)
    _warn_overwritten(prepared.run.recipe, prepared.rows, choice)
    cells = prepared.cells
    size = f", {counted(len(cells.parts), 'stages')} for {counted(len(cells.needs), 'cells')}"
    with prefect_for(prepared.run, size):
        from flows.ablations.flow import flow_of

        refs = flow_of(prepared)(**prepared.run.parameters)
    if as_json:
        from flows.ablations.results import figures_of

        print_json({"artifacts": artifacts_as_json(refs), **figures_of(refs["ablation"].path)})


@ablation_app.command(epilog="Example: [bold]cocondenser ablation join one/ablation two/ablation --out both[/bold]")
def join(
    parts: Annotated[
        list[Path],
        typer.Argument(
            parser=expand_home,
            metavar="PART",
            help="Folders of artifacts `ablation`, or files that --keep has written.",
        ),
    ],
    to: Annotated[
        Path,
        typer.Option("--out", parser=expand_home, metavar="DIR", help="Folder for the joined table, new or empty."),
    ],
    reference: Reference = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home, metavar="FILE.parquet", help="Also write the figures of all parts into this small file."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Join the parts of an ablation that ran on several machines.

    The joined table has significance tests over all rows.
    """
    from artifacts.objects import changed
    from artifacts.outside import check_outside
    from flows.ablations.results import figures_of, print_all
    from pipeline.ablation.files import AGAIN, FILES
    from pipeline.ablation.join import join_folders
    from pipeline.errors import InputError

    for file in (part / name for part in parts for name in FILES):
        if file.is_file() and changed(file):
            raise InputError(f"{file}: changed since it was written; {AGAIN}")
    check_outside(to, f"--out {to}")
    config = join_folders(parts, to, reference, keep)
    if as_json:
        print_json({"out": to, **figures_of(to)})
        return
    print_all(config, to, out)


def _cells(ablation: "Ablation", choice: "Choice") -> "tuple[Ablation, SharedNodes]":
    from flows.ablations.choice import apply_choice
    from flows.ablations.shared_nodes import merge_cells

    own, rows = apply_choice(ablation, choice)
    _warn_overwritten(own, rows, choice)
    return own, merge_cells(own, rows)


def _warn_overwritten(ablation: "Ablation", rows: "Sequence[str]", choice: "Choice") -> None:
    """Warns of settings that some rows overwrite."""
    from flows.ablations.choice import overwritten_settings

    for line in overwritten_settings(ablation, rows, choice.set):
        warn(line)


def _choice(
    set: list[str] | None,
    rows: list[str] | None,
    negatives: list[str] | None,
    sizes: list[str] | None,
    seeds: list[int] | None,
    reference: str | None,
) -> "Choice":
    from flows.ablations.choice import Choice

    kinds: list[Any] = negatives or []  # unchecked words: `chosen` checks them
    return Choice(set or [], rows or [], kinds, _sizes(sizes), seeds or [], reference)


def _sizes(words: list[str] | None) -> list[int | None]:
    from pipeline.errors import InputError

    sizes: list[int | None] = []
    for word in words or []:
        if word != "all" and not (word.isdecimal() and len(word) < 20):  # int() has a limit too
            raise InputError(f"--sizes {word}: must be a number of training questions, or all")
        sizes.append(None if word == "all" else int(word))
    return sizes
