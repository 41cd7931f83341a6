"""The precision of all forward passes: training, encoding and scoring."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

AMPERE = (8, 0)
"""Compute capability of the first GPUs that multiply bfloat16."""


def low_precision(device: str) -> "torch.dtype | None":
    """Returns the type of products: bfloat16 on CUDA, float16 on GPUs before Ampere; None: float32, elsewhere."""
    import torch

    if device != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.get_device_capability() >= AMPERE else torch.float16


def autocast(device: str) -> AbstractContextManager[Any]:
    """Returns a context that computes in `low_precision`. Enter it for each forward pass."""
    import torch

    dtype = low_precision(device)
    if device == "mps":
        return nullcontext()
    return torch.autocast(device, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def autocast_type(device: str) -> "torch.dtype | None":
    """Returns the type of the active `autocast`, or None."""
    import torch

    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
