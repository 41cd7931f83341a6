"""What an artifact is made from, as a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def canonical(value: Any) -> bytes:
    """JSON with sorted names and no spaces: equal values give equal bytes. Raises on NaN and on what JSON lacks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


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


def make_key(
    stage: str,
    code: Mapping[str, str],
    config: Mapping[str, Any],
    sources: Mapping[str, str],
    inputs: Mapping[str, str],
    libraries: Mapping[str, str],
) -> Key:
    """The key of what `stage` makes of the rest. The order of a mapping's names is of no account.

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
    return Key(**json.loads(text), hex=hashlib.sha256(text).hexdigest())
