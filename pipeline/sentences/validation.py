"""The measure on dev after each epoch, and the weights of the best one, kept where a killed training finds them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from pipeline import distributed
from pipeline.resume import write


class Validation:
    """`measure()`: the figure on dev of the weights as they are, the same on each rank; None where it has no value."""

    def __init__(self, trained: nn.Module, name: str, measure: Callable[[], float | None], folder: Path) -> None:
        self._trained, self._name, self._measure = trained, name, measure
        self._log, self._best = folder / "validation.json", folder / "best.safetensors"
        self.rows: list[dict[str, Any]] = json.loads(self._log.read_text()) if self._log.is_file() else []

    def after(self, epoch: int, step: int) -> None:
        """Measure the weights after `epoch` epochs and `step` updates; keep them where they are the best so far."""
        before = [row for row in self.rows if row["epoch"] < epoch]
        row = {"epoch": epoch, "step": step, self._name: self._measure()}
        self.rows = [*before, row]
        if distributed.rank() == 0:
            if not before or self._order(row) > max(map(self._order, before)):
                state = self._trained.state_dict()
                write(self._best, to_bytes({name: x.cpu().contiguous() for name, x in state.items()}))
            write(self._log, json.dumps(self.rows).encode())

    def keep_best(self) -> int:
        """Put the best epoch's weights back, on every rank. Returns the epoch, the first of equal ones."""
        distributed.meet()  # rank 0 has written them
        with torch.no_grad():
            self._trained.load_state_dict(load_file(self._best))
        return int(max(self.rows, key=self._order)["epoch"])

    def _order(self, row: dict[str, Any]) -> tuple[float, int]:
        """Better is greater; of equal ones the earlier."""
        value = row[self._name]
        return (-2.0 if value is None else value, -row["epoch"])
