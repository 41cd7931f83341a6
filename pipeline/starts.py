"""What pre-training starts from, checked before any long work. Imports nothing heavy."""

import json
from pathlib import Path
from typing import Any

from pipeline.errors import InputError


def check_start(stage: str, start: Path, tokens: Path, skip_from: int, longest: int) -> None:
    """InputError, naming the stage's field, where model, tokens and configuration do not fit together.

    `longest`: tokens of the longest input, special tokens included.
    """
    model = model_config(start)
    layers, vocabulary, positions = model["num_hidden_layers"], model["vocab_size"], model["max_position_embeddings"]
    if model["model_type"] == "roberta":
        positions -= model["pad_token_id"] + 1  # its positions count on from the padding's id
    if skip_from >= layers:
        raise InputError(f"{stage}.skip_from: {skip_from} is outside the early layers of a model of {layers}")
    if longest > positions:
        raise InputError(f"{stage}: inputs of {longest} tokens, but the model has {positions} positions")
    entries = json.loads((tokens / "specials.json").read_text())["vocab_size"]
    if entries > vocabulary:
        raise InputError(f"{start}: a model of {vocabulary} tokens, but the tokenizer has {entries}")


def model_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{path}: missing")
    return json.loads(path.read_text())
