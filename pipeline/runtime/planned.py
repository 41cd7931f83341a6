"""A planned run, as the early checks of its stages see it.

A check is a function of a `Planned` node, called as soon as what it looks at is there: before days of training. It
raises InputError, or yields one for each of several problems; `Unfit` lets the checks of other nodes go on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
MODELS = ("start", "checkpoint", "embeddings")
"""Inputs that lead from a node to the model that its own or its vectors' begins with."""


@dataclass(frozen=True)
class Planned:
    """A node of the run."""

    name: str
    stage: str
    section: str
    """The recipe's section that `config` comes from."""
    config: Any
    shared: Mapping[str, Any]
    """Sections that several stages read, by parameter."""
    inputs: Mapping[str, "Planned | None"]
    """By parameter; None where the recipe leaves it out."""
    artifact: Path | None
    """None: not built yet."""
    metrics: Mapping[str, Any]
    """Of the artifact."""
    _known: dict[Any, Any] = field(default_factory=dict, compare=False)

    def input(self, name: str) -> "Planned":
        """An input that no recipe leaves out."""
        given = self.inputs[name]
        assert given is not None
        return given

    @property
    def path(self) -> Path:
        """Of an artifact that is there."""
        assert self.artifact is not None
        return self.artifact

    def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function(artifact, *arguments)`, called once for all checks that need it."""
        if (function, arguments) not in self._known:
            self._known[function, arguments] = function(self.path, *arguments)
        found: T = self._known[function, arguments]
        return found


def first_model(node: Planned) -> Path | None:
    """A model of the shape of the one that the node reads, which is not trained yet: a given checkpoint or the initial
    model, or the folder that it is read from. None where that is not there, and for an existing bi-encoder, whose shape
    is its own.
    """
    while (before := next((node.inputs[name] for name in MODELS if node.inputs.get(name)), None)) is not None:
        node = before
        given: Path | None = getattr(node.config, "checkpoint", None)
        if given is not None and "start" in node.inputs:
            return given
    if node.stage != "initial":
        return None
    if node.artifact is not None:
        return node.artifact
    folder: Path | None = node.config.checkpoint
    return folder if folder is not None and (folder / "config.json").is_file() else None
