"""A run before it begins: what the command line and the flow know of it alike. Nothing here imports Prefect."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from artifacts.records import Ref
from artifacts.store import Store
from flows.dag import nodes
from flows.graph import preflight
from flows.graph.selection import names, select, store_folder, upstream
from flows.recipes.recipe import Recipe, change, resolve
from pipeline.runtime.work import Machine
from tasks.node import Node, Order
from tasks.tracking import Tracking

Device = Literal["auto", "cpu", "cuda"] | None
"""None: the recipe's."""
Of = TypeVar("Of")


@dataclass(frozen=True)
class Run(Generic[Of]):
    """All that is known of a run before its first stage."""

    name: str
    """In the store's records, such as the recipe's name."""
    recipe: Of
    """Complete, with the settings in it: a recipe of any flow, or an ablation."""
    parameters: Mapping[str, Any]
    """What the user gave, as the flow takes it."""
    details: Mapping[str, Any]
    """What the record holds besides the artifacts: the complete recipe, for one."""
    store: Store
    dag: Sequence[Node]
    """Every node of the recipe, each after all that it reads."""
    orders: Sequence[Order]
    """What is to be done, in order."""
    machine: Machine
    tracking: Tracking | None = None
    refreshed: frozenset[str] = frozenset()
    """Nodes that are built again."""
    before: Callable[[], Mapping[str, Ref]] = field(default=dict)
    """The artifacts that the run reads and does not build. Raises InputError where the store lacks one."""
    continues: bool = False
    """Where a node fails, the nodes that do not read it are built nevertheless."""

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
    """The run of a recipe. Raises InputError or StoreError for all that can be known to fail.

    `recipe`: the name of one of the project's, the path of a YAML file, or a complete one that has the settings.
    """
    if isinstance(recipe, str):
        called, own = recipe, resolve(recipe, [*settings, *on(device)])
    else:
        called, own = recipe.name, change(recipe, on(device))
    shelf, dag = Store(store_folder(store)), nodes(own)
    wanted = select(dag, until, only)
    refreshed, kept = names(dag, refresh), names(dag, keep)
    preflight.check(shelf, dag, wanted, own.machine, own.tracking)
    before: Callable[[], Mapping[str, Ref]] = partial(upstream, shelf, dag, wanted, called) if only else dict
    before()
    chosen = {"set": [*settings], "until": until, "only": only}
    return Run(
        name=own.name,
        recipe=own,
        parameters={
            "recipe": called,
            **chosen,
            "refresh": [*refresh],
            "keep": [*keep],
            "store": str(shelf.root),
            "device": device,
        },
        details={"recipe": own.model_dump(mode="json"), **chosen},
        store=shelf,
        dag=dag,
        orders=[Order(node, own.machine, shelf.root, own.name, keep=node.name in kept) for node in wanted],
        machine=own.machine,
        tracking=own.tracking,
        refreshed=frozenset(refreshed),
        before=before,
    )


def on(device: Device) -> list[str]:
    """The setting that `--device` stands for."""
    return [] if device is None else [f"machine.device={device}"]
