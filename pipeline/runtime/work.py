"""What a stage gets besides its configuration and its inputs: machine, folders and progress."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator

from pipeline.config import Config, CountOrAuto
from pipeline.runtime.precision import Precision
from pipeline.runtime.spans import Span

Metrics = dict[str, float | int | str | None]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]


class Machine(Config):
    """How to run, not what to compute: no field enters an artifact's key."""

    device: DeviceName
    """`auto`: CUDA if there is a device, else MPS (the GPU of a Mac) on Apple silicon, else the CPU."""
    ranks: CountOrAuto
    """Processes of a training. `auto`: on CUDA one for each GPU, but no more than an update can feed
    (pipeline/runtime/gpu_ranks.py); on MPS one; on CPU one single-threaded process per core, at most 8."""
    torchrun: list[str]
    """torchrun's flags if a training runs on several nodes, such as --nnodes=2 and --rdzv-endpoint=HOST:PORT.
    `ranks` then counts those of each node, `cocondenser train-node` runs on the other nodes, and all nodes share
    one store."""
    threads: CountOrAuto
    """Threads of each training process. `auto`: 1 on CPU (two OpenMP threads are very slow on a shared core); next to a
    GPU its share of the cores."""
    workers: CountOrAuto
    """Processes that encode, search, score and mine, and threads of Lucene. `auto`: one for each core (at most 8)."""
    token_budget: CountOrAuto
    """Tokens in one forward pass. `auto`: 2,000 on a CPU, which fit its cache; 8,192 on MPS; on CUDA 65,536, or fewer
    if the free memory of a GPU is smaller (pipeline/training/memory.py)."""
    gradient_cache_chunk: int | None = Field(ge=1)
    """Mean number of spans, questions or passages in a chunk, the unit of the gradient cache. A batch has at least one
    chunk for each rank, and its chunks have about equally many tokens. null: chunks by `token_budget`."""
    gradient_cache: Literal["auto", "always", "never"]
    """Gradient cache of coCondenser and fine-tuning: `auto` uses it if an update's graphs need too much memory. On CUDA
    it decides once for a training, on a CPU and on MPS for each update."""
    tf32: bool
    """TensorFloat-32 for the remaining float32 products on CUDA: faster, with 10 bits of mantissa."""
    precision: Literal["auto", Precision]
    """Type of the products and states of all forward passes. `auto`: on a CPU bfloat16 if this processor multiplies it
    at least 1.3 times as fast as float32, which is measured once (pipeline/runtime/bfloat16.py); on CUDA bfloat16
    (float16 before Ampere); on MPS float32. Weights, sums of gradients, norms, losses and vectors are float32."""
    ray: str | None
    """Where the shards of encoding, mining and search are built. None: in processes of this machine. `local`: on a Ray
    cluster of this machine, which runs during the stage. Else a cluster's address (`auto` or HOST:6379 on one of its
    machines, ray://HOST:10001 on any other); all machines see the store under the same path."""
    checkpoint_minutes: float = Field(ge=0)
    """Minutes between two training checkpoints; the last two are kept."""

    @property
    def budget(self) -> int:
        """The number of `token_budget`. `auto` becomes one in the child process (pipeline/training/memory.py)."""
        assert self.token_budget != "auto", "the child process has not resolved token_budget"
        return self.token_budget

    @field_validator("ray")
    @classmethod
    def _address(cls, ray: str | None) -> str | None:
        if ray is not None and not re.fullmatch(r"local|auto|(ray://)?[^\s:/]+:\d+", ray):
            raise ValueError("local, auto, HOST:PORT or ray://HOST:PORT")
        return ray


class Progress(Protocol):
    """Called as work proceeds. Cheap to call often: the receiver limits its own rate."""

    def __call__(self, done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        """`done` of `total` `unit`s (None: unknown) are finished; `numbers` are live figures such as the loss."""


def counter(progress: Progress, total: int, unit: str) -> Callable[[int], None]:
    """Returns what is called with each further number of finished `unit`s."""
    finished = 0

    def done(number: int) -> None:
        nonlocal finished
        finished = min(finished + number, total)
        progress(finished, total, unit)

    return done


@dataclass(frozen=True)
class Job:
    """The shards of a stage, which any process that sees `folder` can build."""

    function: str
    """Called by `launch` with `arguments`, `workers` (processes on a CPU) and `numbers` (the shards to build; None:
    all); it builds those that are missing."""
    arguments: Mapping[str, Any]
    folder: Path
    """Folder of the finished shards `name(0)`, `name(1)` ..."""
    spans: Sequence[Span]
    unit: str
    """Name of a row, for progress."""


@dataclass(frozen=True)
class Work:
    """Where and how a stage works."""

    out: Path
    """An empty folder. Its content is the artifact when the stage returns."""
    checkpoints: Path
    """A folder that survives a kill, for resuming; emptied once the artifact is built."""
    machine: Machine
    progress: Progress
    earlier: Sequence[Path] = ()
    """Artifacts of this stage by the same code, newest first: their content may be reused, which changes no byte."""
    elsewhere: Callable[[Job, Machine], None] | None = None
    """Builds the missing shards of a job. None: processes of `machine` do."""
    kept: Path | None = None
    """A folder of the stage that all runs of a store share and nothing empties, for what costs money. It may not exist
    yet. None: there is no store."""
    gpu_turn: Callable[[], AbstractContextManager[None]] = nullcontext
    """Waits until no other run uses the GPUs, and holds them. For stages that compute on them only for a part of their
    time; all others hold them from beginning to end."""


def silent(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
    """A `Progress` that reports nothing."""
