"""config.json of a Hugging Face model folder. Imports nothing heavy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

TYPES = ("bert", "roberta")
SIZES = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
SPARE = ("pooler.", "cls.seq_relationship.", "position_ids")
"""Weights of existing models that are not used here: pooler, next sentence prediction, position ids of old files."""
MLM_HEADS = ("cls.predictions.", "lm_head.")
"""Weights of heads for masked language modelling, which an encoder does not use."""


def model_config(folder: Path) -> dict[str, Any]:
    """Reads config.json of a checkpoint. Raises InputError if it is missing, not of `TYPES`, or lacks a size."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
        model_type = config["model_type"]
    except OSError as error:
        raise InputError(f"{path}: missing; a checkpoint is a Hugging Face model folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a Hugging Face model") from error
    if model_type not in TYPES:
        raise InputError(f"{path}: model_type {model_type!r} is not supported: only {' and '.join(TYPES)}")
    for name in (*SIZES, "pad_token_id") if model_type == "roberta" else SIZES:
        if name not in config:
            raise InputError(f"{path}: lacks {name}")
        if not isinstance(config[name], int):
            raise InputError(f"{path}: {name} must be an integer: {config[name]!r}")
    return config


def input_limit(config: Mapping[str, Any]) -> int:
    """Returns the tokens of the longest input that a model with this config.json allows, special tokens included.

    RoBERTa's positions start at its padding id + 1.
    """
    unused = config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0
    return config["max_position_embeddings"] - unused
