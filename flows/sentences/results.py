"""The table of a sentence task: a row a model, a column a size, with published figures beside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from flows.sentences.recipe import ALL, Published
from pipeline.data.stored import read_json

if TYPE_CHECKING:
    from rich.table import Table

MEASURES = {"spearman": "Spearman x 100", "accuracy": "accuracy, %"}


def read(folder: Path) -> dict[str, Any]:
    """summary.json of the last node. Raises InputError."""
    return read_json(folder / "summary.json", "measure", "rows")


def title(found: Mapping[str, Any]) -> str:
    return f"test: {MEASURES[found['measure']]} [95 % interval], by training rows"


def cells(found: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, str]]]:
    """(sizes, {model: {size: `76.6 [74.2, 78.9]`}}); sizes are `0`, `500`, `all`."""
    sizes: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        size = ALL if row["size"] is None else str(row["size"])
        sizes[size] = None
        rows.setdefault(row["model"], {})[size] = cell(row)
    return [*sizes], rows


def cell(row: Mapping[str, Any]) -> str:
    """Figures of 100; the number of epochs where dev chose it; a dash where all cosines are equal."""
    if row["test"] is None:
        return "–"
    mean, low, high = (f"{100 * row['test'][name]:.1f}" for name in ("mean", "low", "high"))
    chosen = f" ({row['epochs']} ep.)" if len(row["candidates"]) > 1 else ""
    return f"{mean} [{low}, {high}]{chosen}"


def lines(found: Mapping[str, Any], published: Published | None) -> tuple[list[str], list[list[str]]]:
    """(heads, rows): this run's models, then the published ones, marked with a star."""
    sizes, rows = cells(found)
    shown = [[model, *(of_size.get(size, "") for size in sizes)] for model, of_size in rows.items()]
    return ["", *sizes], [*shown, *starred(sizes, published)]


def starred(sizes: Sequence[str], published: Published | None) -> list[list[str]]:
    """The published rows that have a figure of one of the sizes."""
    return [
        [f"{model} *", *(f"{figures[size]:.1f}" if size in figures else "" for size in sizes)]
        for model, figures in (published.rows if published else {}).items()
        if figures.keys() & {*sizes}
    ]


def note(found: Mapping[str, Any], published: Published | None) -> str:
    return f"* not of this run: {published.source}" if published and starred(cells(found)[0], published) else ""


def table(found: Mapping[str, Any], published: Published | None) -> "Table":
    from rich.table import Table

    heads, rows = lines(found, published)
    shown = Table(
        title=title(found), title_justify="left", caption=note(found, published) or None, caption_justify="left"
    )
    for i, head in enumerate(heads):
        shown.add_column(escape(head), justify="right" if i else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(escape, row))
    return shown


def markdown(found: Mapping[str, Any], published: Published | None) -> str:
    """The table for the page and the log."""
    heads, rows = lines(found, published)
    escaped = [" | ".join(text.replace("|", "\\|").replace("<", "&lt;") for text in row) for row in (heads, *rows)]
    body = [f"| {row} |" for row in escaped]
    return "\n".join([title(found), "", body[0], "|---" * len(heads) + "|", *body[1:], "", note(found, published)])


def on_page(found: Mapping[str, Any], published: Published | None) -> None:
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(markdown(found, published), key="sentences", description="Sentence similarity")
