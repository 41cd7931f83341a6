"""Locks on files, freed by the kernel when their holder dies."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    host: str
    pid: int
    since: str
    """ISO 8601, UTC."""
    stage: str
    node: str
    inputs: dict[str, str]
