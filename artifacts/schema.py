"""What validates key records and run records on disk, whoever wrote them: types of fields, and a digest inside the
JSON, so that a changed figure is noticed."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any
from unicodedata import category

from pydantic import AfterValidator, Field, ValidationError

from artifacts.names import CONTROL, one_line

DIGEST_FIELD = "sha256"
"""Field with the SHA-256 of the JSON of all other fields, sorted by name."""
LONGEST_NAME = 200
LONGEST_RUN_NAME = 225
"""Characters: with a timestamp and an ending it fits into a file name of 255."""


def _no_control(text: str) -> str:
    if any(category(character) in CONTROL for character in text):
        raise ValueError("holds a control character")
    return text


def _timed(text: str) -> str:
    created = datetime.fromisoformat(text)
    if created.tzinfo is None:
        raise ValueError("has no time zone")
    try:
        created.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not a time of the years 1 to 9999 UTC") from None
    return text


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if isinstance(value, list | dict):
            raise ValueError(f"{name} is neither a number nor a text")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{name} is not a finite number")
        if isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(f"{name} is a number beyond 64 bits")
    return values


Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256."""
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_no_control)]
"""Name of a stage, node, recipe or machine."""
RunName = Annotated[str, Field(min_length=1, max_length=LONGEST_RUN_NAME), AfterValidator(_no_control)]
FileName = Annotated[str, Field(pattern="^[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=255)]
"""The name of one file or folder, without a path."""
Created = Annotated[str, Field(max_length=64), AfterValidator(_timed)]
"""ISO 8601 with a time zone; the time can be converted to UTC."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Seconds = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
Metrics = Annotated[dict[str, Any], AfterValidator(_flat)]
"""Finite numbers, texts, true, false and null, by name."""


def first_line(error: ValidationError) -> str:
    """Returns the first invalid field and its fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    what = str(first["msg"]).removeprefix("Value error, ").replace("Input", "it", 1)
    return one_line(f"{place}: {what}" if place else what)


def signed_json(fields: Mapping[str, Any]) -> bytes:
    """Returns JSON of the fields and their digest."""
    plain = json.loads(json.dumps(dict(fields)))  # as it will be read
    return json.dumps({**plain, DIGEST_FIELD: _digest(plain)}, indent=1).encode() + b"\n"


def without_digest(data: bytes) -> bytes:
    """Returns the JSON without its digest. Raises ValueError if the digest does not match the other fields, or if
    they are nested too deeply.

    Data without a digest (from older versions) and data that is no JSON object are returned unchanged; the parser
    reports the fault.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(fields, dict) or DIGEST_FIELD not in fields:
        return data
    digest = fields.pop(DIGEST_FIELD)
    try:
        if digest != _digest(fields):
            raise ValueError("was changed")
        return json.dumps(fields).encode()
    except RecursionError:  # writing takes more of the stack than reading
        raise ValueError("is nested too deeply") from None


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
