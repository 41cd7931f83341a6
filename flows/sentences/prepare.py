"""A run of sentence tasks before it begins: what the command line and the flow know of it alike."""

from collections.abc import Sequence
from pathlib import Path

from artifacts.store import Store
from flows.graph import preflight
from flows.graph.prepare import Device, Run, on
from flows.graph.selection import store_folder
from flows.sentences.dag import nodes
from flows.sentences.recipe import SentenceRecipe, resolve
from tasks.node import Order


def prepare_sentences(
    recipe: str, settings: Sequence[str] = (), store: str | Path | None = None, device: Device = None
) -> Run[SentenceRecipe]:
    """The run of the recipe `recipe`, a name or a file. Raises InputError or StoreError for all that can be known to
    fail.
    """
    own, shelf = resolve(recipe, [*settings, *on(device)]), Store(store_folder(store))
    dag = nodes(own, shelf)
    preflight.check(shelf, dag, dag, own.machine)
    return Run(
        name=own.name,
        recipe=own,
        parameters={"recipe": recipe, "set": [*settings], "store": str(shelf.root), "device": device},
        details={"sentences": own.model_dump(mode="json"), "set": [*settings]},
        store=shelf,
        dag=dag,
        orders=[Order(node, own.machine, shelf.root, own.name) for node in dag],
        machine=own.machine,
    )
