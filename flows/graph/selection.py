"""Selects the nodes of a run, and its store."""

import os
from collections.abc import Iterable
from pathlib import Path

from artifacts.files import check_path
from artifacts.records import Ref
from artifacts.store import Store
from flows.graph.plan import plan
from flows.recipes.yaml_layers import hint
from pipeline import paths
from pipeline.errors import InputError
from tasks.node import Node


def store_folder(folder: str | Path | None) -> Path:
    """The store's folder. Raises `StoreError` where its path is not UTF-8."""
    field = "store" if folder else "COCONDENSER_STORE"
    path = paths.expand_home(folder or os.environ.get("COCONDENSER_STORE") or "store", field).absolute()
    check_path(path)
    return path


def store_to_fill(folder: str | Path | None) -> Store:
    """Returns the store in the folder, which may be new. Raises InputError if it has other files, such as an export."""
    store = Store(store_folder(folder))
    if store.is_other_folder():
        raise InputError(f"{store.root}: no store: it has no {store.format.name}; choose a new or an empty folder")
    return store


def named(dag: Iterable[Node], name: str) -> list[Node]:
    """The node of that name, or the nodes of that stage (`search`: all three searches)."""
    dag = list(dag)
    found = [n for n in dag if n.name == name] or [n for n in dag if name == n.stage or n.name == f"ingest-{name}"]
    if not found:
        known = {n.name for n in dag} | {n.stage for n in dag}
        raise InputError(f"no stage {name!r}{hint(name, sorted(known))}; the stages: {', '.join(n.name for n in dag)}")
    return found


def node_names(dag: Iterable[Node], names: Iterable[str]) -> set[str]:
    """The nodes that these names of nodes and stages mean. Raises InputError for an unknown one."""
    dag = list(dag)
    return {node.name for name in names for node in named(dag, name)}


def up_to(dag: Iterable[Node], name: str) -> list[Node]:
    """The nodes of that name and everything upstream of them, in order."""
    dag = list(dag)
    wanted = {n.name for n in named(dag, name)}
    for node in reversed(dag):
        if node.name in wanted:
            wanted |= {source.name for source in node.inputs.values() if source is not None}
    return [n for n in dag if n.name in wanted]


def select(dag: list[Node], until: str | None, only: str | None) -> list[Node]:
    """The nodes that `--until` or `--only` selects, in order."""
    if until and only:
        raise InputError("--until and --only exclude each other")
    if only:
        return named(dag, only)
    return up_to(dag, until) if until else dag


def upstream(store: Store, dag: list[Node], wanted: list[Node], recipe: str) -> dict[str, Ref]:
    """The artifacts that `wanted` reads and does not build. Raises InputError where the store lacks one."""
    building = [node.name for node in wanted]
    needed = {node.name for last in wanted for node in up_to(dag, last.name)}
    steps = plan(store, [node for node in dag if node.name in needed])
    missing = next((step.node for step in steps if step.ref is None and step.node not in building), None)
    if missing:
        raise InputError(
            f"--only: {' and '.join(building)} needs {missing}, which is not in {store.root}: "
            f"`cocondenser run {recipe} --until {missing}` (with the same --set) builds it"
        )
    return {step.node: step.ref for step in steps if step.ref is not None}
