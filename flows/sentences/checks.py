"""Checks of a recipe's tables before its trainings."""

from collections.abc import Iterable

from flows.graph.plan import Step
from flows.sentences.recipe import SentenceRecipe
from pipeline.errors import InputError
from pipeline.sentences import tables


def check_tables(recipe: SentenceRecipe, steps: Iterable[Step]) -> None:
    """Reads the tables that the store does not have.

    Raises InputError for missing files, for errors in them (as their stage does), and for a size larger than the
    number of training rows.
    """
    configs = {"table": recipe.table, **({} if recipe.nli is None else {"nli": recipe.nli.table})}
    refs = {step.node: step.ref for step in steps}
    unread = {name: config for name, config in configs.items() if refs[name] is None}
    if lines := [line for config in unread.values() for line in tables.missing(config)]:
        raise InputError(*lines)
    row_counts = {name: tables.row_counts(config) for name, config in unread.items()}
    ref = refs["table"]
    check_sizes(recipe, row_counts["table"]["train"] if ref is None else int(ref.metrics["train"]))


def check_sizes(recipe: SentenceRecipe, rows: int) -> None:
    """Raises InputError if a size is larger than `rows`, the number of training rows."""
    for size, epochs in recipe.sizes.items():
        if epochs and size.isdigit() and int(size) > rows:
            raise InputError(f"sizes.{size}: the table has {rows:,} training rows (an empty list leaves the size out)")
