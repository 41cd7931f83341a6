"""A checkpoint's config.json, and what pre-training starts from: checked before any work. Imports nothing heavy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

TYPES = ("bert", "roberta")


def check_start(stage: str, start: Path, tokens: Path, skip_from: int, longest: int) -> None:
    """InputError, naming the stage's field, where model, tokens and configuration do not fit together.

    `longest`: tokens of the longest input, special tokens included.
    """
    model = model_config(start)
    try:
        layers, vocabulary, room = model["num_hidden_layers"], model["vocab_size"], positions(model)
    except KeyError as error:
        raise InputError(f"{start / 'config.json'}: lacks {error.args[0]}") from error
    except TypeError as error:
        raise InputError(f"{start / 'config.json'}: a number is wanted in every size ({error})") from error
    for name, value in (("num_hidden_layers", layers), ("vocab_size", vocabulary), ("max_position_embeddings", room)):
        if not isinstance(value, int):
            raise InputError(f"{start / 'config.json'}: {name} is no number: {value!r}")
    if skip_from >= layers:
        raise InputError(f"{stage}.skip_from: {skip_from} is outside the early layers of a model of {layers}")
    if longest > room:
        raise InputError(f"{stage}: inputs of {longest} tokens, but the model has {room} positions")
    entries = json.loads((tokens / "specials.json").read_text())["vocab_size"]
    if entries > vocabulary:
        raise InputError(f"{start}: a model of {vocabulary} tokens, but the tokenizer has {entries}")


def model_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint. InputError where there is none, or it is of another type than `TYPES`."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
        model_type = config["model_type"]
    except OSError as error:
        raise InputError(f"{path}: missing; a checkpoint is a Hugging Face model folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a Hugging Face model") from error
    if model_type not in TYPES:
        raise InputError(f"{path}: model_type {model_type!r} is neither {' nor '.join(TYPES)}")
    return config


def positions(config: Mapping[str, Any]) -> int:
    """Tokens that the position table of a model with this config.json has room for, special tokens included.

    RoBERTa counts positions from its padding id + 1 on.
    """
    spent = config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0
    return config["max_position_embeddings"] - spent
