"""Frees disk space."""

from dataclasses import dataclass
from pathlib import Path

from artifacts.store import Store


@dataclass(frozen=True)
class Removed:
    path: Path
    bytes: int
    why: str


def gc(store: Store, runs: int, days: float, dry_run: bool = False) -> list[Removed]:
    """Removes what neither the newest `runs` run records name nor anyone used within `days`, nor is being built."""
    raise NotImplementedError
