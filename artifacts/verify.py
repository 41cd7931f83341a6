"""Hashes what the store holds again."""

from artifacts.store import Store


def verify(store: Store, which: str | None = None) -> list[str]:
    """A line for each problem of one artifact (see `Store.show`) or of all; what is broken is moved to broken/."""
    raise NotImplementedError
