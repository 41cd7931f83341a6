"""Why a stage would run."""

from artifacts.keys import Key
from artifacts.records import Record
from artifacts.store import Store


def explain(store: Store, key: Key, node: str) -> list[str]:
    """A line for each reason why `key` would be built; empty if it is in the store. Changes nothing on disk."""
    raise NotImplementedError


def nearest(store: Store, key: Key, node: str) -> Record | None:
    """The record of the same stage (and node, if there is one) that differs least from `key`; of equals the newest."""
    raise NotImplementedError
