"""Cache keys: what an artifact is built from, as a hash."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


def canonical(value: Any) -> bytes:
    """Returns JSON with sorted names and no spaces: equal values give equal bytes. Raises for NaN or non-JSON types."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def code_hash(code: Mapping[str, str]) -> str:
    """Returns one hash of a stage's code (file -> hash)."""
    return hashlib.sha256(canonical(dict(code))).hexdigest()


@dataclass(frozen=True)
class Equivalent:
    """The parts of older keys whose artifacts have the same bytes as today's."""

    code: frozenset[str] = frozenset()
    """`code_hash` of each older version."""
    stages: tuple[str, ...] = ()
    """Older names of the stage."""
    config: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda config: config
    """Turns an older configuration into today's; None if today has no equal."""
    inputs: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda inputs: inputs
    """Gives inputs today's names."""


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
    """Which older artifacts are accepted for this key. Not part of the key."""

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
    """Returns the key of what `stage` builds from the other arguments. The order of names in a mapping is ignored.

    Leave a missing optional input out of `inputs`. `libraries` comes from `versions.library_versions([...])`.
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
    # Read back, so that comparisons with a record from disk see the same plain values.
    return Key(**json.loads(text), hex=hashlib.sha256(text).hexdigest(), equivalent=equivalent)
