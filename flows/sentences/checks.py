"""What of a recipe's tables would end its run."""

from collections.abc import Iterable

from flows.graph.plan import Step
from flows.sentences.recipe import SentenceRecipe
from pipeline.errors import InputError
from pipeline.sentences import tables


def check_tables(recipe: SentenceRecipe, steps: Iterable[Step]) -> None:
    """Reads the tables that the store does not hold.

    Raises InputError for files that are missing, as their stage does for what is wrong in them, and for a size that is
    more than there are training rows.
    """
    given = {"table": recipe.table, **({} if recipe.nli is None else {"nli": recipe.nli.table})}
    refs = {step.node: step.ref for step in steps}
    unread = {name: config for name, config in given.items() if refs[name] is None}
    if lines := [line for config in unread.values() for line in tables.missing(config)]:
        raise InputError(*lines)
    read = {name: tables.row_counts(config) for name, config in unread.items()}
    ref = refs["table"]
    check_sizes(recipe, read["table"]["train"] if ref is None else int(ref.metrics["train"]))


def check_sizes(recipe: SentenceRecipe, there: int) -> None:
    """InputError where a size is more than the training rows that are `there`."""
    for size, epochs in recipe.sizes.items():
        if epochs and size.isdigit() and int(size) > there:
            raise InputError(f"sizes.{size}: the table has {there:,} training rows (an empty list leaves the size out)")
