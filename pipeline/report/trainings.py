"""What the pages show of trainings: names, models, counts, and curves (loss, dev MRR, entropy of attention)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.ingest_notices import NOTICES
from pipeline.data.stored import read_table
from pipeline.evaluate.attention import TABLE
from pipeline.evaluate.tables.short_tables import label
from pipeline.modeling.model_files.model_config import model_config
from pipeline.training.history_file import history_file

Curve = tuple[list[float], list[float]]
"""(finished epochs, figure)."""
TRAININGS = {"condenser": "Condenser", "cocondenser": "coCondenser", "ict": "Inverse Cloze Task"}


def training(name: str) -> str:
    """Returns a training's name on the page: `Stage 1`, `Cross-encoder 2`, `Cross-encoder, fold 2`."""
    own = label(name).capitalize().replace("-fold-", ", fold ")
    return TRAININGS.get(name) or re.sub(r"-(?=\d+$)", " ", own)


def history(folder: Path | None) -> dict[str, list[float]] | None:
    """Returns the columns of a training's history."""
    path = folder and history_file(folder)
    return read_table(path).to_pydict() if path else None


def architecture(folder: Path | None) -> str | None:
    """Returns a line about the model in a checkpoint."""
    if folder is None:
        return None
    path = next((p for p in (folder / "config.json", folder / "query" / "config.json") if p.exists()), None)
    if path is None:
        return None
    c = model_config(path.parent)
    untied = ", one encoder for questions and one for passages" if path.parent != folder else ""
    return (
        f"{c['model_type']}, {c['num_hidden_layers']} layers of {c['hidden_size']}, {c['num_attention_heads']} heads, "
        f"{c['vocab_size']:,} tokens in the vocabulary{untied}"
    )


def shown_counts(counts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns counts of ingest.json, nested ones with their path, without zeros."""
    shown: dict[str, str] = {}
    for name, value in counts.items():
        text, _ = NOTICES.get(name, (name.replace("_", " "), ""))
        label = f"{prefix}{text}"
        if isinstance(value, Mapping):
            shown |= shown_counts(value, f"{label}: ")
        elif value:
            shown[label] = f"{value:,}" if isinstance(value, int | float) else str(value)
    return shown


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
