"""A run's loop without Prefect: a function stands for the task."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifacts.records import Ref
from artifacts.store import Store
from flows.graph import run_nodes
from flows.graph.prepare import Run
from flows.recipes.recipe import resolve
from tasks.node import Node, Order

Build = Callable[[Order, Mapping[str, Ref | None]], Ref]


def run_of(store: Store, dag: list[Node], **more: Any) -> Run[None]:
    machine = resolve("tiny").machine
    orders = [Order(node, machine, store.root, "tiny") for node in dag]
    return Run("tiny", None, {}, {}, store, dag, orders, machine, **more)


def built(order: Order, inputs: Mapping[str, Ref | None]) -> Ref:
    return Ref(order.node.stage, "key", "digest", "digest", Path("nowhere"), {})


def without_prefect(monkeypatch: pytest.MonkeyPatch, build: Build = built) -> dict[str, Ref]:
    """`walk.run_graph` builds by `build` and shows nothing on a page. What it records appears in the answer."""
    recorded: dict[str, Ref] = {}

    def task(order: Order, inputs: Mapping[str, Ref | None], return_state: bool) -> SimpleNamespace:
        return SimpleNamespace(result=lambda: build(order, inputs))

    monkeypatch.setattr(run_nodes, "stage", SimpleNamespace(with_options=lambda **_: task))
    monkeypatch.setattr(run_nodes, "get_run_logger", lambda: logging.getLogger("run"))
    monkeypatch.setattr(run_nodes.page, "best_effort", lambda *_: None)
    monkeypatch.setattr(run_nodes, "record_run", lambda store, name, refs, *_: recorded.update(refs))
    monkeypatch.setattr(Store, "check", lambda *_: None)
    return recorded
