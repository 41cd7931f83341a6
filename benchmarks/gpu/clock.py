"""Times the updates of one way of training, and computes its loss and gradient."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.runtime.work import silent
from pipeline.training import loop

WARM_UP = 1
"""Updates of a turn that do not count."""
OPTIMISER = loop.Optimiser(
    learning_rate=1e-6,
    betas=(0.9, 0.999),
    epsilon=1e-8,
    weight_decay=0.01,
    clip_norm=1.0,
    warmup_ratio=0.1,
    warmup_steps=None,
)
WORK = ("tokens", "operations")


class Step(NamedTuple):
    """This project's update, as `loop.train` runs it."""

    prepare: Callable[[int], Any]
    step: Callable[[int, Any], Mapping[str, Any]]
    """Forward and backward of an update; returns loss parts (tensors), `tokens` and `operations`."""

    def whole(self, i: int) -> Mapping[str, Any]:
        return self.step(i, self.prepare(i))


class OutOfTime(BaseException):
    """Not an `Exception`: what catches the errors of a baseline must not catch it."""


class Timing(NamedTuple):
    """One turn: its mean update."""

    seconds: float
    host_seconds: float | None
    """Until the host has launched the first update; the device may still compute it. In an update of more than about
    a thousand kernels the host waits for room in the queue, so this is an upper bound."""
    peak: int | None
    """Most bytes on the device during the updates, without those of the other ways."""
    work: Mapping[str, float]
    """Of an update: `tokens`, `operations`."""


class Computed(NamedTuple):
    """What a way computes without dropout."""

    loss: float | None
    """None: it computes vectors only."""
    gradient: Tensor
    """Of all trained parameters, flat; or the vectors of an encoder."""


class Way(NamedTuple):
    turn: Callable[[], Timing]
    compute: Callable[[], Computed]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def loop_turn(module: nn.Module, step: Step, updates: int, device: str) -> Timing:
    """Times `updates` (at least 2) updates of the training loop itself; `step` as in `loop.train`."""
    others = allocated(device) - held(module)
    marks: list[float] = []
    work: Counter[str] = Counter()

    def before(i: int) -> None:
        if i == WARM_UP:
            begin(device)
        marks.append(time.perf_counter())

    def counted(i: int, batch: Any) -> Any:
        parts = step.step(i, batch)
        if i >= WARM_UP:
            work.update({name: float(parts[name]) for name in WORK})
        return parts

    with TemporaryDirectory() as folder:
        loop.train(
            module,
            counted,
            WARM_UP + updates,
            OPTIMISER,
            1,
            Path(folder),
            60,
            silent,
            device,
            before=before,
            prepare=step.prepare,
        )
    wait(device)
    ended = time.perf_counter()
    peak = most(device, others)
    module.zero_grad(set_to_none=True)
    host = marks[WARM_UP + 1] - marks[WARM_UP]
    each = {name: value / updates for name, value in work.items()}
    return Timing((ended - marks[WARM_UP]) / updates, host, peak, each)


def plain_turn(
    module: nn.Module, step: Callable[[int], Any], adam: torch.optim.Optimizer, updates: int, device: str
) -> Timing:
    """Times `updates` updates as other code writes them: gradients, clipping, AdamW."""
    others = allocated(device) - held(module, adam)
    started = launched = 0.0
    for i in range(WARM_UP + updates):
        if i == WARM_UP:
            begin(device)
            started = time.perf_counter()
        adam.zero_grad()
        step(i)
        nn.utils.clip_grad_norm_(module.parameters(), OPTIMISER.clip_norm)
        adam.step()
        if i == WARM_UP:
            launched = time.perf_counter()
    wait(device)
    ended = time.perf_counter()
    peak = most(device, others)
    module.zero_grad(set_to_none=True)
    return Timing((ended - started) / updates, launched - started, peak, {})


def pinned(x: Tensor, device: str) -> Tensor:
    """Returns `x` in memory from which a GPU copies without a wait of the host."""
    return x.pin_memory() if device == "cuda" else x


def begin(device: str) -> None:
    wait(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def most(device: str, others: int) -> int | None:
    return torch.cuda.max_memory_allocated() - others if device == "cuda" else None


def held(module: nn.Module, adam: torch.optim.Optimizer | None = None) -> int:
    """Returns the bytes of the weights, their gradients and the optimiser's moments."""
    tensors: list[Tensor] = []
    for parameter in module.parameters():
        tensors += [parameter] if parameter.grad is None else [parameter, parameter.grad]
    for state in adam.state.values() if adam else ():
        tensors += [x for x in state.values() if isinstance(x, Tensor)]
    return sum(x.nbytes for x in tensors if x.is_cuda)


def computed(module: nn.Module, step: Callable[[int], Any]) -> Computed:
    """Runs step 0 without dropout; returns its loss and gradient, and leaves the module as it was."""
    module.eval()
    module.zero_grad(set_to_none=True)
    parts = step(0)
    losses = [parts] if isinstance(parts, Tensor) else [x for name, x in parts.items() if isinstance(x, Tensor)]
    trained = [p for p in module.parameters() if p.requires_grad]
    gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten().float() for p in trained])
    module.zero_grad(set_to_none=True)
    module.train()
    return Computed(sum(float(x) for x in losses), gradient)


def free(device: str) -> None:
    """Returns unused memory to the device."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
