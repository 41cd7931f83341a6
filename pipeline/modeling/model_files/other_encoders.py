"""Encoders of transformers that have no packed layers here: which types these are, and the names of their fields."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, reason


def with_standard_names(path: Path, config: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the content of the config.json at `path`, with BERT's `names` of fields where transformers knows them.

    Raises InputError unless transformers itself has an encoder of this type, which also predicts masked tokens: that
    tells encoders from decoders. Code from the model's folder is never run.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    )

    kind = config["model_type"]
    if kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES or kind not in MODEL_MAPPING_NAMES:
        is_decoder = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        what = "a decoder" if is_decoder else "no text encoder of transformers"
        raise InputError(f"{path}: model_type {kind!r} is {what}; only encoders are supported (docs/encoders.md)")
    try:
        own = AutoConfig.from_pretrained(path.parent, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers validates fields, with errors of several libraries
        raise InputError(f"{path}: {reason(error)}") from error
    if own.is_encoder_decoder:
        raise InputError(f"{path}: model_type {kind!r} has a decoder; only encoders are supported (docs/encoders.md)")
    return {**config, **{name: getattr(own, name) for name in names if hasattr(own, name)}}
