"""Checkpoint folders: what transformers and sentence-transformers load, with the Condenser head beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from pipeline.errors import InputError


def save_checkpoint(
    folder: Path,
    model: PreTrainedModel,
    tokenizer_folder: Path,
    head_state: Mapping[str, torch.Tensor] | None = None,
    history: list[dict[str, Any]] | None = None,
    pooling: str = "cls",
) -> None:
    """Write a checkpoint folder (format: docs/architecture.md).

    `model`: a BERT or RoBERTa type model, for masked LM or a bare encoder. `tokenizer_folder`: any folder with the
    tokenizer's files, so a checkpoint too. `history`: one row an update, `step` and one number a figure.
    `pooling`: `cls` or `mean`, for sentence-transformers.
    """
    raise NotImplementedError


def load_backbone_for_mlm(folder: Path) -> PreTrainedModel:
    """`BertForMaskedLM` or `RobertaForMaskedLM` in float32, on the CPU, in training mode off.

    Raises InputError where the folder holds another architecture or lacks a weight, the MLM head's included.
    """
    raise NotImplementedError


def load_encoder(folder: Path) -> PreTrainedModel:
    """`BertModel` or `RobertaModel` without pooler, float32, on the CPU, in evaluation mode; else InputError."""
    raise NotImplementedError


def load_head(folder: Path) -> dict[str, torch.Tensor]:
    """The Condenser head's weights. A missing `head.safetensors` is an InputError that names it.

    Going on with a fresh head corrupts the backbone, so there is no other way on (Condenser, section 4).
    """
    path = folder / "head.safetensors"
    if not path.is_file():
        raise InputError(f"{path}: missing; the Condenser head's weights are part of the checkpoint")
    from safetensors.torch import load_file

    return load_file(path)
