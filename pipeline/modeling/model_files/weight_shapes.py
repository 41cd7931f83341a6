"""Compares config.json with the weights of a model folder, by the headers of the files: no weight is loaded."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import InputError, reason
from pipeline.modeling.model_files.model_config import is_packed, own_name
from pipeline.modeling.model_files.weight_names import missing_weights

Shapes = dict[str, tuple[int, ...]]
"""{name of a weight: its shape}."""
LAYER = re.compile(r"(?:^|\.)(?:encoder\.layer|transformer\.layer|layers)\.(\d+)\.")
WORDS = r"\b(?:word|tok)_embeddings\.weight$"
LAST_IN_LAYER = r"\.(?:\d+\.output\.dense|ffn\.lin2|mlp\.Wo)\.weight$"
"""The map from the inner dimensions of a layer back to the model's."""


class Size(NamedTuple):
    """A field of config.json that a weight has too."""

    field: str
    """BERT's name."""
    weights: str
    """Pattern of their names."""
    axis: int
    unit: str


VOCABULARY = Size("vocab_size", WORDS, 0, "embeddings")
SIZES = (
    VOCABULARY,
    Size("hidden_size", LAST_IN_LAYER, 0, "dimensions"),
    Size("intermediate_size", LAST_IN_LAYER, 1, "inner dimensions"),
    Size("max_position_embeddings", r"\bposition_embeddings\.weight$", 0, "positions"),
    Size("type_vocab_size", r"\btoken_type_embeddings\.weight$", 0, "token types"),
    Size("relative_attention_num_buckets", r"\brelative_attention_bias\.weight$", 0, "buckets"),
)
"""Of packed types. Other types may have other tables: positions before the first one, several widths."""
OF_TYPE = {"electra": (Size("embedding_size", WORDS, 1, "dimensions per embedding"),)}


def check_weights(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises InputError if the folder has no weights, or others than its `config` says; called before any work.

    `config`: of `model_config`. What has no known name is not compared: the model's loader is strict.
    """
    shapes = read_shapes(folder)
    kind, path = config["model_type"], folder / "config.json"
    layers = {found[1] for name in shapes if (found := LAYER.search(name))}
    if layers:
        _check(path, kind, "num_hidden_layers", config["num_hidden_layers"], len(layers), "layers")
    for size in (*SIZES, *OF_TYPE.get(kind, ())) if is_packed(config) else (VOCABULARY,):
        if size.field in config:
            for actual in {shape[size.axis] for name, shape in shapes.items() if re.search(size.weights, name)}:
                _check(path, kind, size.field, config[size.field], actual, size.unit)
    absent = missing_weights(config, shapes) if is_packed(config) else []
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise InputError(f"{folder}: the model lacks weight {absent[0]}{more}")


def _check(path: Path, kind: str, field: str, value: int, actual: int, unit: str) -> None:
    if value != actual:
        raise InputError(f"{path}: {own_name(kind, field)} is {value}, but the weights have {actual} {unit}")


def has_weights(folder: Path) -> bool:
    """Whether the folder has weights in safetensors: one file, or every file that an index names."""
    if (folder / "model.safetensors").is_file():
        return True
    try:
        names = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
    return all((folder / str(name)).is_file() for name in names)


def read_shapes(folder: Path) -> Shapes:
    """Returns the shapes of the model's weights. Raises InputError if the folder has none in safetensors."""
    from safetensors import SafetensorError, safe_open

    whole = folder / "model.safetensors"
    files = [whole] if whole.is_file() else sorted(folder.glob("model-*.safetensors"))
    if not files:
        old = (folder / "pytorch_model.bin").is_file()
        how = "; transformers' save_pretrained converts pytorch_model.bin" if old else ""
        raise InputError(f"{folder}: no model.safetensors{how}")
    shapes: Shapes = {}
    for path in files:
        try:
            with safe_open(path, "np") as file:
                names: list[str] = file.keys()
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: {reason(error)}") from error
    return shapes
