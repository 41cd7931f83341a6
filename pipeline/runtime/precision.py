"""The precision of products in all forward passes: training, encoding and scoring."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16"]

AMPERE = (8, 0)
"""Compute capability of the first GPUs that multiply bfloat16."""

_precision: Precision | None = None


def use_precision(precision: Precision | None) -> None:
    """Sets the precision of this process. None, as at its start: float32 on a CPU, low on a GPU."""
    global _precision
    _precision = precision


def is_low(device: str) -> bool:
    """Whether products have a type of two bytes. MPS always computes in float32."""
    return _precision == "bfloat16" if device == "cpu" else device == "cuda" and _precision != "float32"


def low_precision(device: str) -> "torch.dtype | None":
    """Returns the type of products: bfloat16, float16 on GPUs before Ampere, or None: float32."""
    import torch

    if not is_low(device):
        return None
    return torch.bfloat16 if device == "cpu" or torch.cuda.get_device_capability() >= AMPERE else torch.float16


def precision_name(device: str) -> str:
    """Returns the name of the type of products: float32, bfloat16 or float16."""
    return str(low_precision(device) or "float32").removeprefix("torch.")


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
