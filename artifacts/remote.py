"""Copies artifacts to and from any address that fsspec opens (s3://, gs://, file:// ...)."""

from artifacts.records import Ref
from artifacts.store import Store


def push(store: Store, key: str, url: str) -> None:
    """Copies the artifact of `key` (hex) and its record below `url`, in the store's own layout."""
    raise NotImplementedError


def pull(store: Store, key: str, url: str) -> Ref | None:
    """Fetches the artifact of `key` (hex) from `url`, hashes it and files it; None if it is not there."""
    raise NotImplementedError
