"""A node of a flow: what one task builds, and what it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.runtime.work import Machine
from tasks.tracking import Logs


@dataclass(frozen=True)
class Node:
    """One task run on the page, one artifact in the store."""

    name: str
    stage: str
    """Its entry in tasks/stages.py."""
    config: Config
    inputs: Mapping[str, "Node | None"] = field(default_factory=dict)
    """The nodes whose artifacts the stage's function reads, by parameter; None if the recipe leaves one out."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """What the function reads besides its own configuration, by parameter: sections that several stages read; for the
    report, JSON values of the whole recipe. It enters the key."""


@dataclass(frozen=True)
class Order:
    """What a task does with a node."""

    node: Node
    machine: Machine
    store: Path
    recipe: str
    """The recipe's name, for the record."""
    keep: bool = False
    """Whether to accept the artifact of older code."""
    refresh_since: datetime | None = None
    """Artifacts older than this are built again."""
    logs: Logs | None = None
    """Where trainings are tracked; None: nowhere."""
    width: int = 18
    """Width of the names' column in the terminal."""
