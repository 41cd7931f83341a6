"""JSON that contains its own digest, so that a changed figure is noticed."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FIELD = "sha256"
"""Field with the SHA-256 of the JSON of all other fields, sorted by name."""


def dump(fields: Mapping[str, Any]) -> bytes:
    plain = json.loads(json.dumps(dict(fields)))  # as it will be read
    return json.dumps({**plain, FIELD: _digest(plain)}, indent=1).encode() + b"\n"


def verified(data: bytes) -> bytes:
    """Returns the JSON without its digest. Raises ValueError if the digest does not match the other fields, or if
    they are nested too deeply.

    Data without a digest (from older versions) and data that is no JSON object are returned unchanged; the parser
    reports the fault.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(fields, dict) or FIELD not in fields:
        return data
    digest = fields.pop(FIELD)
    try:
        if digest != _digest(fields):
            raise ValueError("was changed")
        return json.dumps(fields).encode()
    except RecursionError:  # writing takes more of the stack than reading
        raise ValueError("is nested too deeply") from None


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
