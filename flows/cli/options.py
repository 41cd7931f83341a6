"""What the commands share: options, the two consoles, tables, warnings and errors."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.notices import escaped
from pipeline.paths import expand_home
from tasks.printable import guard_consoles, json_text

if TYPE_CHECKING:
    from artifacts.store import Store
    from pipeline.evaluate.run_files import Estimates

guard_consoles()
out = Console(soft_wrap=False, emoji=False)
"""Standard output: the results of a command."""
terminal = Console(stderr=True, emoji=False)
"""Standard error: progress, warnings and errors."""

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a recipe (see `cocondenser recipes`), or a YAML file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="STAGE.FIELD=VALUE", help="Change a field of the recipe. Repeatable."),
]
Until = Annotated[
    str | None, typer.Option(metavar="STAGE", help="Last stage to run; the stages that it needs run too.")
]
OfRecipe = Annotated[
    str | None, typer.Option(metavar="RECIPE", help="Recipe whose newest run is used (default: the newest run).")
]
StoreFolder = Annotated[
    Path | None,
    typer.Option(
        parser=expand_home,
        metavar="DIR",
        help="Folder of the artifacts (default: the variable COCONDENSER_STORE, otherwise ./store).",
    ),
]
Device = Annotated[  # `DeviceName`, whose module takes long to import
    Literal["auto", "cpu", "cuda", "mps"] | None, typer.Option(help="Device (default: as the recipe says).")
]
RunFiles = Annotated[
    list[Path],
    typer.Argument(
        parser=expand_home, metavar="RUN", help="Run files: TREC, or MS MARCO with 3 columns; plain or compressed."
    ),
]
QRELS_FORMATS = "TREC with 4 columns, BEIR's tsv, or qrels.parquet"
Relevance = Annotated[int, typer.Option(min=1, help="Lowest grade that counts as relevant (2 for TREC Deep Learning).")]
TestOfDifferences = Annotated[
    Literal["randomisation", "t"],
    typer.Option(help="Test of differences, paired by question. p has Holm's correction."),
]
Samples = Annotated[int, typer.Option(min=100, max=1_000_000, help="Number of resamples of the questions.")]
SampleSeed = Annotated[int, typer.Option(min=0, help="Random seed for resampling.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def columns() -> Table:
    """An empty table without lines. Its columns are closer together if the terminal is narrow."""
    return Table(box=None, pad_edge=False, collapse_padding=out.width < 80)


def print_table(table: Table) -> None:
    """Prints all figures in full, however narrow the terminal is. Columns with a `min_width` fold down to it."""
    from tasks.terminal import print_whole

    print_whole(table, out)


def print_json(value: Any) -> None:
    """Prints JSON that the encoding of standard output can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # None: closed before the program started
    print(json_text(value, encoding, indent=1, default=str), flush=True)  # flushed, to report a full disk here


def print_path(path: Path) -> None:
    """Prints the path for another command to read: its exact bytes. On a terminal: what the terminal can show."""
    if sys.stdout is None or sys.stdout.isatty():
        print(path)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(path) + b"\n")
    sys.stdout.buffer.flush()


def warn(text: str) -> None:
    """Prints one line on standard error that a reader of the results must know."""
    terminal.print(f"warning: {escaped(text)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def warn_questions_without_results(source: Path | str, count: int) -> None:
    """Warns if judged questions have no results in a run file."""
    if count:
        warn(f"{source}: questions without results, each counted as zero: {count:,}")


def fail(text: str, code: int) -> NoReturn:
    """Prints the error and ends the command with this exit code."""
    terminal.print("[red]error:[/] ", end="")
    terminal.print(text, markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


def measures_table(systems: "dict[str, Estimates]") -> Table:
    """One row per measure, one column per system."""
    from pipeline.formatting import estimate_text

    table = columns()
    table.add_column("")
    for name, figures in systems.items():
        widest = max(len(estimate_text(figure)) for figure in figures.values())
        table.add_column(escape(name), justify="right", min_width=widest)
    for measure in next(iter(systems.values())):
        table.add_row(measure, *(estimate_text(figures[measure]) for figures in systems.values()))
    return table


def existing_store(folder: Path | None) -> "Store":
    """The store in the folder. An empty folder is an empty store.

    Raises InputError if the folder is missing or is no store: its name may be misspelt.
    """
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from pipeline.errors import InputError

    root = store_folder(folder)
    if not root.exists():
        raise InputError(f"{root}: no such store; `cocondenser run RECIPE` makes one")
    store = Store(root)
    if not store.format.exists() and any(root.iterdir()):  # `gc` would empty its folder `work`
        raise InputError(f"{root}: no store: it has no {store.format.name}")
    return store


def differences_table(differences: "Estimates") -> Table:
    """One row per measure."""
    from pipeline.evaluate.tables.short_tables import DIFFERENCE, difference_texts

    table = columns()
    for name in ("", "difference", *DIFFERENCE):
        table.add_column(name, justify="right" if name else "left")
    for measure, difference in differences.items():
        table.add_row(measure, *difference_texts(difference))
    return table
