"""Measures on dev after each epoch, and keeps the weights of the best epoch."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from pipeline.runtime import ranks
from pipeline.training.best_weights import Best, Row


class Validation:
    """`measure()`: the current weights' figure on dev, equal on each rank; None if it is undefined."""

    def __init__(self, trained: nn.Module, name: str, measure: Callable[[], float | None], folder: Path) -> None:
        self._measure, self._best = measure, Best(trained, name, folder)

    @property
    def rows(self) -> list[Row]:
        return self._best.rows

    def after(self, epoch: int, step: int) -> None:
        """Measures the weights after `epoch` epochs and `step` updates; keeps them if they are the best so far."""
        self._best.add(epoch, step, self._measure())

    def keep_best(self) -> int:
        """Restores the best epoch's weights on every rank. Returns the epoch, the first of equal ones."""
        ranks.meet()  # rank 0 has written them
        self._best.put_back()
        return int(self._best.row()["epoch"])
