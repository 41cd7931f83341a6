"""Embeddings and layers over packed sequences. All architectures normalise after each sum (post-norm).

Shapes: T tokens of a chunk, R rows that are computed, D dimensions, H heads; n sequences of a group, W rows and L keys
of each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.layers import embeddings, linear, linear_and_activation, linear_and_norm, linears, normed
from pipeline.modeling.packing import Rows, attend, has_kernel, one_group, real_keys, row_positions
from pipeline.runtime.precision import autocast_type


class AttentionLayout(NamedTuple):
    """Who attends to whom, in all layers."""

    wanted: Rows
    """Rows that attend, and whose states are computed."""
    every: Rows
    """All rows: the keys."""
    masks: Sequence[Tensor] | None
    """As in `packing.attend`."""


def attention_layout(model: Any, wanted: Rows, every: Rows, masks: Sequence[Tensor] | None = None) -> AttentionLayout:
    """Returns how the rows `wanted` attend to all rows. Layers share it, as a bias of the scores needs much memory.

    `masks`: bool, as in `packing.attend`.
    """
    device = every.edges.device.type
    if architecture(model).score_bias is None:
        return AttentionLayout(wanted, every, masks)
    if masks is None and has_kernel(device):  # the kernel has no bias; few long calls are faster
        masks, wanted, every = [real_keys(every)], one_group(wanted), one_group(every)
    biases = score_biases(model, wanted, every) or []
    if masks is not None:
        biases = [bias.masked_fill(~seen, -torch.inf) for bias, seen in zip(biases, masks, strict=True)]
    # A CPU's attention is float32 in any precision.
    dtype = torch.float32 if device == "cpu" else autocast_type(device) or torch.float32
    return AttentionLayout(wanted, every, [bias.to(dtype) for bias in biases])


def score_biases(model: Any, wanted: Rows, every: Rows) -> list[Tensor] | None:
    """Returns what is added to the scores of each group of sequences, [n or 1, H, W, L]; None: nothing."""
    score_bias = architecture(model).score_bias
    if score_bias is None:
        return None
    groups = zip(row_positions(wanted, every), every.groups, strict=True)
    return [score_bias(model, position_nW, length) for position_nW, (_, length) in groups]


def embed(model: Any, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
    """Returns token, position and type embeddings, summed and normalised, [T, D]. `type_T` None: all types are 0."""
    return _mapped(model, embeddings(architecture(model).embeddings(model), ids_T, position_T, type_T))


def position_embeddings(model: Any, position_T: Tensor) -> Tensor:
    """Returns position embeddings, [T, D]."""
    parts = architecture(model).embeddings(model)
    return _mapped(model, parts.positions(position_T + parts.first_position))


def _mapped(model: Any, embedded: Tensor) -> Tensor:
    own = architecture(model).embedding_map(model)
    return embedded if own is None else linear(own, embedded)


def apply(model: Any, layer: Any, hidden_TD: Tensor, at: AttentionLayout, float32: bool = False) -> Tensor:
    """Returns a layer's output at the rows `at.wanted` of a packed chunk, [R, D].

    `float32`: also within `autocast`.
    """
    rows = at.wanted.at_R
    if rows is None:
        own = architecture(model).layer(layer)
        # The order of the maps is that in which gradients are summed: another one changes last digits.
        hidden_TD, *key_value, query_TD = linears((own.key, own.value, own.query), hidden_TD)
        return rest_of_layer(model, layer, hidden_TD, key_value, at, float32, query_TD)
    wanted_RD = hidden_TD[rows]  # before the maps, for the order in which gradients are summed
    _, *key_value = keys_values(model, layer, hidden_TD)
    return rest_of_layer(model, layer, wanted_RD, key_value, at, float32)


def keys_values(model: Any, layer: Any, hidden_TD: Tensor) -> tuple[Tensor, ...]:
    """Returns the states, a layer's keys and values, each [T, D]; further uses of the states as in `linears`."""
    own = architecture(model).layer(layer)
    return linears((own.key, own.value), hidden_TD)


def rest_of_layer(
    model: Any,
    layer: Any,
    query_RD: Tensor,
    keys_and_values: Sequence[Tensor],
    at: AttentionLayout,
    float32: bool = False,
    projected_RD: Tensor | None = None,
) -> Tensor:
    """Returns a layer's output for computed keys and values, [R, D]; queries and residual come from `query_RD`.

    `projected_RD`: the queries, if they are computed too.
    """
    own = architecture(model).layer(layer)
    if projected_RD is None:
        query_RD, projected_RD = linears((own.query,), query_RD)
    dropout = own.dropout.p if own.dropout.training else 0.0
    key_TD, value_TD = keys_and_values
    context_RD = attend(projected_RD, key_TD, value_TD, at.wanted, at.every, own.heads, dropout, at.masks)
    attended_RD = linear_and_norm(own.attended, context_RD, query_RD)
    attended_RD, inner_RI = linear_and_activation(own.inner, own.activation, attended_RD)
    return linear_and_norm(own.output, inner_RI, attended_RD, float32)


def predicted(lm: Any, states_RD: Tensor) -> Tensor:
    """Returns what the vocabulary's matrix is multiplied with, [R, D], by a model for masked language modelling."""
    dense, activation, norm = architecture(lm).prediction(lm)
    return normed(norm, activation(linear(dense, states_RD)))
