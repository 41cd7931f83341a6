"""The precision that forward passes are computed in: those of training, encoding and scoring alike."""

from contextlib import AbstractContextManager
from typing import Any


def autocast(device: str) -> AbstractContextManager[Any]:
    """bfloat16 where it pays: on CUDA. Enter it again for each forward pass: it keeps casts of the weights."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")
