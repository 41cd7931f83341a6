"""Records of whole runs: which artifact each node had."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from artifacts.records import Ref
from artifacts.store import Store


@dataclass(frozen=True)
class Run:
    name: str
    created: str
    """ISO 8601, UTC."""
    nodes: dict[str, Ref]
    details: dict[str, Any]
    """Whatever the caller gave: the resolved recipe, for one."""


def record_run(
    store: Store, name: str, nodes: Mapping[str, Ref], details: Mapping[str, Any], created: datetime | None = None
) -> Path:
    """Writes runs/TIMESTAMP-NAME.json. The same `created` (default: now) and name again replace the record."""
    raise NotImplementedError


def runs(store: Store, name: str | None = None) -> list[Run]:
    """Runs (of one name), newest first."""
    raise NotImplementedError


def newest_run(store: Store, name: str | None = None) -> Run | None:
    raise NotImplementedError
