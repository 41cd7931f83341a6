"""What the commands share: options, the two consoles, and how an error ends them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.notices import escaped
from pipeline.paths import given
from tasks.printable import guard_consoles, json_text

if TYPE_CHECKING:
    from pipeline.evaluate.run_files import Estimates

guard_consoles()
out = Console(soft_wrap=False, emoji=False)
"""What was asked for."""
terminal = Console(stderr=True, emoji=False)
"""Progress and errors."""

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="One of `cocondenser recipes`, or a YAML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.FIELD=VALUE", help="Change a field of the recipe; may stand several times."),
]
Until = Annotated[str | None, typer.Option(metavar="STAGE", help="The last stage to run, with all that it needs.")]
OfRecipe = Annotated[str | None, typer.Option(metavar="RECIPE", help="Of this recipe; else of the newest run.")]
StoreFolder = Annotated[
    Path | None,
    typer.Option(parser=given, metavar="DIR", help="The folder of artifacts; else COCONDENSER_STORE, else ./store."),
]
Device = Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="The recipe's where not given.")]
TestOfDifferences = Annotated[
    Literal["randomisation", "t"], typer.Option(help="Of differences, paired by question; p by Holm's correction.")
]
Samples = Annotated[int, typer.Option(min=100, max=1_000_000, help="Resamples of the questions.")]
SampleSeed = Annotated[int, typer.Option(min=0, help="Of the resamples.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def columns() -> Table:
    """An empty table without lines, its columns closer together where the terminal is narrow."""
    return Table(box=None, pad_edge=False, collapse_padding=out.width < 80)


def print_table(table: Table) -> None:
    """Of figures: none is cut, however narrow the terminal. Columns with a `min_width` fold down to it."""
    from tasks.terminal import print_whole

    print_whole(table, out)


def print_json(value: Any) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # None: closed before the program began
    print(json_text(value, encoding, indent=1, default=str), flush=True)  # at once: a full disk is reported


def print_path(path: Path) -> None:
    """As the system has it, for another command to read; a terminal gets what it can show."""
    if sys.stdout is None or sys.stdout.isatty():
        print(path)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(path) + b"\n")
    sys.stdout.buffer.flush()


def warn(text: str) -> None:
    """One line that a reader of the figures must know."""
    terminal.print(f"warning: {escaped(text)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def fail(text: str, code: int) -> NoReturn:
    """Ends the command with one line, or several of an InputError."""
    terminal.print("[red]error:[/] ", end="")
    terminal.print(text, markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def table(systems: "dict[str, Estimates]") -> Table:
    """A row a measure, a column a system."""
    from pipeline.formatting import estimate_text

    shown = columns()
    shown.add_column("")
    for name, figures in systems.items():
        widest = max(len(estimate_text(figure)) for figure in figures.values())
        shown.add_column(escape(name), justify="right", min_width=widest)
    for measure in next(iter(systems.values())):
        shown.add_row(measure, *(estimate_text(figures[measure]) for figures in systems.values()))
    return shown
