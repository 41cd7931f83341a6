"""config.json of a Hugging Face model folder. Imports nothing heavy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

ROBERTAS = ("roberta", "xlm-roberta", "camembert")
"""Types that differ only in their tokenizers."""
AFTER_PADDING = (*ROBERTAS, "mpnet")
"""Types whose positions start after the padding id."""
TYPES = ("bert", "distilbert", "electra", *AFTER_PADDING)
"""Values of `model_type` that are supported (pipeline/modeling/architectures/)."""
SIZES = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
OWN_NAMES = {
    "distilbert": {
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
    }
}
"""Type -> BERT's name of a field -> the type's own."""
SPARE = ("pooler.", "cls.seq_relationship.", "discriminator_predictions.", "position_ids")
"""Weights of existing models that are not used here: pooler, next sentence prediction, ELECTRA's discriminator, and
position ids of old files."""
MLM_HEADS = (
    *("cls.predictions.", "lm_head.", "generator_predictions.", "generator_lm_head."),
    *("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
)
"""Weights of heads for masked language modelling, which an encoder does not use."""


def model_config(folder: Path) -> dict[str, Any]:
    """Reads config.json of a checkpoint, with BERT's names of fields.

    Raises InputError if it is missing, not of `TYPES`, or lacks a size.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
        model_type = config["model_type"]
    except OSError as error:
        raise InputError(f"{path}: missing; a checkpoint is a Hugging Face model folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a Hugging Face model") from error
    if model_type not in TYPES:
        raise InputError(f"{path}: model_type {model_type!r} is not supported: only {', '.join(TYPES)}")
    config |= {name: config[own] for name, own in OWN_NAMES.get(model_type, {}).items() if own in config}
    for name in (*SIZES, "pad_token_id") if model_type in AFTER_PADDING else SIZES:
        if name not in config:
            raise InputError(f"{path}: lacks {name}")
        if not isinstance(config[name], int):
            raise InputError(f"{path}: {name} must be an integer: {config[name]!r}")
    return config


def own_name(model_type: str, name: str) -> str:
    """Returns the type's own name of the field that BERT calls `name`."""
    return OWN_NAMES.get(model_type, {}).get(name, name)


def field(config: Any, name: str) -> Any:
    """Returns the field that BERT calls `name`. `config`: Hugging Face's object."""
    return getattr(config, own_name(config.model_type, name))


def input_limit(config: Mapping[str, Any]) -> int:
    """Returns the tokens of the longest input that a model with this config.json allows, special tokens included."""
    unused = config["pad_token_id"] + 1 if config["model_type"] in AFTER_PADDING else 0
    return config["max_position_embeddings"] - unused
