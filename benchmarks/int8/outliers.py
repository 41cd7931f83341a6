"""int8 maps of an encoder of this program: a scale per row and per output, outlier columns in float32.

The idea of LLM.int8 (Dettmers et al., 2022, section 3): few columns of a layer's input have values far above the
others, and would decide the scale of a row. Their products stay float32. Here the columns are fixed: those with the
largest values on random tokens. So a row's result does not depend on the rows next to it, and no text is needed.

Shapes: R rows, K inputs, E outputs, O outlier columns, T tokens.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.steps import BUDGET
from pipeline.modeling.biencoder import Encoder, encode_rows

OUTLIERS = 8
"""Columns of a map's input that stay float32."""
BLOCK = 512
"""Rows that are computed together: their intermediate results stay in the cache."""
LEVELS = 127
"""Largest int8 that is used; symmetric."""
FINE = 2 * LEVELS
"""Steps of a fine weight in one of int8: what rounding leaves is at most half a step."""
RANDOM_ROWS, RANDOM_TOKENS = 16, 128
MAPS = ("qkv", "attention", "inner", "outer")
"""The maps of a layer: queries, keys and values; attention's output; the feed-forward network's first and second."""
Modules = dict[str, list[tuple[nn.Module, str]]]
"""{map: its linear modules, each as (parent, name)}; those of one map have the same input."""


class Int8(nn.Module):
    """Linear maps of the same input, joined to one int8 product."""

    def __init__(self, maps: list[nn.Linear], outlier_O: Tensor, fine: bool = False) -> None:
        """`fine`: a second int8 for what the first leaves of a weight, so weights have 15 bits."""
        super().__init__()
        weight_EK = torch.cat([one.weight.data for one in maps]).clone()
        self.bias_E = torch.cat([one.bias.data for one in maps])
        self.outlier_O = outlier_O
        self.outliers_OE = weight_EK[:, outlier_O].T.contiguous()
        weight_EK[:, outlier_O] = 0
        self.scale_E = weight_EK.abs().amax(1).clamp(min=1e-9) / LEVELS
        weight_EK /= self.scale_E[:, None]
        self.weight_KE = _int8(weight_EK)
        self.fine_KE = _int8((weight_EK - weight_EK.round()) * FINE) if fine else None

    def forward(self, x_RK: Tensor) -> Tensor:
        result_RE = x_RK.new_empty(len(x_RK), len(self.bias_E))
        for x_BK, result_BE in zip(x_RK.split(BLOCK), result_RE.split(BLOCK), strict=True):
            self._write(x_BK, result_BE)
        return result_RE

    def _write(self, x_RK: Tensor, result_RE: Tensor) -> None:
        size_RK = x_RK.abs().index_fill_(1, self.outlier_O, 0)
        scale_R1 = size_RK.amax(1, keepdim=True).clamp_(min=1e-9) / LEVELS
        # An outlier becomes any int8: its weights are 0.
        int8_RK = torch.div(x_RK, scale_R1, out=size_RK).round_().clamp_(-LEVELS, LEVELS).to(torch.int8)
        result_RE.copy_(torch._int_mm(int8_RK, self.weight_KE))
        if self.fine_KE is not None:
            result_RE.add_(torch._int_mm(int8_RK, self.fine_KE), alpha=1 / FINE)
        torch.addcmul(self.bias_E, result_RE.mul_(scale_R1), self.scale_E, out=result_RE)
        if len(self.outlier_O):
            result_RE.addmm_(x_RK[:, self.outlier_O], self.outliers_OE)


def _int8(weight_EK: Tensor) -> Tensor:
    return weight_EK.round().to(torch.int8).T.contiguous()


class _Part(nn.Module):
    """One of the maps that an `Int8` joins: the first that is called computes all."""

    def __init__(self, joined: "_Joined", number: int) -> None:
        super().__init__()
        self.joined, self.number = joined, number

    def forward(self, x_RK: Tensor) -> Tensor:
        return self.joined.of(x_RK)[self.number]


class _Joined:
    def __init__(self, maps: list[nn.Linear], outlier_O: Tensor, fine: bool) -> None:
        self.int8, self.sizes = Int8(maps, outlier_O, fine), [one.out_features for one in maps]
        self.input: Tensor | None = None
        self.results: tuple[Tensor, ...] = ()

    def of(self, x_RK: Tensor) -> tuple[Tensor, ...]:
        if self.input is not x_RK:
            self.input, self.results = x_RK, self.int8(x_RK).split(self.sizes, 1)
        return self.results


def quantise(
    encoder: Encoder, maps: tuple[str, ...] = MAPS, outliers: int = OUTLIERS, fine: tuple[str, ...] = ()
) -> None:
    """Replaces the `maps` of every layer by int8 ones, with `outliers` columns in float32; `fine`: see `Int8`.

    Attention's output has no outliers to keep: it is a mean of values.
    """
    columns = largest_columns(encoder, outliers)
    for layer, outlier_O in zip(encoder.model.encoder.layer, columns, strict=True):
        of_layer = modules(layer)
        for name in maps:
            linear = [getattr(parent, child) for parent, child in of_layer[name]]
            joined = _Joined(linear, outlier_O[name] if name != "attention" else outlier_O[name][:0], name in fine)
            for number, (parent, child) in enumerate(of_layer[name]):
                setattr(parent, child, _Part(joined, number))


def modules(layer: Any) -> Modules:
    """Returns the linear modules of a transformer layer."""
    own = layer.attention.self
    return {
        "qkv": [(own, "key"), (own, "value"), (own, "query")],
        "attention": [(layer.attention.output, "dense")],
        "inner": [(layer.intermediate, "dense")],
        "outer": [(layer.output, "dense")],
    }


def largest_columns(encoder: Encoder, number: int) -> list[dict[str, Tensor]]:
    """Returns, for each layer and map, the columns with the largest absolute values on random tokens, int64 [O]."""
    config = encoder.model.config
    drawn = np.random.default_rng(0).integers(0, config.vocab_size, (RANDOM_ROWS, RANDOM_TOKENS))
    found: list[dict[str, Tensor]] = []
    hooks = []
    for layer in encoder.model.encoder.layer:
        largest: dict[str, Tensor] = {}
        found.append(largest)
        for name, ((parent, child), *_) in modules(layer).items():
            hooks.append(getattr(parent, child).register_forward_pre_hook(_keep_largest(largest, name)))
    encode_rows(encoder, list(drawn), BUDGET)
    for hook in hooks:
        hook.remove()
    return [{name: x_K.topk(number).indices for name, x_K in largest.items()} for largest in found]


def _keep_largest(largest: dict[str, Tensor], name: str) -> Any:
    def keep(_: nn.Module, inputs: tuple[Tensor]) -> None:
        x_K = inputs[0].abs().amax(0)
        largest[name] = torch.maximum(x_K, largest[name]) if name in largest else x_K

    return keep
