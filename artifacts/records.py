"""What the store knows of an artifact: a small reference for callers, a full record on disk."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from artifacts import signed
from artifacts.errors import StoreError
from artifacts.keys import make_key
from artifacts.schema import Count, Created, Hex, Metrics, Name, Seconds, first_line

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
    """A key's file: the lineage of one artifact. `parse` holds what it reads to these types."""

    key: Hex
    stage: Name
    node: Name
    code: dict[str, str]
    config: dict[str, Any]
    sources: dict[str, str]
    inputs: dict[str, str]
    libraries: dict[str, str]
    digest: Hex
    identity: Hex
    metrics: Metrics
    bytes: Count
    """Size of the artifact's files."""
    seconds: Seconds
    """Wall clock of the work that made it, without what it waited for; of one that was interrupted, of all parts as far
    as they were of use: up to their last checkpoint."""
    host: str
    versions: dict[str, str]
    created: Created
    """ISO 8601, UTC."""
    kept_from: Hex | None
    """Key of the older code whose artifact was accepted for this key."""
    recipe: Name | None
    gpus: Count | None = None
    """GPUs that the build held; None: not known, as in records of older versions."""
    input_keys: dict[str, Hex] | None = None
    """The key that each input was read by, of those that gave its bytes; None: not known, as in older records."""
    checked: dict[str, Hex] | None = None
    """Parameter name -> digest of the input, whose files were hashed before the build read them, and had the same size,
    inode, mtime and ctime afterwards (else they were hashed again); None: they were not, as in older versions."""


_RECORD = TypeAdapter(Record)


def parse(data: bytes) -> Record:
    """The record in the bytes of a key's file. Raises ValueError, in one line, if it is none or was changed."""
    try:
        record: Record = _RECORD.validate_json(signed.verified(data), strict=True)
    except ValidationError as error:
        raise ValueError(first_line(error)) from None
    return record


def read(path: Path) -> Record | None:
    """The record in a key's file; None if there is none, or what is there is none or was changed.

    Raises `StoreError` where the file cannot be opened.
    """
    try:
        return parse(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: {str(error.strerror).lower()}") from None


def agrees(record: Record) -> bool:
    """Whether its key is that of what it says it was made from, and its identity its own: the digest or the key.

    More cannot be checked of a record of an older version, which has no digest of its own.
    """
    components = (record.stage, record.code, record.config, record.sources, record.inputs, record.libraries)
    own = record.identity in (record.digest, record.key) or record.kept_from is not None
    try:
        return own and make_key(*components).hex == record.key
    except (ValueError, TypeError):  # NaN, which no key is made of
        return False


def dump(record: Record) -> bytes:
    """A key's file. Raises ValueError, naming the field, for what JSON lacks: NaN, for one."""
    fields = asdict(record)
    for name, value in fields.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the record of {record.node} cannot be written: {name}: {error}") from None
    return signed.dump(fields)


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float | int | str | None]:
    """Metrics as flat JSON: NumPy scalars become Python's, what is not finite None, so that no finished build fails."""
    return {name: _plain(value) for name, value in metrics.items()}


def _plain(value: Any) -> float | int | str | None:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)
