"""What pictures of trainings draw, read from the artifacts: losses and dev MRR by epoch, the entropy of attention."""

from pathlib import Path

import numpy as np

from pipeline.data.stored import read_table
from pipeline.evaluate.attention import TABLE
from pipeline.training.history_file import history_file

Curve = tuple[list[float], list[float]]
"""(epochs done, figure)."""


def loss_by_epoch(checkpoint: Path, epochs: int) -> Curve | None:
    """The loss of each update of a fine-tuning of so many epochs; None where the checkpoint has no history.

    An epoch is the history's updates by `epochs`: all have the same number. Skipped updates are left out, and count.
    """
    path = history_file(checkpoint)
    if path is None:
        return None
    table = read_table(path)
    epoch = np.arange(1, len(table) + 1) * epochs / len(table)
    kept = table["skipped"].to_numpy() == 0
    return epoch[kept].tolist(), table["loss"].to_numpy()[kept].tolist()


def dev_by_epoch(checkpoint: Path) -> Curve | None:
    """MRR@10 of dev questions after each epoch (finetune/validation.py); None where fine-tuning did not validate."""
    path = checkpoint / "validation.parquet"
    if not path.exists():
        return None
    table = read_table(path, ["epoch", "RR@10"])
    return [float(epoch) for epoch in table["epoch"].to_pylist()], table["RR@10"].to_pylist()


def entropies(attention: Path) -> dict[str, list[float]]:
    """{model: the entropy of [CLS]'s attention in nats, layer by layer} of the stage `attention`."""
    found: dict[str, list[float]] = {}
    for row in read_table(attention / TABLE, ["model", "layer", "entropy"]).to_pylist():
        found.setdefault(row["model"], []).append(row["entropy"])
    return found
