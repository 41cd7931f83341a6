"""What the ranks of one training say to each other. With a single process every function is a plain identity."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Joins the ranks that torchrun announced (gloo on CPU, NCCL on CUDA) and leaves them."""
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
    """Waits until every rank has come here."""
    if world() > 1:
        dist.barrier()


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def add(x: Tensor) -> Tensor:
    """Sums `x` over the ranks, in place. Every rank ends with the same bytes."""
    if world() > 1:
        dist.all_reduce(x)
    return x
