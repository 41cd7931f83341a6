"""Loads encoders that are not trained, without transformers, whose import takes longer than that of torch.

Shapes: D dimensions of the model.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.modeling.model_files.model_config import AFTER_PADDING, MLM_HEADS, ROBERTAS, SIZES, SPARE, model_config

TYPES = ("bert", *ROBERTAS)
"""Types with the modules that `FrozenEncoder` has."""

NEEDED = (*SIZES, "intermediate_size", "num_attention_heads", "type_vocab_size", "pad_token_id")
"""Integers of config.json without which transformers would use a default."""


class FrozenConfig(SimpleNamespace):
    """config.json as attributes."""

    def to_dict(self) -> dict[str, Any]:
        """Returns config.json."""
        return dict(vars(self))


class FrozenEncoder(nn.Module):
    """The embeddings and layers of a model of TYPES, with Hugging Face's names. It has no `forward`.

    pipeline/modeling/packed_layers.py computes with its modules.
    """

    def __init__(self, config: FrozenConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _embeddings(config)
        self.encoder = _group(layer=nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers)))

    @property
    def base_model(self) -> nn.Module:
        """The encoder itself, as for a model of transformers without a head."""
        return self

    @property
    def device(self) -> torch.device:
        """Where its weights are, as for a model of transformers."""
        return next(self.parameters()).device


def load_frozen(folder: Path) -> Any:
    """Loads an encoder in float32, on the CPU, in evaluation mode, without gradients of its own.

    transformers loads a folder with any other content than this project writes (other names of weights, weights in
    several files, another activation, numbers that are NaN), and describes what is wrong. Raises InputError as
    `checkpoint.load_encoder`.
    """
    config = FrozenConfig(**model_config(folder))
    weights = _read(folder / "model.safetensors") if _is_usual(config) else {}
    if weights and all(x.isfinite().all() for x in weights.values()):
        model = FrozenEncoder(config)
        if {name: x.shape for name, x in model.state_dict().items()} == {name: x.shape for name, x in weights.items()}:
            model.load_state_dict(weights, assign=True)
            return model.requires_grad_(False).eval()
    from pipeline.modeling.checkpoint import load_encoder

    return load_encoder(folder)


def _is_usual(config: FrozenConfig) -> bool:
    """Whether config.json has all fields of a model that `FrozenEncoder` can build."""
    fields = vars(config)
    return (
        config.model_type in TYPES
        and all(isinstance(fields.get(name), int) for name in NEEDED)
        and isinstance(fields.get("layer_norm_eps"), float)
        and fields.get("hidden_act") == "gelu"
        and min(config.hidden_size, config.num_attention_heads) > 0
        and config.hidden_size % config.num_attention_heads == 0
        and 0 <= config.pad_token_id < min(config.vocab_size, config.max_position_embeddings)
    )


def _read(path: Path) -> Mapping[str, Tensor]:
    """Returns float32 copies of the encoder's weights, by their names in a bare encoder; none if there is no file."""
    try:
        with safe_open(path, "pt") as file:
            all_names = file.keys()
            names = [name for name in all_names if not any(part in name for part in (*SPARE, *MLM_HEADS))]
            # Copies: memory that torch allocates is aligned as for any other model, that of the file is not.
            return {_bare(name): file.get_tensor(name).to(torch.float32, copy=True) for name in names}
    except (OSError, SafetensorError):
        return {}


def _bare(name: str) -> str:
    """Returns a weight's name without the prefix that it has in a model with a head."""
    return name.removeprefix("bert.").removeprefix("roberta.")


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Leaves the weights undefined: drawing random ones would take longer than reading a file."""


class _Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        """As `_Linear`."""


def _group(**modules: nn.Module) -> nn.Module:
    """Returns a module that only holds others, by name."""
    group = nn.Module()
    for name, module in modules.items():
        group.add_module(name, module)
    return group


def _embeddings(config: FrozenConfig) -> nn.Module:
    size_D, padding = config.hidden_size, config.pad_token_id
    return _group(
        word_embeddings=_Embedding(config.vocab_size, size_D, padding),
        position_embeddings=_Embedding(
            config.max_position_embeddings, size_D, padding if config.model_type in AFTER_PADDING else None
        ),
        token_type_embeddings=_Embedding(config.type_vocab_size, size_D),
        LayerNorm=nn.LayerNorm(size_D, config.layer_norm_eps),
        dropout=nn.Dropout(0.0),
    )


def _layer(config: FrozenConfig) -> nn.Module:
    size_D, inner = config.hidden_size, config.intermediate_size
    maps = {name: _Linear(size_D, size_D) for name in ("query", "key", "value")}
    own = _group(**maps, dropout=nn.Dropout(0.0))
    own.num_attention_heads = config.num_attention_heads
    intermediate: Any = _group(dense=_Linear(size_D, inner))
    intermediate.intermediate_act_fn = F.gelu
    return _group(
        attention=_group(self=own, output=_sum_and_norm(size_D, size_D, config)),
        intermediate=intermediate,
        output=_sum_and_norm(inner, size_D, config),
    )


def _sum_and_norm(inputs: int, size_D: int, config: FrozenConfig) -> nn.Module:
    """Returns what `layers.linear_and_norm` computes with."""
    return _group(
        dense=_Linear(inputs, size_D),
        LayerNorm=nn.LayerNorm(size_D, config.layer_norm_eps),
        dropout=nn.Dropout(0.0),
    )
