"""The table of a sentence task: one row per model, one column per size, with published figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from flows.sentences.recipe import ALL, Published
from pipeline.data.stored import read_json

if TYPE_CHECKING:
    from rich.table import Table

MEASURES = {"spearman": "Spearman x 100", "accuracy": "accuracy, %"}


def read_summary(folder: Path) -> dict[str, Any]:
    """Reads summary.json of the last node. Raises InputError."""
    return read_json(folder / "summary.json", "measure", "rows")


def table_title(summary: Mapping[str, Any]) -> str:
    return f"test: {MEASURES[summary['measure']]} [95 % interval], by training rows"


def cells(summary: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, str]]]:
    """(sizes, {model: {size: `76.6 [74.2, 78.9]`}}); sizes are `0`, `500`, `all`."""
    sizes: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for row in summary["rows"]:
        size = ALL if row["size"] is None else str(row["size"])
        sizes[size] = None
        rows.setdefault(row["model"], {})[size] = cell(row)
    return [*sizes], rows


def cell(row: Mapping[str, Any]) -> str:
    """Percent, with the number of epochs if dev chose it. A dash if all cosines are equal."""
    if row["test"] is None:
        return "–"
    mean, low, high = (f"{100 * row['test'][name]:.1f}" for name in ("mean", "low", "high"))
    chosen = f" ({row['epochs']} ep.)" if len(row["candidates"]) > 1 else ""
    return f"{mean} [{low}, {high}]{chosen}"


def headings_and_rows(summary: Mapping[str, Any], published: Published | None) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): this run's models, then the published ones, marked with a star."""
    sizes, rows = cells(summary)
    own = [[model, *(of_size.get(size, "") for size in sizes)] for model, of_size in rows.items()]
    return ["", *sizes], [*own, *published_rows(sizes, published)]


def published_rows(sizes: Sequence[str], published: Published | None) -> list[list[str]]:
    """The published rows with a figure for one of the sizes."""
    return [
        [f"{model} *", *(f"{figures[size]:.1f}" if size in figures else "" for size in sizes)]
        for model, figures in (published.rows if published else {}).items()
        if figures.keys() & {*sizes}
    ]


def note(summary: Mapping[str, Any], published: Published | None) -> str:
    return (
        f"* published elsewhere: {published.source}"
        if published and published_rows(cells(summary)[0], published)
        else ""
    )


def results_table(summary: Mapping[str, Any], published: Published | None) -> "Table":
    from rich.table import Table

    headings, rows = headings_and_rows(summary, published)
    table = Table(
        title=table_title(summary),
        title_justify="left",
        caption=note(summary, published) or None,
        caption_justify="left",
    )
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def results_markdown(summary: Mapping[str, Any], published: Published | None) -> str:
    """The table as Markdown, for the page and the log."""
    headings, rows = headings_and_rows(summary, published)
    lines = [" | ".join(text.replace("|", "\\|").replace("<", "&lt;") for text in row) for row in (headings, *rows)]
    body = [f"| {line} |" for line in lines]
    return "\n".join(
        [table_title(summary), "", body[0], "|---" * len(headings) + "|", *body[1:], "", note(summary, published)]
    )


def add_to_page(summary: Mapping[str, Any], published: Published | None) -> None:
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(results_markdown(summary, published), key="sentences", description="Sentence similarity")
