"""What a stage is given beside its configuration and its inputs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator

from pipeline.config import Config
from pipeline.runtime.spans import Span

Metrics = dict[str, float | int | str | None]


class Machine(Config):
    """How to run, never what to compute: nothing here enters an artifact's key."""

    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes CUDA where there is a device."""
    ranks: int = Field(ge=0)
    """Processes of a training. 0: one for each GPU; on CPU one single-threaded process for each core, at most 8."""
    torchrun: list[str]
    """torchrun's flags where a training runs on several nodes, such as --nnodes=2 and --rdzv-endpoint=HOST:PORT.
    `ranks` are then those of each node, `cocondenser join` runs on the others, and all see one store."""
    threads: int = Field(ge=0)
    """Threads of each training process. 0: 1 on CPU (two OpenMP threads collapse on a shared core)."""
    workers: int = Field(ge=0)
    """Processes that encode, search, score and mine, threads of Lucene. 0: one for each core (at most 8)."""
    token_budget: int = Field(ge=1)
    """Tokens in one forward call. About 2,000 stay in a CPU's cache."""
    chunk_spans: int = Field(ge=0)
    """Spans, questions or passages in one chunk, the unit of the gradient cache. 0: chunks by `token_budget`."""
    cache: Literal["auto", "always", "never"]
    """Gradient cache of coCondenser and fine-tuning: `auto` where an update's graphs would take too much memory."""
    tf32: bool
    """TensorFloat-32 for what is left in float32 on CUDA: faster, with 10 bits of mantissa."""
    ray: str | None
    """Where encoding, mining and search go in parts. None: this machine's processes. `local`: a Ray cluster of this
    machine's own, while a stage is at it. Else a cluster's address (`auto` or HOST:6379 on one of its machines,
    ray://HOST:10001 on any other); all of them see the store under the same path."""
    checkpoint_minutes: float = Field(ge=0)
    """Minutes between two training checkpoints; the last two are kept."""

    @field_validator("ray")
    @classmethod
    def _address(cls, ray: str | None) -> str | None:
        if ray is not None and not re.fullmatch(r"local|auto|(ray://)?[^\s:/]+:\d+", ray):
            raise ValueError("local, auto, HOST:PORT or ray://HOST:PORT")
        return ray


class Progress(Protocol):
    """Called as work goes on. Cheap to call often: the receiver limits its own rate."""

    def __call__(self, done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        """`done` of `total` `unit`s (None: unknown) are finished; `numbers` are live figures such as the loss."""


@dataclass(frozen=True)
class Job:
    """The shards of a stage, for any process that sees `folder` to make."""

    function: str
    """As `launch` calls it: with `arguments`, `workers` (processes on a CPU) and `numbers` (the shards to make; None:
    all), of which it makes what is missing."""
    arguments: Mapping[str, Any]
    folder: Path
    """Where the finished ones are: `name(0)`, `name(1)` ..."""
    spans: Sequence[Span]
    unit: str
    """Of the rows."""


@dataclass(frozen=True)
class Work:
    """Where a stage works and how."""

    out: Path
    """An empty folder. What it holds when the stage returns is the artifact."""
    checkpoints: Path
    """A folder that survives a kill, for resuming; emptied once the artifact is built."""
    machine: Machine
    progress: Progress
    earlier: Sequence[Path] = ()
    """Artifacts of this stage's same code, newest first: what they hold may be taken over, and changes no byte."""
    elsewhere: Callable[[Job, Machine], None] | None = None
    """Makes what a job lacks. None: processes of `machine` do."""


def silent(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
    """A `Progress` that says nothing."""
