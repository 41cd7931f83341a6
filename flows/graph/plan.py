"""Plans a run: what it would build or reuse, and why.

On disk only the cache of digests changes, and the time of last use of reused artifacts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from artifacts.errors import StoreError
from artifacts.explain import explain
from artifacts.records import Record, Ref
from artifacts.store import Store
from tasks.keys import key_of
from tasks.node import Node


@dataclass(frozen=True)
class PlannedRequests:
    """Requests to a language model."""

    requests: int
    """Without a stored answer."""
    stored: int
    """With one."""
    cost: float | None
    """Of those without one, in the currency of the recipe's price. None: it has no price."""
    at_most: bool
    """Whether the cost is that of the longest answers; else it is that of answers as long as the stored ones."""
    estimated: bool
    """Whether the collection is not built yet, so that its number of passages is a guess."""


@dataclass(frozen=True)
class Step:
    node: str
    action: Literal["reuse", "build", "unknown"]
    """`unknown`: it depends on the bytes of an earlier stage; if they are equal, it is reused."""
    why: list[str]
    seconds: float | None
    """The build time of the newest artifact of the same node, else of the same stage. None: never built in this store.

    An estimate from another recipe could say minutes for days.
    """
    bytes: int | None
    ref: Ref | None
    """The artifact that would be reused."""
    estimated: bool = False
    """Whether `seconds` come from the size of the texts and the speed of this machine (flows/graph/estimate.py)."""
    requests: PlannedRequests | None = None
    """None: the stage sends none, or their number is not known."""


def plan(store: Store, dag: Iterable[Node], recipe: str | None = None) -> list[Step]:
    """Returns a step for each node. The nodes must include all inputs, each before its readers.

    `recipe`: estimates of time and disk come from its builds alone, and reasons from them first.
    """
    steps: dict[str, Step] = {}
    for node in dag:
        steps[node.name] = _step(store, node, steps, recipe)
    return list(steps.values())


def _step(store: Store, node: Node, steps: dict[str, Step], recipe: str | None) -> Step:
    guess = last_build(store, node, recipe)
    seconds, size = (guess.seconds, guess.bytes) if guess else (None, None)
    inputs = {name: steps[source.name] for name, source in node.inputs.items() if source is not None}
    waiting = list(dict.fromkeys(step.node for step in inputs.values() if step.ref is None))
    if waiting:
        names = " and ".join(filter(None, (", ".join(waiting[:-1]), waiting[-1])))
        why = f"unknown until {names} {'is' if len(waiting) == 1 else 'are'} built"
        return Step(node.name, "unknown", [why], seconds, size, None)
    try:
        key = key_of(store, node.stage, node.config, {name: step.ref for name, step in inputs.items()}, node.shared)
    except StoreError as error:
        return Step(node.name, "build", [str(error)], seconds, size, None)
    ref = store.lookup(key)
    if ref is not None:
        matched = ["matched through the table of equivalent code"] if ref.key != key.hex else []
        return Step(node.name, "reuse", matched, 0.0, 0, ref)
    return Step(node.name, "build", explain(store, key, node.name, recipe), seconds, size, None)


def last_build(store: Store, node: Node, recipe: str | None = None) -> Record | None:
    """The newest record (of a recipe) of the node, else of its stage."""
    records = [record for record in store.records(node.stage) if recipe in (None, record.recipe)]
    return next((record for record in records if record.node == node.name), records[0] if records else None)
