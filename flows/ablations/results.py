"""Shows the results of an ablation in the terminal and on Prefect's page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape

from artifacts.records import Ref
from pipeline.ablation.config import AblationConfig
from pipeline.data.stored import input_error_on_read
from tasks import page
from tasks.terminal import TERMINAL, print_whole

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(config: AblationConfig, found: Ref) -> None:
    """Shows the tables, and the paths of the page and the files."""
    from prefect import get_run_logger

    console = TERMINAL.get()
    if console:
        print_all(config, found.path, console)
    text = (found.path / "table.md").read_text(encoding="utf-8")
    get_run_logger().info("results\n%s", text)
    page.best_effort(on_page, text, found.path / "ablation.html")


def print_all(config: AblationConfig, folder: Path, console: "Console") -> None:
    """Prints the tables of a folder with a note, and the paths of the page and the files."""
    from pipeline.ablation.table import note

    for shown in tables(config, folder):
        console.print()
        print_whole(shown, console)
    lines = (
        f"\n[dim]{escape(note(config, read(folder, 'table.json'), read(folder, 'tests.json')))}[/]",
        f"\nPage:   {escape(str(folder / 'ablation.html'))}",
        f"Tables: {escape(str(folder))}/table.md, table.csv, table.json, tests.json, gains.json",
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def on_page(text: str, where: Path) -> None:
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(f"{text}\nThe whole page: `{where}`\n", key="ablation", description="Table and page")


def tables(config: AblationConfig, folder: Path) -> "list[Table]":
    """One table for each measure on dev (on test if there is no dev), ready to print."""
    from rich.table import Table

    from pipeline.ablation import table

    figures, tests = read(folder, "table.json"), read(folder, "tests.json")
    split = table.splits(figures)[0]
    found = []
    for measure in table.measures_of(config, figures, split):
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        lines = table.table_lines(config, figures, tests, split, measure)
        rows = {line.row: [table.cell_text(cell) for cell in line.cells] for line in lines}
        shown.add_column(f"{table.heading(measure)}, {split}", min_width=10)
        for heading, texts in zip(table.headings(config), zip(*rows.values(), strict=True), strict=True):
            shown.add_column(heading, justify="right", min_width=max(10, *map(len, texts)))
        for row, cells in rows.items():
            shown.add_row(escape(row), *map(escape, cells))
        found.append(shown)
    return found


def figures_of(folder: Path) -> dict[str, Sequence[dict[str, Any]]]:
    """{table, tests, gains} of a folder, for --json."""
    return {name: read(folder, f"{name}.json") for name in ("table", "tests", "gains")}


def read(folder: Path, name: str) -> Sequence[dict[str, Any]]:
    """A list of figures. Raises InputError if the file is missing or damaged."""
    import json

    path = folder / name
    with input_error_on_read(path):
        found: list[dict[str, Any]] = json.loads(path.read_bytes())
    return found
