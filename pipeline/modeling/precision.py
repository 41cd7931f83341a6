"""The precision of forward passes (training, encoding, scoring), and the scale of a float16 training's losses."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

AMPERE = (8, 0)
"""Compute capability of the first GPUs that multiply bfloat16."""


def low_precision(device: str) -> "torch.dtype | None":
    """Returns the type of products: bfloat16 on CUDA, float16 on GPUs before Ampere; None: float32, on a CPU."""
    import torch

    if device != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.get_device_capability() >= AMPERE else torch.float16


def autocast(device: str) -> AbstractContextManager[Any]:
    """Returns a context that computes in `low_precision`. Enter it for each forward pass: it caches cast weights."""
    import torch

    dtype = low_precision(device)
    return torch.autocast(device, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


class LossScale:
    """Dynamic loss scaling: small gradients would be 0 in float16 (Micikevicius et al. 2018, section 3.2).

    A power of two, so that it changes no digit of a gradient. It is halved after an update that is not finite and
    doubled after GROWTH others. It lives on the device, so that the host need not wait.
    """

    FIRST = 2.0**12
    GROWTH = 2000

    def __init__(self, device: str, skipped: "list[float]") -> None:
        """`skipped`: of each earlier update of a resumed training, 1 if it was not finite, otherwise 0."""
        import torch

        self.value = torch.tensor(self.FIRST)
        self._finite = torch.zeros(())
        for bad in skipped:
            self.update(torch.tensor(bad))
        self.value, self._finite = self.value.to(device), self._finite.to(device)

    def update(self, bad: "Tensor") -> None:
        """Adapts the scale to an update; `bad`: 1 if its gradient is not finite, otherwise 0."""
        finite = (self._finite + 1) * (1 - bad)
        grows = (finite == self.GROWTH).float()
        self._finite = finite * (1 - grows)
        self.value = (self.value * (1 + grows) * (1 - 0.5 * bad)).clamp(min=1.0)


_scale: LossScale | None = None


def use_loss_scale(scale: LossScale | None) -> None:
    """Sets the scale of `scaled` for this process's training; None: 1."""
    global _scale
    _scale = scale


def scaled(loss: "Tensor") -> "Tensor":
    """Returns the loss whose gradient `pipeline.training.loop.train` expects."""
    return loss if _scale is None else loss * _scale.value
