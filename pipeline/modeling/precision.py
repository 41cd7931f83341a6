"""The precision of all forward passes: training, encoding and scoring."""

from contextlib import AbstractContextManager
from typing import Any


def autocast(device: str) -> AbstractContextManager[Any]:
    """Returns a context that computes in bfloat16 on CUDA. Enter it for each forward pass: it caches cast weights."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")
