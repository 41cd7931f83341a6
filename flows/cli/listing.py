"""Listings of what has a name and a title: recipes, those of sentence tasks, ablations."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.cli.options import out, print_json

if TYPE_CHECKING:
    from flows.recipes.recipe import Recipe
    from flows.sentences.recipe import SentenceRecipe


def print_recipes(recipes: "Iterable[Recipe | SentenceRecipe]", as_json: bool) -> None:
    """Those that are not hidden."""
    found = [recipe for recipe in recipes if not recipe.hidden]
    if as_json:
        print_json([{"name": r.name, "title": r.title, "description": r.description} for r in found])
        return
    print_listing((r.name, r.title, r.description) for r in found)


def print_listing(rows: Iterable[tuple[str, str, str]]) -> None:
    """(name, title, further lines) of each."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 1, 0))
    for name, title, lines in rows:
        table.add_row(f"[bold]{escape(name)}[/]", f"{escape(title)}\n[dim]{escape(lines)}[/]")
    out.print(table)
