"""The content-addressed store: looks artifacts up, and builds each once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from artifacts.keys import Key
from artifacts.locks import Holder
from artifacts.records import Record, Ref


@dataclass(frozen=True)
class Built:
    ref: Ref
    hit: bool
    """False: it was made just now."""
    kept: bool
    """True: a hit on the artifact of older code, accepted by `keep`."""


class Store:
    """A folder of artifacts. Raises `StoreError` if it is of a newer format."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def source_digests(self, sources: Mapping[str, Path]) -> dict[str, str]:
        """`sources.digests` with this store's side cache."""
        raise NotImplementedError

    def lookup(self, key: Key, deep: bool = False, set_aside: bool = True) -> Ref | None:
        """The artifact of `key`, if all of it is there (stat only; `deep` hashes every file).

        A broken one is moved to broken/, unless `set_aside` is False (as `plan` wants it).
        """
        raise NotImplementedError

    def build(
        self,
        key: Key,
        make: Callable[[Path, Path], Mapping[str, Any]],
        *,
        node: str,
        identity: Literal["content", "key"] = "content",
        recipe: str | None = None,
        keep: bool = False,
        refresh_since: datetime | None = None,
        deep: bool = False,
        on_wait: Callable[[Holder], None] | None = None,
    ) -> Built:
        """The artifact of `key`; made by `make(out, checkpoints) -> metrics` if it is not there.

        `keep`: accept the newest artifact that differs from `key` in code alone. `refresh_since` (with time zone): what
        was created before does not count. `on_wait` is called when another process is at it, with its holder.
        """
        raise NotImplementedError

    def records(self, stage: str | None = None) -> list[Record]:
        """All records, newest first."""
        raise NotImplementedError

    def show(self, which: str) -> Record:
        """Newest record of a stage or node, or by the first characters of a digest or key; `StoreError` if none."""
        raise NotImplementedError

    def ref(self, record: Record) -> Ref:
        raise NotImplementedError
