"""Reads the description of an existing bi-encoder: Hugging Face's and sentence-transformers' files, no weights.

A setting that would change the vectors and is not supported is refused, so that no model is measured as another.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import LONGEST, check_padding, input_limit, model_config
from pipeline.modeling.model_files.sentence_transformers_files import (
    KINDS,
    POOLING,
    Pooling,
    check_kinds,
    is_tied,
    projected,
    read_dense_settings,
    read_flag,
    read_model_json,
    read_modules,
    side,
)
from pipeline.modeling.model_files.weight_shapes import check_weights
from pipeline.tokenization.tokenizer import FILES as TOKENIZER_FILES
from pipeline.tokenization.tokenizer import has_tokenizer, read_tokenizer, special_tokens

NO_BI_ENCODERS = {
    "SparseEncoder": "a sparse encoder, whose vectors have one dimension per word",
    "CrossEncoder": "a cross-encoder, which scores pairs and gives no vectors",
    "MultiVectorEncoder": "a late-interaction model, with one vector per token",
}
"""Other model types that config_sentence_transformers.json may name."""
POOLINGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "cls": "cls",
    "mean": "mean",
}
"""Names in older and in newer folders."""
DIMENSIONS = ("word_embedding_dimension", "embedding_dimension")
"""Of the states that are pooled: the name in older and in newer folders."""
TEXTS = "sentence_bert_config.json"


@dataclass(frozen=True)
class ExistingModel:
    """One encoder. None: its folder does not specify the value."""

    folder: Path
    """Holds config.json, the weights and, if there is one, the tokenizer."""
    pooling: Pooling | None
    normalise: bool | None
    """To length 1: by a module, or because its vectors are compared by the cosine."""
    projection: int | None
    """Dimensions of a linear map after the pooling. None: the model has no such map."""
    own_tokenizer: bool
    """Whether the folder of the weights has a tokenizer."""
    positions: int
    """Tokens of the longest input that the model allows, special tokens included."""
    question_tokens: int | None
    """Longest question, special tokens included."""
    passage_tokens: int | None
    question_prefix: str
    passage_prefix: str


def folders(checkpoint: Path) -> list[Path]:
    """Returns the one model folder of a tied checkpoint, or `query` and `passage`."""
    return [checkpoint] if is_tied(checkpoint) else [side(checkpoint, "query"), side(checkpoint, "passage")]


def copy_folder(folder: Path, checkpoint: Path, out: Path) -> Path:
    """Returns where `folder`, one of the `folders` of a checkpoint, is in its copy `out`."""
    return out if folder == checkpoint else out / folder.name


def tokenizer_folder(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint that holds its tokenizer, if it has one."""
    folder = folders(checkpoint)[0]
    try:
        return dict(read_modules(folder)).get("Transformer", folder)
    except InputError:  # reported where the model is read
        return folder


def read_model(folder: Path) -> ExistingModel:
    """Reads the description of one encoder. Raises InputError for another model type or an unsupported setting."""
    own = _json(folder / "config_sentence_transformers.json")
    if str(own.get("model_type")) in NO_BI_ENCODERS:
        raise InputError(f"{folder}: {NO_BI_ENCODERS[own['model_type']]}")
    modules = _modules(folder)
    inner = modules.get("Transformer", folder)
    config = model_config(inner)
    _check(inner, config)
    if own.get("truncate_dim") is not None:
        raise InputError(f"{folder / 'config_sentence_transformers.json'}: truncate_dim is not supported")
    if "Dense" in modules:
        _check_projection(modules["Dense"], config["hidden_size"])
    pooling = modules.get("Pooling", folder / POOLING)
    has_pooling = bool(modules) or pooling.is_dir()
    prefixes = _prompts(folder, own)
    texts = _json(inner / TEXTS)
    task = texts.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise InputError(f"{inner / TEXTS}: transformer_task {task!r} is not supported: only 'feature-extraction'")
    own_tokenizer = has_tokenizer(inner)
    if read_flag(inner / TEXTS, texts, "do_lower_case", False) and own_tokenizer:
        _check_case(inner)
    lengths = _lengths(inner, texts, input_limit(config)) if modules else (None, None)
    return ExistingModel(
        folder=inner,
        pooling=_pooling(pooling, config["hidden_size"], any(prefixes)) if has_pooling else None,
        normalise=_normalise(folder, own, "Normalize" in modules),
        projection=projected(folder),
        own_tokenizer=own_tokenizer,
        positions=input_limit(config),
        question_tokens=lengths[0],
        passage_tokens=lengths[1],
        question_prefix=prefixes[0],
        passage_prefix=prefixes[1],
    )


def read_whole_model(folder: Path) -> ExistingModel:
    """As `read_model`, for a folder whose own tokenizer is used. Raises InputError if it has none that fits."""
    one = read_model(folder)
    if not one.own_tokenizer:
        raise InputError(f"{one.folder}: no tokenizer: {', '.join(TOKENIZER_FILES)} are all missing")
    check_own_tokenizer(one.folder)
    return one


def check_own_tokenizer(folder: Path) -> None:
    """Raises InputError unless the model in `folder` has an embedding for each entry of the tokenizer there."""
    specials, _ = special_tokens(read_tokenizer(folder))
    config = model_config(folder)
    check_padding(str(folder), config, specials.pad)
    if specials.vocab_size > config["vocab_size"]:
        known = config["vocab_size"]
        raise InputError(
            f"{folder / 'config.json'}: vocab_size is {known}, but the tokenizer has {specials.vocab_size} entries"
        )


def _modules(folder: Path) -> dict[str, Path]:
    """Returns {kind of module: its folder}; empty for a folder without sentence-transformers' files."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    modules = read_modules(folder)
    kinds = [kind for kind, _ in modules]
    if any("Splade" in kind or "Sparse" in kind for kind in kinds):
        raise InputError(f"{path}: {NO_BI_ENCODERS['SparseEncoder']}")
    check_kinds(folder, kinds)
    if kinds[:2] != [*KINDS[:2]] or kinds != [kind for kind in KINDS if kind in kinds]:
        supported = "Transformer, Pooling, then optionally Dense, then optionally Normalize"
        raise InputError(f"{path}: the modules {', '.join(kinds)} are not supported: only {supported}")
    return dict(modules)


def _check(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError for a cross-encoder, or if there are no weights of this config.json."""
    for name in config.get("architectures") or ():
        if str(name).endswith("ForSequenceClassification"):
            raise InputError(f"{folder}: {NO_BI_ENCODERS['CrossEncoder']} ({name})")
    check_weights(folder, config)


def _check_case(folder: Path) -> None:
    """Raises InputError unless the tokenizer lower-cases: sentence-transformers does it before the tokenizer."""
    normaliser = read_tokenizer(folder).normalizer
    if normaliser is None or normaliser.normalize_str("A") != "a":
        raise InputError(f"{folder}: do_lower_case with a tokenizer that keeps upper case is not supported")


def unnamed_pooling(pooling: Pooling | None, used: Pooling) -> str:
    """Returns a notice if a model's folder does not name its pooling; else an empty text."""
    if pooling is not None:
        return ""
    return f"its folder does not name the pooling: {used} is used; --set encoder.pooling=mean or cls"


def _pooling(folder: Path, hidden_size: int, prompted: bool) -> Pooling:
    """Reads the pooling. Raises InputError unless it is CLS or mean, over the whole input, of the model's states."""
    path = folder / "config.json"
    settings = _json(path, required=True)
    for name in DIMENSIONS:
        if settings.get(name, hidden_size) != hidden_size:
            raise InputError(f"{path}: {name} is {settings[name]!r}, but the model has {hidden_size} dimensions")
    modes = {n for n in settings if n.startswith("pooling_mode_") and read_flag(path, settings, n, False)}
    modes |= {str(settings["pooling_mode"])} if "pooling_mode" in settings else set()
    poolings = {POOLINGS.get(mode) for mode in modes}
    if poolings not in ({"cls"}, {"mean"}):
        names = " and ".join(sorted(modes)) or "nothing"
        raise InputError(f"{folder}: pooling by {names} is not supported: only CLS or mean")
    if not read_flag(path, settings, "include_prompt", True) and prompted:
        raise InputError(f"{folder}: pooling without the prompt (include_prompt: false) is not supported")
    return POOLINGS[modes.pop()]


def _check_projection(folder: Path, hidden_size: int) -> None:
    """Raises InputError unless the projection maps the model's pooled states and is in safetensors."""
    inputs = read_dense_settings(folder).inputs
    if inputs != hidden_size:
        raise InputError(f"{folder}: in_features {inputs!r}, but the model has {hidden_size}")
    if not (folder / "model.safetensors").is_file():
        raise InputError(f"{folder}: no model.safetensors")


def _normalise(folder: Path, own: Mapping[str, Any], normalises: bool) -> bool | None:
    """Whether vectors get length 1: by a module, or because they are compared by cosine. None: not specified."""
    name = own.get("similarity_fn_name")
    ranks_alike = ("cosine", "dot", "euclidean") if normalises else ("cosine", "dot")
    if name is not None and name not in ranks_alike:
        raise InputError(f"{folder}: similarity_fn_name {name!r} is not supported: only 'cosine' and 'dot'")
    return True if normalises else None if name is None else bool(name == "cosine")


def _prompts(folder: Path, own: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the prefixes of questions and passages, chosen as `encode_query` and `encode_document` do.

    Unlike them, a folder with a prompt `passage` and none for `document` uses it.
    """
    prompts = own.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise InputError(f"{folder / 'config_sentence_transformers.json'}: prompts must be an object of named prompts")
    names = (("query",), ("document", "passage", "corpus"))
    question, passage = (next((prompts[n] for n in side if prompts.get(n) is not None), "") for side in names)
    if not (isinstance(question, str) and isinstance(passage, str)):
        raise InputError(f"{folder / 'config_sentence_transformers.json'}: a prompt must be a string")
    return question, passage


def _lengths(folder: Path, texts: Mapping[str, Any], room: int) -> tuple[int, int]:
    """Returns the tokens of the longest question and passage, as sentence-transformers truncates them."""
    longest = _length(folder / "tokenizer_config.json", _json(folder / "tokenizer_config.json"), "model_max_length")
    longest = _length(folder / TEXTS, texts, "max_seq_length") or longest or room
    sides = (_length(folder / TEXTS, texts, name) or longest for name in ("query_length", "document_length"))
    question, passage = (min(length, room, LONGEST) for length in sides)
    return question, passage


def longest_input(folder: Path) -> int:
    """Returns the tokens of the longest input of the model in `folder`, as sentence-transformers truncates it."""
    return _lengths(folder, _json(folder / TEXTS), input_limit(model_config(folder)))[1]


def _length(path: Path, settings: Mapping[str, Any], name: str) -> int | None:
    """Returns a number of tokens, read from `path`; None if it is not there. Raises InputError if it is unusable."""
    value = settings.get(name)
    if value is not None and not (isinstance(value, int | float) and 4 <= value < math.inf):
        raise InputError(f"{path}: {name} must be a number of tokens, at least 4: {value!r}")
    return None if value is None else int(value)


def _json(path: Path, kind: type = dict, required: bool = False) -> Any:
    """Reads a JSON file of type `kind`; returns an empty one if the file is missing and not `required`."""
    if not required and not path.is_file():
        return kind()
    return read_model_json(path, kind)
