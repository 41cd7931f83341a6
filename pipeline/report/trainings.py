"""Texts about the trainings and their models for the page."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.data.stored import read_json, read_table
from pipeline.evaluate.short_tables import label
from pipeline.training.history_file import history_file

TRAININGS = {"condenser": "Condenser", "cocondenser": "coCondenser", "ict": "Inverse Cloze Task"}


def training(name: str) -> str:
    """Returns a training's name on the page: `Stage 1`, `Cross-encoder 2`."""
    return TRAININGS.get(name) or re.sub(r"-(?=\d+$)", " ", label(name).capitalize())


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
    c = read_json(path)
    untied = ", one encoder for questions and one for passages" if path.parent != folder else ""
    return (
        f"{c['model_type']}, {c['num_hidden_layers']} layers of {c['hidden_size']}, {c['num_attention_heads']} heads, "
        f"{c['vocab_size']:,} tokens in the vocabulary{untied}"
    )


def shown_counts(counts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns counts of ingest.json, nested ones with their path, without zeros."""
    shown: dict[str, str] = {}
    for name, value in counts.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            shown |= shown_counts(value, f"{label}: ")
        elif value:
            shown[label] = f"{value:,}" if isinstance(value, int | float) else str(value)
    return shown
