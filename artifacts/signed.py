"""JSON with its own digest inside, so that a changed figure is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FIELD = "sha256"
"""Of the JSON of all other fields, sorted by name."""


def dump(fields: Mapping[str, Any]) -> bytes:
    plain = json.loads(json.dumps(dict(fields)))  # as it will be read
    return json.dumps({**plain, FIELD: _digest(plain)}, indent=1).encode() + b"\n"


def load(data: bytes) -> dict[str, Any]:
    """The fields without the digest. Raises ValueError where it is not theirs; older versions wrote none."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    digest = fields.pop(FIELD, None)
    if digest is not None and digest != _digest(fields):
        raise ValueError("it was changed")
    return fields


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
