"""Reads the data of pictures of trainings from artifacts: loss and dev MRR by epoch, entropy of attention."""

from pathlib import Path

import numpy as np

from pipeline.data.stored import read_table
from pipeline.evaluate.attention import TABLE
from pipeline.training.history_file import history_file

Curve = tuple[list[float], list[float]]
"""(finished epochs, figure)."""


def loss_by_epoch(checkpoint: Path, epochs: int) -> Curve | None:
    """Returns the loss of each update of a fine-tuning of `epochs` epochs; None if the checkpoint has no history.

    All epochs have the same number of updates. Skipped updates have no loss, but count as updates of an epoch.
    """
    path = history_file(checkpoint)
    if path is None:
        return None
    table = read_table(path)
    epoch = np.arange(1, len(table) + 1) * epochs / len(table)
    kept = table["skipped"].to_numpy() == 0
    return epoch[kept].tolist(), table["loss"].to_numpy()[kept].tolist()


def dev_by_epoch(checkpoint: Path) -> Curve | None:
    """Returns MRR@10 of dev questions after each epoch (finetune/validation.py); None without validation."""
    path = checkpoint / "validation.parquet"
    if not path.exists():
        return None
    table = read_table(path, ["epoch", "RR@10"])
    return [float(epoch) for epoch in table["epoch"].to_pylist()], table["RR@10"].to_pylist()


def entropies(attention: Path) -> dict[str, list[float]]:
    """Returns {model: entropy of [CLS] attention in nats, layer by layer} from the stage `attention`."""
    by_model: dict[str, list[float]] = {}
    for row in read_table(attention / TABLE, ["model", "layer", "entropy"]).to_pylist():
        by_model.setdefault(row["model"], []).append(row["entropy"])
    return by_model
