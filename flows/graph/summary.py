"""Shows the results of a run in the terminal and on Prefect's page."""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from artifacts.records import Ref
from flows.graph.run_schema import read_dimensions, read_metrics, read_others
from flows.graph.selection import store_folder
from flows.recipes.recipe import Recipe
from pipeline.evaluate.tables.dimensions_table import dimensions_table
from pipeline.evaluate.tables.others_table import others_table, worse_sentences
from pipeline.evaluate.tables.short_tables import headed_tables, notes, printed, tables
from tasks import page
from tasks.terminal import TERMINAL, print_line, print_whole


def show(recipe: Recipe, refs: Mapping[str, Ref], store: Path) -> None:
    from prefect import get_run_logger

    console = TERMINAL.get()
    metrics, others, dimensions = read_metrics(refs), read_others(refs), read_dimensions(refs)
    report = refs["report"].path / "report.html" if "report" in refs else None
    if metrics:
        if console:
            show_tables(tables(metrics), notes(metrics), console)
        page.best_effort(on_page, markdown(metrics, others, dimensions), report)
        get_run_logger().info("results\n%s", markdown(metrics, others, dimensions))
    if others and console:
        (title, *columns), rows = others_table(others)
        show_tables([printed(f"{title}, difference [95 % interval]", columns, rows)], [], console)
        for sentence in worse_sentences(others):
            console.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if dimensions and console:
        (title, *columns), rows = dimensions_table(dimensions)
        show_tables([printed(f"{title}, mean [95 % interval]", columns, rows)], [], console)
    if report:
        print_line(f"\nReport: {escape(str(report))}")
        get_run_logger().info("report: %s", report)
        for path in mined_pages(refs):
            print_line(f"Mined:  {escape(str(path))}")
        print_line(f"Next:   {escape(next_line(recipe.example_question, store))}")


def show_tables(shown: Iterable[Table], notes: Iterable[str], console: Console) -> None:
    console.print()
    for table in shown:
        table.box, table.pad_edge = box.SIMPLE_HEAD, False
        print_whole(table, console)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)


def mined_pages(refs: Mapping[str, Ref]) -> list[Path]:
    """The pages of mined negatives and of negatives from a file, in the order of the rounds."""
    return [path for ref in refs.values() if (path := ref.path / "negatives.html").exists()]


def next_line(question: str | None, store: Path) -> str:
    """The search command that works in this shell and on this store."""
    called = sys.argv[0]
    command = called if Path(called).name == "cocondenser" and not shutil.which("cocondenser") else "cocondenser"
    where = "" if store == store_folder(None) else f" --store {quote(str(store))}"
    return f'{quote(command)} search "{question or "..."}"{where}'


def on_page(results: str, report: Path | None) -> None:
    from prefect.artifacts import create_markdown_artifact

    where = f"\n\nThe whole report: `{report}`\n" if report else ""
    create_markdown_artifact(results + where, key="results", description="Results and report")


def markdown(
    metrics: Mapping[str, Any], others: Mapping[str, Any] | None = None, dimensions: Mapping[str, Any] | None = None
) -> str:
    """The short tables and their notes, then the tables of other collections and of dimensions, for the page."""
    parts = [as_markdown(*table) for table in headed_tables(metrics)] + notes(metrics)
    if others:
        parts += [as_markdown(*others_table(others)), *worse_sentences(others)]
    if dimensions:
        parts.append(as_markdown(*dimensions_table(dimensions)))
    return "\n\n".join(parts)


def as_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
