"""The scale of a float16 training's losses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class LossScale:
    """Dynamic loss scaling: small gradients would be 0 in float16 (Micikevicius et al. 2018, section 3.2).

    A power of two, so that it changes no digit of a gradient. It is halved after an update that is not finite and
    doubled after GROWTH others. It lives on the device, so that the host need not wait.
    """

    FIRST = 2.0**12
    GROWTH = 2000

    def __init__(self, device: str, skipped: Sequence[float]) -> None:
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
    """Returns the loss whose gradient `loop.train` expects."""
    return loss if _scale is None else loss * _scale.value
