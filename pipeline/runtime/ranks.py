"""Communication between the ranks of one training. With a single process every function does nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """Joins the process group that torchrun set up (gloo on CPU, NCCL on CUDA), and leaves it at the end."""
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def meet() -> None:
    """Waits until every rank has reached this call."""
    if world() > 1:
        dist.barrier()


def rank() -> int:
    """Returns the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Returns the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_ranks(x: Tensor) -> Tensor:
    """Sums `x` over the ranks, in place. Every rank gets the same bytes."""
    if world() > 1:
        dist.all_reduce(x)
    return x
