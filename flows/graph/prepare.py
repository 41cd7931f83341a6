"""Prepares a run for the command line and for the flow, before Prefect is imported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from artifacts.records import Ref
from artifacts.store import Store
from flows.dag import nodes
from flows.graph import preflight
from flows.graph.selection import node_names, select, store_to_fill, upstream
from flows.recipes.recipe import Recipe, resolve, with_settings
from pipeline.runtime.work import DeviceName, Machine
from tasks.node import Node, Order
from tasks.tracking import Tracking

Device = DeviceName | None
"""None: the recipe's."""
AnyRecipe = TypeVar("AnyRecipe")


@dataclass(frozen=True)
class Run(Generic[AnyRecipe]):
    """A run before its first stage."""

    name: str
    """In the store's records, such as the recipe's name."""
    recipe: AnyRecipe
    """Complete, with the settings in it: a recipe of any flow, or an ablation."""
    parameters: Mapping[str, Any]
    """The user's options, as parameters of the flow."""
    details: Mapping[str, Any]
    """What the record holds in addition to the artifacts, such as the complete recipe."""
    store: Store
    dag: Sequence[Node]
    """Every node of the recipe, each after all that it reads."""
    orders: Sequence[Order]
    """The nodes to build, in order, and how."""
    machine: Machine
    tracking: Tracking | None = None
    refreshed: frozenset[str] = frozenset()
    """Nodes that are built again."""
    before: Callable[[], Mapping[str, Ref]] = field(default=dict)
    """Returns the artifacts that the run reads but does not build. Raises InputError if the store lacks one."""
    continues: bool = False
    """Whether a failed node stops only those that read it."""

    @property
    def wanted(self) -> list[Node]:
        return [order.node for order in self.orders]


def prepare(
    recipe: str | Recipe,
    settings: Sequence[str] = (),
    until: str | None = None,
    only: str | None = None,
    refresh: Sequence[str] = (),
    keep: Sequence[str] = (),
    store: str | Path | None = None,
    device: Device = None,
) -> Run[Recipe]:
    """Prepares the run of a recipe. Raises InputError or StoreError for everything that will certainly fail.

    `recipe`: the name of a project's recipe, the path of a YAML file, or a complete recipe that includes the settings.
    """
    if isinstance(recipe, str):
        name, complete = recipe, resolve(recipe, [*settings, *device_settings(device)])
    else:
        name, complete = recipe.name, with_settings(recipe, device_settings(device))
    artifact_store, dag = store_to_fill(store), nodes(complete)
    wanted = select(dag, until, only)
    refresh_nodes, keep_nodes = node_names(dag, refresh), node_names(dag, keep)
    preflight.check(artifact_store, dag, wanted, complete.machine, complete.tracking)
    before: Callable[[], Mapping[str, Ref]] = partial(upstream, artifact_store, dag, wanted, name) if only else dict
    before()
    chosen = {"set": [*settings], "until": until, "only": only}
    machine = complete.machine
    return Run(
        name=complete.name,
        recipe=complete,
        parameters={
            "recipe": name,
            **chosen,
            "refresh": [*refresh],
            "keep": [*keep],
            "store": str(artifact_store.root),
            "device": device,
        },
        details={"recipe": complete.model_dump(mode="json"), **chosen},
        store=artifact_store,
        dag=dag,
        orders=[
            Order(node, machine, artifact_store.root, complete.name, keep=node.name in keep_nodes) for node in wanted
        ],
        machine=machine,
        tracking=complete.tracking,
        refreshed=frozenset(refresh_nodes),
        before=before,
    )


def device_settings(device: Device) -> list[str]:
    """`--device` as a setting."""
    return [] if device is None else [f"machine.device={device}"]
