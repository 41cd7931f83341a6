"""What the store knows about an artifact: a small reference for callers, a full record on disk."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from artifacts import dates, schema
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
    """Enters the keys of what is built from this artifact: its digest, or its key if bytes vary from build to build."""
    path: Path
    """The artifact's folder; never write to it."""
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Record:
    """The content of a key's file: the lineage of one artifact. `parse_record` checks these types."""

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
    """Wall clock of the build's work without waiting; an interrupted attempt counts up to its last checkpoint."""
    host: str
    versions: dict[str, str]
    created: Created
    """ISO 8601, UTC."""
    kept_from: Hex | None
    """Key of older code whose artifact was accepted for this key."""
    recipe: Name | None
    gpus: Count | None = None
    """GPUs that the build held; None: unknown, as in older records."""
    precision: Name | None = None
    """Type of its products, such as bfloat16; None: it has no model, or unknown, as in older records."""
    input_keys: dict[str, Hex] | None = None
    """The key by which each input was read, of all keys with its bytes; None: unknown, as in older records."""
    checked: dict[str, Hex] | None = None
    """Parameter name -> digest of the input. Its files were hashed before the build read them, and had the same size,
    inode, mtime and ctime afterwards (else they were hashed again). None: not checked, as in older records."""


_RECORD = TypeAdapter(Record)


def parse_record(data: bytes) -> Record:
    """Returns the record in the bytes of a key's file. Raises ValueError (one line) if it is invalid or was changed."""
    try:
        record: Record = _RECORD.validate_json(schema.without_digest(data), strict=True)
    except ValidationError as error:
        raise ValueError(first_line(error)) from None
    return record


def read_record(path: Path) -> Record | None:
    """Returns the record in a key's file; None if the file is missing, invalid or changed.

    Raises `StoreError` if the file cannot be opened.
    """
    try:
        return parse_record(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: {str(error.strerror).lower()}") from None


def agrees(record: Record) -> bool:
    """Whether the record's key matches its components, and its identity is its own digest or key.

    An older record has no digest of its own, so no more can be checked.
    """
    components = (record.stage, record.code, record.config, record.sources, record.inputs, record.libraries)
    own = record.identity in (record.digest, record.key) or record.kept_from is not None
    try:
        return own and make_key(*components).hex == record.key
    except (ValueError, TypeError):  # NaN, which no key contains
        return False


def dump_record(record: Record) -> bytes:
    """Returns the bytes of a key's file. Raises ValueError that names the field for a non-JSON value, such as NaN."""
    fields = asdict(record)
    for name, value in fields.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the record of {record.node} cannot be written: {name}: {error}") from None
    return schema.signed_json(fields)


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float | int | str | None]:
    """Returns flat JSON metrics: NumPy scalars become Python's, non-finite ones None, so no finished build fails."""
    return {name: _plain(value) for name, value in metrics.items()}


def _plain(value: Any) -> float | int | str | None:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)


def suspects_of(records: Sequence[Record], digest: str, whole: datetime | None) -> list[Record]:
    """Returns records that may have been built from damaged bytes of the object `digest`, oldest first.

    `whole`: when it was last found intact; None: never. Builds before that read good bytes, and so did builds that
    checked their inputs before and after reading (`Record.checked`). Everything built from a suspect is a suspect too.
    """
    everything = [record for record in records if record.digest != digest]
    # The digest too: the record may be removed before the object.
    of_object = {digest, *(record.identity for record in records if record.digest == digest)}
    suspected = {
        record.key: record
        for record in everything
        if record.checked is None
        and of_object & {*record.inputs.values()}
        and (whole is None or dates.moment(record.created) >= whole)
    }
    while True:
        # If a record that is no suspect has the same identity, its bytes are good.
        good = {record.identity for record in everything if record.key not in suspected}
        bad = {record.identity for record in suspected.values()} - good
        more = [r for r in everything if r.key not in suspected and bad & {*r.inputs.values()}]
        if not more:
            return sorted(suspected.values(), key=lambda record: dates.moment(record.created))
        suspected |= {record.key: record for record in more}
