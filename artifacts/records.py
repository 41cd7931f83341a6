"""What the store knows of an artifact: a small reference for callers, a full record on disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ref:
    """A reference to a built artifact: small, and safe to pickle."""

    stage: str
    key: str
    digest: str
    """SHA-256 of the object's manifest, and the name of its folder."""
    identity: str
    """What enters the keys of whatever is built from this: the digest, or the key where bytes cannot be equal."""
    path: Path
    """The artifact's folder; read only."""
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A key's file: the lineage of one artifact."""

    key: str
    stage: str
    node: str
    code: dict[str, str]
    config: dict[str, Any]
    sources: dict[str, str]
    inputs: dict[str, str]
    libraries: dict[str, str]
    digest: str
    identity: str
    metrics: dict[str, Any]
    bytes: int
    """Size of the artifact's files."""
    seconds: float
    """Wall clock of the build that made it (of its last part, if it was interrupted)."""
    host: str
    versions: dict[str, str]
    created: str
    """ISO 8601, UTC."""
    kept_from: str | None
    """Key of the older code whose artifact was accepted for this key."""
    recipe: str | None
