"""What an artifact is made from, as a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def canonical(value: Any) -> bytes:
    """JSON with sorted names and no spaces: equal values give equal bytes. Raises on NaN and on what JSON lacks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def code_hash(code: Mapping[str, str]) -> str:
    """One hash of a stage's code (file -> hash)."""
    return hashlib.sha256(canonical(dict(code))).hexdigest()


@dataclass(frozen=True)
class Equivalent:
    """What older versions of a stage put into a key for what builds the same bytes today."""

    code: frozenset[str] = frozenset()
    """`code_hash` of each older version."""
    fields: Mapping[str, str | None] = field(default_factory=dict)
    """Dotted name of a configuration field then -> its name now; None: the field is gone."""


@dataclass(frozen=True)
class Key:
    """The components of an artifact's key, as plain JSON values, and their SHA-256 in `hex`."""

    stage: str
    code: dict[str, str]
    """File of the stage's code -> hash (`fingerprint.code_version`)."""
    config: dict[str, Any]
    """The stage's configuration without paths."""
    sources: dict[str, str]
    """Name -> content digest (`sources.digests`)."""
    inputs: dict[str, str]
    """Parameter name -> `Ref.identity`."""
    libraries: dict[str, str]
    """Distribution -> version, for the few whose version changes the stage's bytes."""
    hex: str
    equivalent: Equivalent = Equivalent()
    """No part of the key: which older artifacts count as this key's."""

    def components(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COMPONENTS}


COMPONENTS = ("stage", "code", "config", "sources", "inputs", "libraries")


def make_key(
    stage: str,
    code: Mapping[str, str],
    config: Mapping[str, Any],
    sources: Mapping[str, str],
    inputs: Mapping[str, str],
    libraries: Mapping[str, str],
    equivalent: Equivalent = Equivalent(),
) -> Key:
    """The key of what `stage` makes of the rest. The order of a mapping's names does not matter.

    An optional input that is not given is left out of `inputs`. `libraries` comes from `versions.of([...])`.
    """
    components = {
        "stage": stage,
        "code": code,
        "config": config,
        "sources": sources,
        "inputs": inputs,
        "libraries": libraries,
    }
    text = canonical({name: dict(value) if isinstance(value, Mapping) else value for name, value in components.items()})
    # Read back, so that what is compared later with a record from disk is made of the same plain values.
    return Key(**json.loads(text), hex=hashlib.sha256(text).hexdigest(), equivalent=equivalent)


def renamed(values: Mapping[str, Any], fields: Mapping[str, str | None]) -> dict[str, Any]:
    """The values under today's names: `fields` maps dotted names of before to names of today (None: gone)."""
    moved = {name: _at(values, name.split(".")) for name in fields}
    result = _without(values, [name.split(".") for name in fields])
    for name, value in moved.items():
        if value is not ABSENT and (now := fields[name]) is not None:
            *sections, last = now.split(".")
            place = result
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
    return result


ABSENT: Any = object()


def _at(values: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return ABSENT
        values = values[key]
    return values


def _without(values: Mapping[str, Any], gone: list[list[str]]) -> dict[str, Any]:
    result = {name: value for name, value in values.items() if [name] not in gone}
    for name, value in result.items():
        below = [keys[1:] for keys in gone if keys[0] == name]
        if below and isinstance(value, Mapping):
            result[name] = _without(value, below)
    return result
