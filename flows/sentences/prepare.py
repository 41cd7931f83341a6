"""Prepares a run of sentence tasks, for the command line and the flow."""

from collections.abc import Sequence
from pathlib import Path

from flows.graph import preflight
from flows.graph.prepare import Device, Run, device_settings
from flows.graph.selection import store_to_fill
from flows.sentences.dag import sentence_nodes
from flows.sentences.recipe import SentenceRecipe, resolve_sentences
from tasks.node import Order


def prepare_sentences(
    recipe: str, settings: Sequence[str] = (), store: str | Path | None = None, device: Device = None
) -> Run[SentenceRecipe]:
    """The run of a recipe (a name or a file). Raises InputError or StoreError for everything that can fail early."""
    resolved = resolve_sentences(recipe, [*settings, *device_settings(device)])
    artifact_store = store_to_fill(store)
    dag = sentence_nodes(resolved, artifact_store)
    preflight.check(artifact_store, dag, dag, resolved.machine)
    return Run(
        name=resolved.name,
        recipe=resolved,
        parameters={"recipe": recipe, "set": [*settings], "store": str(artifact_store.root), "device": device},
        details={"sentences": resolved.model_dump(mode="json"), "set": [*settings]},
        store=artifact_store,
        dag=dag,
        orders=[Order(node, resolved.machine, artifact_store.root, resolved.name) for node in dag],
        machine=resolved.machine,
    )
