"""What the store knows of an artifact: a small reference for callers, a full record on disk."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from artifacts import signed

HEX = re.compile("[0-9a-f]{64}")


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
    """Wall clock of the work that made it, without what it waited for; of one that was interrupted, of all parts as far
    as they were of use: up to their last checkpoint."""
    host: str
    versions: dict[str, str]
    created: str
    """ISO 8601, UTC."""
    kept_from: str | None
    """Key of the older code whose artifact was accepted for this key."""
    recipe: str | None
    gpus: int | None = None
    """GPUs that the build held; None: not known, as in records of older versions."""
    checked: dict[str, str] | None = None
    """Parameter name -> digest of the input, whose files were hashed before and after the build read them; None: they
    were not, as in older versions."""


MAPPINGS = ("code", "config", "sources", "inputs", "libraries", "metrics", "versions")
"""Fields that hold names and values."""


def read(path: Path) -> Record | None:
    """The record in a key's file; None if there is none that can be read, or it was changed."""
    try:
        record = Record(**signed.load(path.read_bytes()))
        if not all(isinstance(getattr(record, name), dict) for name in MAPPINGS):
            return None
        # The two become names of files: nothing but a digest may.
        return record if HEX.fullmatch(record.key) and HEX.fullmatch(record.digest) else None
    except (FileNotFoundError, ValueError, TypeError):
        return None


def dump(record: Record) -> bytes:
    return signed.dump(asdict(record))


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float | int | str | None]:
    """Metrics as flat JSON: NumPy scalars become Python's, what is not finite None, so that no finished build fails."""
    return {name: _plain(value) for name, value in metrics.items()}


def _plain(value: Any) -> float | int | str | None:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)
