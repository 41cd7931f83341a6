"""Prepares a run of an ablation for the command line and for the flow."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flows.ablations.ablation import Ablation
from flows.ablations.choice import Choice, apply_choice
from flows.ablations.file import load
from flows.ablations.shared_nodes import SharedNodes, merge_cells
from flows.graph import preflight
from flows.graph.prepare import Device, Run, device_settings
from flows.graph.selection import store_to_fill
from tasks.node import Order


@dataclass(frozen=True)
class AblationRun:
    run: Run[Ablation]
    """Its `recipe` is the ablation with the chosen values."""
    cells: SharedNodes
    rows: Sequence[str]
    """The rows to run."""


def prepare_ablation(
    ablation: str, choice: Choice | None = None, store: str | Path | None = None, device: Device = None
) -> AblationRun:
    """Prepares the run of an ablation, which is a name or a file. Raises InputError or StoreError for everything that
    will certainly fail.
    """
    choice = choice or Choice()
    own, rows = apply_choice(load(ablation), replace(choice, set=[*choice.set, *device_settings(device)]))
    artifact_store, cells = store_to_fill(store), merge_cells(own, rows)
    shared = cells.needs[0].cell.recipe
    preflight.check(artifact_store, cells.nodes, cells.nodes, shared.machine, shared.tracking)
    width = max(len(node.name) for node in cells.nodes)
    run = Run(
        name=f"ablation {own.name}",
        recipe=own,
        parameters={"ablation": ablation, **asdict(choice), "store": str(artifact_store.root), "device": device},
        details={"ablation": own.model_dump(mode="json"), "set": choice.set, "rows": rows},
        store=artifact_store,
        dag=cells.nodes,
        orders=[
            Order(part.node, part.recipe.machine, artifact_store.root, part.recipe.name, width=width)
            for part in cells.parts
        ],
        machine=shared.machine,
        tracking=shared.tracking,
        continues=True,
    )
    return AblationRun(run, cells, rows)
