"""`--model`, `--adapt` and `--collection` of `run` and `plan`, and what they change in the recipe."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Device, terminal

FromModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Fine-tune this model instead of one from scratch: a folder of sentence-transformers or Hugging Face, a "
        "name on the hub (OWNER/NAME), or a node of a run (NODE or RUN:NODE).",
    ),
]
Adapted = Annotated[
    bool,
    typer.Option("--adapt", help="Adapt --model to the collection without questions, instead of fine-tuning it."),
]
OnCollection = Annotated[
    str | None,
    typer.Option(
        "--collection",
        metavar="COLLECTION",
        help="Collection with training questions, or with --adapt without: a folder in BEIR's layout, an id of "
        "ir_datasets, or a recipe.",
    ),
]


def recipe_settings(
    store: Path | None,
    recipe: str,
    settings: list[str] | None,
    model: str | None,
    collection: str | None,
    adapt: bool,
    device: Device = None,
) -> list[str]:
    """Returns the settings of `--model`, `--adapt` and `--collection`, then those of `--set`.

    Prints what is known of the model. Raises InputError as `fine_tuning` does.
    """
    if model is None and collection is None and not adapt:
        return settings or []
    from flows.graph.selection import store_to_fill
    from flows.runs.fine_tuning import fine_tuning

    result = fine_tuning(store_to_fill(store), recipe, model, collection, settings or [], adapt, device)
    for line in result.notes:
        terminal.print(line, markup=False, highlight=False, soft_wrap=True)
    return result.settings
