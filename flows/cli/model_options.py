"""`--model` and `--collection` of `run` and `plan`, and what they change in the recipe."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import terminal

FromModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Fine-tune this model instead of one from scratch: a folder of sentence-transformers or Hugging Face, a "
        "name on the hub (OWNER/NAME), or a node of a run (NODE or RUN:NODE).",
    ),
]
OnCollection = Annotated[
    str | None,
    typer.Option(
        "--collection",
        metavar="COLLECTION",
        help="Collection with training questions: a folder in BEIR's layout, an id of ir_datasets, or a recipe.",
    ),
]


def recipe_settings(
    store: Path | None, recipe: str, settings: list[str] | None, model: str | None, collection: str | None
) -> list[str]:
    """Returns the settings of `--model` and `--collection`, then those of `--set`; prints what is known of the model.

    Raises InputError as `fine_tuning` does.
    """
    if model is None and collection is None:
        return settings or []
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.runs.fine_tuning import fine_tuning

    result = fine_tuning(Store(store_folder(store)), recipe, model, collection, settings or [])
    for line in result.notes:
        terminal.print(line, markup=False, highlight=False, soft_wrap=True)
    return result.settings
