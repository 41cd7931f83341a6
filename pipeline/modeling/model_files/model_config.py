"""config.json of a Hugging Face model folder. Imports nothing heavy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError

ROBERTAS = ("roberta", "xlm-roberta", "camembert")
"""Types that differ only in their tokenizers."""
TYPES = ("bert", "distilbert", "electra", "modernbert", "mpnet", *ROBERTAS)
"""Values of `model_type` with packed layers (pipeline/modeling/architectures/)."""
AFTER_PADDING = (
    *(*ROBERTAS, "mpnet"),
    *("data2vec-text", "ibert", "longformer", "luke", "roberta-prelayernorm", "xlm-roberta-xl", "xmod"),
)
"""Types whose positions start after the padding id."""
LONGEST = 8192
"""Most tokens of an input that a field may set: ModernBERT's. A model with fewer positions sets its own limit."""
SIZES = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
FURTHER_SIZES = (
    *("num_attention_heads", "intermediate_size", "embedding_size", "relative_attention_num_buckets"),
    *("local_attention", "global_attn_every_n_layers", "type_vocab_size"),
)
"""Sizes for which transformers has a default."""
ACTIVATIONS = (
    *("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_10", "gelu_pytorch_tanh", "quick_gelu"),
    *("relu", "relu2", "relu6", "leaky_relu", "silu", "swish", "mish", "tanh", "sigmoid", "linear"),
)
"""Values of `hidden_act`: transformers' names of functions without parameters."""
PROBABILITIES = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "seq_classif_dropout", "qa_dropout"),
    *("embedding_dropout",),
)
OWN_NAMES = {
    "distilbert": {
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
    },
    "modernbert": {
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
    },
}
"""Type -> BERT's name of a field -> the type's own."""
SPARE = ("pooler.", "cls.seq_relationship.", "discriminator_predictions.", "position_ids")
"""Weights of existing models that are not used here: pooler, next sentence prediction, ELECTRA's discriminator, and
position ids of old files."""
MLM_HEADS = (
    *("cls.predictions.", "lm_head.", "generator_predictions.", "generator_lm_head."),
    *("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    *("head.dense.", "head.norm.", "decoder."),
)
"""Weights of heads for masked language modelling, which an encoder does not use."""


def model_config(folder: Path) -> dict[str, Any]:
    """Reads config.json of a checkpoint, with BERT's names of fields.

    Raises InputError if it is missing, not of an encoder, of code in the folder, of an adapter or of quantised weights,
    or has an impossible or unsupported field. A type that is not in `TYPES` needs transformers, which takes seconds to
    import.
    """
    path = folder / "config.json"
    _check_adapter(folder)
    try:
        config = json.loads(path.read_text("utf-8"))
        model_type = config["model_type"]
        if not isinstance(model_type, str):
            raise TypeError(model_type)
    except OSError as error:
        raise InputError(f"{path}: missing; a checkpoint is a Hugging Face model folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a Hugging Face model") from error
    check_own_code(path, config)
    if config.get("quantization_config") is not None:
        raise InputError(
            f"{path}: quantization_config: quantised weights are not supported: use the model without quantisation"
        )
    if not is_packed(config):
        from pipeline.modeling.model_files.other_encoders import with_standard_names

        config = with_standard_names(path, config, (*SIZES, *FURTHER_SIZES))
    config |= {name: config[own] for name, own in OWN_NAMES.get(model_type, {}).items() if own in config}
    _check_numbers(path, config)
    if config.get("is_decoder"):
        raise InputError(f"{path}: is_decoder is set, but only encoders are supported")
    _check_values(path, config)
    if is_packed(config):
        _check_positions(path, config)
    if not isinstance(config.get("architectures") or [], list):
        raise InputError(f"{path}: architectures must be a list: {config['architectures']!r}")
    return config


def _check_numbers(path: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError if a size is missing or no positive integer, or if two of them do not fit."""
    kind = config["model_type"]
    further = [name for name in FURTHER_SIZES if name in config] if is_packed(config) else []
    for name in (*SIZES, *further):
        own = own_name(kind, name)
        if name not in config:
            raise InputError(f"{path}: lacks {own}")
        if not isinstance(config[name], int) or isinstance(config[name], bool) or config[name] < 1:
            raise InputError(f"{path}: {own} must be a positive integer: {config[name]!r}")
    heads = config.get("num_attention_heads", 1)
    if config["hidden_size"] % heads:
        names = own_name(kind, "num_attention_heads"), own_name(kind, "hidden_size")
        raise InputError(f"{path}: {names[0]} ({heads}) must divide {names[1]} ({config['hidden_size']})")
    padding = config.get("pad_token_id")
    limit = min(
        config["vocab_size"], config["max_position_embeddings"] if kind in AFTER_PADDING else config["vocab_size"]
    )
    optional = padding is None and kind not in AFTER_PADDING
    if not optional and not (isinstance(padding, int) and 0 <= padding < limit):
        raise InputError(f"{path}: pad_token_id must be an integer from 0 to {limit - 1}: {padding!r}")


def is_packed(config: Mapping[str, Any]) -> bool:
    """Whether texts are packed without padding for a model with this config.json."""
    return config["model_type"] in TYPES


def slower(config: Mapping[str, Any]) -> str:
    """Returns a line about a model without packed layers; empty for any other."""
    if is_packed(config):
        return ""
    return f"model_type {config['model_type']!r}: texts are padded, which is slower than packed ones (docs/encoders.md)"


def _check_positions(path: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError if positions are relative, or rotary and scaled."""
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(f"{path}: position_embedding_type {positions!r} is not supported: only 'absolute'")
    if config.get("rope_scaling") is not None:
        raise InputError(f"{path}: rope_scaling is not supported")
    parameters = config.get("rope_parameters") or {}
    if not isinstance(parameters, dict) or not all(isinstance(x, dict) for x in parameters.values()):
        raise InputError(f"{path}: rope_parameters must have a dictionary for each kind of attention")
    for of_kind in parameters.values():
        kind = of_kind.get("rope_type", "default")
        if kind != "default":
            raise InputError(f"{path}: rope_type {kind!r} is not supported: only 'default'")


def _check_values(path: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError for a value that no model can be built with, before any work: transformers sees it later."""
    kind = config["model_type"]
    act = config.get("hidden_act", "gelu")
    if act not in ACTIVATIONS:
        raise InputError(
            f"{path}: {own_name(kind, 'hidden_act')} {act!r} is not supported: only {', '.join(ACTIVATIONS)}"
        )
    for name in PROBABILITIES:
        value = config.get(name)
        if value is not None and not (_is_number(value) and 0 <= value < 1):
            raise InputError(f"{path}: {own_name(kind, name)} must be a number from 0 to below 1: {value!r}")
    for name in ("layer_norm_eps", "initializer_range"):
        if name in config and not (_is_number(config[name]) and config[name] > 0):
            raise InputError(f"{path}: {own_name(kind, name)} must be a positive number: {config[name]!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_own_code(path: Path, settings: Mapping[str, Any]) -> None:
    """Raises InputError if `settings`, read from `path`, name code in the folder: it is never run, on any model."""
    if settings.get("auto_map"):
        raise InputError(
            f"{path}: auto_map names code of the model's own, which is never run: without it, another model"
        )


def _check_adapter(folder: Path) -> None:
    """Raises InputError for a folder of PEFT: without the adapter, its base model would be used as if it were this."""
    path = folder / "adapter_config.json"
    if path.is_file():
        raise InputError(
            f"{path}: an adapter (PEFT) is not supported: merge it into the model (`merge_and_unload`), "
            "then save that with `save_pretrained`"
        )


def check_padding(place: str, config: Mapping[str, Any], padding: int) -> None:
    """Raises InputError if the model takes another token for padding than the tokenizer, whose padding is `padding`.

    Hugging Face's code would give that token no position. `place`: for the message.
    """
    own = config.get("pad_token_id")
    if config["model_type"] in AFTER_PADDING and own != padding:
        raise InputError(f"{place}: its pad_token_id is {own}, the tokenizer's padding token has id {padding}")


def own_name(model_type: str, name: str) -> str:
    """Returns the type's own name of the field that BERT calls `name`."""
    return OWN_NAMES.get(model_type, {}).get(name, name)


def field(config: Any, name: str) -> Any:
    """Returns the field that BERT calls `name`; None if the type has none. `config`: Hugging Face's object."""
    return getattr(config, own_name(config.model_type, name), None)


def inner_size(config: Any) -> int:
    """Returns the dimensions of the feed-forward layers, for estimates. `config`: Hugging Face's object."""
    return int(field(config, "intermediate_size") or 4 * config.hidden_size)


def input_limit(config: Mapping[str, Any]) -> int:
    """Returns the tokens of the longest input that a model with this config.json allows, special tokens included."""
    unused = config["pad_token_id"] + 1 if config["model_type"] in AFTER_PADDING else 0
    return config["max_position_embeddings"] - unused


def input_limit_of(config: Any) -> int:
    """As `input_limit`, of Hugging Face's object."""
    names = ("model_type", "pad_token_id", "max_position_embeddings")
    return input_limit({name: getattr(config, name) for name in names})


def has_token_types(config: Any) -> bool:
    """Whether a pair's second text has its own type embedding. `config`: Hugging Face's object."""
    return (getattr(config, "type_vocab_size", None) or 0) > 1
