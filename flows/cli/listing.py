"""Lists recipes, recipes of sentence tasks, and ablations with their titles."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.cli.options import out, print_json

if TYPE_CHECKING:
    from flows.recipes.yaml_layers import Summary


def print_recipes(recipes: "Sequence[Summary]", as_json: bool) -> None:
    """Prints the recipes' names, titles and descriptions."""
    if as_json:
        print_json([one._asdict() for one in recipes])
        return
    print_listing(recipes)


def print_listing(rows: Iterable[tuple[str, str, str]]) -> None:
    """Prints rows of (name, title, further lines)."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    for name, title, lines in rows:
        table.add_row(f"[bold]{escape(name)}[/]", f"{escape(title)}\n[dim]{escape(lines)}[/]")
    out.print(table)
