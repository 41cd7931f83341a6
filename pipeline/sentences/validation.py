"""The measure on dev after each epoch, and the weights of the best one."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from pipeline.runtime import ranks
from pipeline.training.best_weights import Best, Row


class Validation:
    """`measure()`: the figure on dev of the weights as they are, the same on each rank; None where it has no value."""

    def __init__(self, trained: nn.Module, name: str, measure: Callable[[], float | None], folder: Path) -> None:
        self._measure, self._best = measure, Best(trained, name, folder)

    @property
    def rows(self) -> list[Row]:
        return self._best.rows

    def after(self, epoch: int, step: int) -> None:
        """Measure the weights after `epoch` epochs and `step` updates; keep them where they are the best so far."""
        self._best.add(epoch, step, self._measure())

    def keep_best(self) -> int:
        """Put the best epoch's weights back, on every rank. Returns the epoch, the first of equal ones."""
        ranks.meet()  # rank 0 has written them
        self._best.put_back()
        return int(self._best.row()["epoch"])
