"""Communication between the ranks of one training. With a single process every function does nothing.

Numbers that steer the work, such as the rows of a batch, go through the processors (gloo): a GPU never waits for them.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:  # a process that builds shards may do without torch
    from torch import Tensor

WAIT = timedelta(days=1)
"""Longest wait for the other ranks. They may work alone for hours, as on the batches of an epoch (Adaptive Batch
Scheduling) or on the last shard. Their parent ends all ranks of a machine when one of them fails."""

Item = TypeVar("Item")
Wait = Callable[[], object]
_store: Any = None
"""The store through which the ranks of the process group have found each other."""


@contextmanager
def process_group(device: str, meeting_file: str | None = None) -> Iterator[None]:
    """Joins the group of all ranks' processes (NCCL between GPUs, gloo between processors), and leaves it.

    `meeting_file`: path of a new file through which they find each other; None: by torchrun's variables.
    After an exception it does not leave: that would wait for the other ranks, which wait for this one. The process has
    to exit, so that its parent ends the others.
    """
    import torch
    import torch.distributed as dist

    global _store
    gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    backend = "gloo" if gpu is None else "cpu:gloo,cuda:nccl"
    if meeting_file is None:
        _store, rank, world = next(dist.rendezvous("env://", timeout=WAIT))
    else:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        _store = dist.FileStore(meeting_file, world)
        _store.set_timeout(WAIT)
    dist.init_process_group(backend, store=_store, rank=rank, world_size=world, timeout=WAIT, device_id=gpu)
    meet()  # a rank that fails at once would break connections that the others still set up
    yield
    dist.destroy_process_group()
    _store = None


def meet() -> None:
    """Waits until every rank has reached this call."""
    import torch

    sum_over_ranks(torch.zeros(()))


def rank() -> int:
    """Returns the number of this process, from 0."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Returns the number of processes."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_initialized() else 1


def local_world() -> int:
    """Returns the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def sum_over_ranks(x: "Tensor") -> "Tensor":
    """Sums `x` over the ranks, in place. Every rank gets the same bytes."""
    start_sum(x)()
    return x


def start_sum(x: "Tensor") -> Wait:
    """Starts to sum `x` over the ranks, in place; all of them start their sums in the same order.

    Returns a function after which `x` is the sum: the process waits, or a GPU's later work does.
    """
    import torch.distributed as dist

    work = dist.all_reduce(x, async_op=True) if world() > 1 else None
    return (lambda: None) if work is None else work.wait


def from_first_rank(numbers: np.ndarray | None, size: int) -> np.ndarray:
    """Returns the first rank's numbers on every rank, int64 [size]. `numbers`: None on the other ranks."""
    import torch
    import torch.distributed as dist

    shared = torch.zeros(size, dtype=torch.int64)
    if numbers is not None:
        shared += torch.from_numpy(np.asarray(numbers, np.int64))
    if world() > 1:
        dist.broadcast(shared, 0)
    return shared.numpy()


def counter(name: str) -> Callable[[int], int]:
    """Returns add(n), which adds to a counter that all ranks share, from 0, and returns its new value.

    `name`: of this counter, the same on all ranks and used once.
    """
    if (store := _store) is not None:
        return lambda n: int(store.add(name, n))
    value = 0

    def add(n: int) -> int:
        nonlocal value
        value += n
        return value

    return add


def claimed(name: str, items: Sequence[Item]) -> Iterator[Item]:
    """Yields, in their order, the items that this rank works on: a free rank takes the next one. `name`: of a counter.

    So the ranks end at about the same time, however fast each of them is.
    """
    claim = counter(name)
    while (place := claim(1) - 1) < len(items):
        yield items[place]
