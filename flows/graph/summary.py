"""Shows the results of a run in the terminal and on Prefect's page."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from rich import box
from rich.markup import escape

from artifacts.records import Ref
from flows.graph.run_schema import read_metrics
from flows.graph.selection import store_folder
from flows.recipes.recipe import Recipe
from pipeline.evaluate.short_tables import headed_tables, notes, tables
from tasks import page
from tasks.terminal import TERMINAL, print_line, print_whole


def show(recipe: Recipe, refs: Mapping[str, Ref], store: Path) -> None:
    from prefect import get_run_logger

    console = TERMINAL.get()
    metrics = read_metrics(refs)
    report = refs["report"].path / "report.html" if "report" in refs else None
    if metrics:
        if console:
            console.print()
            for shown in tables(metrics):
                shown.box, shown.pad_edge = box.SIMPLE_HEAD, False
                print_whole(shown, console)
            for note in notes(metrics):
                console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
        page.best_effort(on_page, metrics, report)
        get_run_logger().info("results\n%s", markdown(metrics))
    if report:
        print_line(f"\nReport: {escape(str(report))}")
        get_run_logger().info("report: %s", report)
        for path in mined_pages(refs):
            print_line(f"Mined:  {escape(str(path))}")
        print_line(f"Next:   {escape(next_line(recipe.example_question, store))}")


def mined_pages(refs: Mapping[str, Ref]) -> list[Path]:
    """The pages of mined negatives and of negatives from a file, in the order of the rounds."""
    return [path for ref in refs.values() if (path := ref.path / "negatives.html").exists()]


def next_line(question: str | None, store: Path) -> str:
    """The search command that works in this shell and on this store."""
    called = sys.argv[0]
    command = called if Path(called).name == "cocondenser" and not shutil.which("cocondenser") else "cocondenser"
    where = "" if store == store_folder(None) else f" --store {quote(str(store))}"
    return f'{quote(command)} search "{question or "..."}"{where}'


def on_page(metrics: Mapping[str, Any], report: Path | None) -> None:
    from prefect.artifacts import create_markdown_artifact

    where = f"\n\nThe whole report: `{report}`\n" if report else ""
    create_markdown_artifact(markdown(metrics) + where, key="results", description="Results and report")


def markdown(metrics: Mapping[str, Any]) -> str:
    """The short tables and their notes, for the page."""
    parts = []
    for head, rows in headed_tables(metrics):
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        parts.append("\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]))
    return "\n\n".join([*parts, *notes(metrics)])
