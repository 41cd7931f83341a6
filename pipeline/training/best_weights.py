"""The dev figures of a training and its best weights, stored for a resumed training.

FOLDER/validation.json: a row per validation. FOLDER/best-STEP.safetensors: the weights after STEP updates. FOLDER also
holds the training's checkpoints. A training that resumes from a checkpoint drops the rows measured after it: those
updates run again, and on a GPU their results may differ. So each checkpoint's best weights are kept with it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import nn

from pipeline.runtime import ranks
from pipeline.runtime.checkpoints import saved_steps, write_flushed

Row = dict[str, Any]
"""epoch, step, and the figure by its name; None if it has no value."""


class BestWeights:
    """Keeps the best weights of the module `trained` by the figure `name`; higher is better."""

    def __init__(self, trained: nn.Module, name: str, folder: Path) -> None:
        self._trained, self._name, self._folder = trained, name, folder
        self._log = folder / "validation.json"
        rows = json.loads(self._log.read_text()) if self._log.is_file() else []
        self.rows: list[Row] = _before(rows, max(self._checkpoints(), default=0))

    def add(self, epoch: int, step: int, value: float | None) -> None:
        """Records the figure of the current weights, after `epoch` epochs and `step` updates; saves them if best."""
        self.rows = [*self.rows, {"epoch": epoch, "step": step, self._name: value}]
        if ranks.rank() == 0:
            if self.row() is self.rows[-1]:
                state = self._trained.state_dict()
                _write_atomically(
                    self._weights(step), to_bytes({name: x.cpu().contiguous() for name, x in state.items()})
                )
            _write_atomically(self._log, json.dumps(self.rows).encode())
            self._clear()

    def row(self) -> Row:
        """Returns the best row; among equal rows the first."""
        return self._best(self.rows)

    def put_back(self) -> None:
        """Loads the weights of the best row into the module."""
        with torch.no_grad():
            self._trained.load_state_dict(load_file(self._weights(self.row()["step"])))

    def _best(self, rows: Sequence[Row]) -> Row:
        return max(rows, key=lambda row: float("-inf") if row[self._name] is None else row[self._name])

    def _weights(self, step: int) -> Path:
        return self._folder / f"best-{step}.safetensors"

    def _checkpoints(self) -> list[int]:
        return [int(folder.name.removeprefix("step-")) for folder in saved_steps(self._folder)]

    def _clear(self) -> None:
        """Removes the weights that are neither the best now nor the best as of a checkpoint."""
        parts = [_before(self.rows, step) for step in self._checkpoints()]
        needed = {self._weights(self._best(rows)["step"]) for rows in [*parts, self.rows] if rows}
        for path in self._folder.glob("best-*.safetensors"):
            if path not in needed:
                path.unlink()


def _before(rows: Sequence[Row], checkpoint: int) -> list[Row]:
    """Returns the rows measured before a checkpoint, which is written before its own update is validated."""
    return [row for row in rows if row["step"] < checkpoint]


def _write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that a kill leaves the old or the complete new content."""
    unfinished = path.with_name(f"{path.name}.part")
    write_flushed(unfinished, content)
    unfinished.rename(path)
