"""Names of the weights that an encoder with packed layers needs, by its type. Imports nothing heavy."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Parts(NamedTuple):
    """Modules of an encoder without its pooler. Each has a weight and, unless `bare`, a bias."""

    tables: tuple[str, ...]
    """Embeddings: a weight only."""
    norm: str
    """Of the embeddings."""
    layers: str
    """Before the number of a layer."""
    layer: tuple[str, ...]
    """Modules of a layer."""
    bare: bool = False
    """Whether only weights are certain: a field of config.json decides about biases."""


BERT = Parts(
    tables=tuple(f"embeddings.{kind}_embeddings" for kind in ("word", "position", "token_type")),
    norm="embeddings.LayerNorm",
    layers="encoder.layer",
    layer=(
        *(f"attention.self.{name}" for name in ("query", "key", "value")),
        *("attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
    ),
)
PARTS = {
    **dict.fromkeys(("bert", "electra", "roberta", "xlm-roberta", "camembert"), BERT),
    "distilbert": BERT._replace(
        tables=BERT.tables[:2],
        layers="transformer.layer",
        layer=(
            *(f"attention.{name}_lin" for name in ("q", "k", "v", "out")),
            *("sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
        ),
    ),
    "mpnet": BERT._replace(
        tables=(*BERT.tables[:2], "encoder.relative_attention_bias"),
        layer=(*(f"attention.attn.{name}" for name in "qkvo"), "attention.LayerNorm", *BERT.layer[-3:]),
    ),
    "modernbert": Parts(
        tables=("embeddings.tok_embeddings", "final_norm"),
        norm="embeddings.norm",
        layers="layers",
        layer=("attn.Wqkv", "attn.Wo", "mlp_norm", "mlp.Wi", "mlp.Wo"),
        bare=True,
    ),
}
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Ends of names in old files, which transformers also reads."""


def needed_weights(config: Mapping[str, Any]) -> list[str]:
    """Returns the names, without a prefix such as `bert.`. `config`: of `model_config`, of a type in `PARTS`."""
    parts = PARTS[config["model_type"]]
    modules = [parts.norm]
    modules += [f"{parts.layers}.{i}.{name}" for i in range(config["num_hidden_layers"]) for name in parts.layer]
    ends = ("weight",) if parts.bare else ("weight", "bias")
    return [f"{table}.weight" for table in parts.tables] + [f"{name}.{end}" for name in modules for end in ends]


def missing_weights(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Returns those of `needed_weights` that `names`, the weights of a file, do not have, whatever their prefix."""
    found = {_without_prefix(name, PARTS[config["model_type"]]) for name in names}
    return [name for name in needed_weights(config) if name not in found]


def _without_prefix(name: str, parts: Parts) -> str:
    for old, new in OLD.items():
        name = f"{name.removesuffix(old)}{new}" if name.endswith(old) else name
    starts = "|".join(re.escape(start) for start in ("embeddings.", f"{parts.layers}.", *parts.tables))
    start = re.search(rf"(?:^|\.)({starts})", name)
    return name[start.start(1) :] if start else name
