"""Embeddings and layers over packed sequences.

Shapes: T tokens of a chunk, R rows that are computed, D dimensions, H heads; n sequences of a group, W rows and L keys
of each.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.attention import Masks, attend
from pipeline.modeling.inputs import Packed
from pipeline.modeling.layers import embeddings, linear, normed, rotated
from pipeline.modeling.packing import Chunk, Rows, has_kernel, one_group, real_keys, row_positions
from pipeline.runtime.precision import autocast_type


class Rotation(NamedTuple):
    """Cosines and sines of rotary positions' angles, [R, half of a head's dimensions]."""

    cos_Rd: Tensor
    sin_Rd: Tensor


class Rotations(NamedTuple):
    """Of the rows that attend, and of the keys."""

    queries: Rotation
    keys: Rotation


class AttentionLayout(NamedTuple):
    """Who attends to whom, in all layers of a window."""

    wanted: Rows
    """Rows that attend, and whose states are computed."""
    every: Rows
    """All rows: the keys."""
    masks: Masks | None
    """As in `attention.attend`."""
    window: int | None = None
    """As in `attention.attend`."""
    rotations: Rotations | None = None
    """None without rotary positions."""


Layouts = Mapping[int | None, AttentionLayout]
"""By the layers' window."""


def attention_layouts(
    model: Any, layers: Iterable[Any], wanted: Rows, packed: Packed | Chunk, masks: Masks | None = None
) -> Layouts:
    """Returns how the rows `wanted` attend to all rows in `layers`. Layers share it, as a bias of the scores needs much
    memory.

    `masks`: bool, as in `attention.attend`; they hide padding too (`Rows.pads`). None: padding alone is hidden.
    """
    own = architecture(model)
    windows = {own.layer(layer).window for layer in layers}
    return {window: _layout(model, window, wanted, packed, masks) for window in windows}


def _layout(
    model: Any, window: int | None, wanted: Rows, packed: Packed | Chunk, masks: Masks | None
) -> AttentionLayout:
    every, own = packed.every, architecture(model)
    device, rotations = every.edges.device.type, _rotations(model, window, wanted, packed.position_T)
    if masks is None and any(every.pads):
        masks = real_keys(every)
    is_local = window is not None and every.longest > window + 1
    if own.score_bias is None and not is_local:
        return AttentionLayout(wanted, every, masks, rotations=rotations)
    if masks is None and has_kernel(device):
        if own.score_bias is None and wanted.at_R is None:
            return AttentionLayout(wanted, every, None, window, rotations)
        # The kernel has no bias, and windows only for all rows; few long calls are faster.
        wanted, every = one_group(wanted), one_group(every)
        masks = real_keys(every)
    of_groups = [_mask(model, window, *group) for group in _groups(wanted, every, masks)]
    # On a CPU the bias is float32 in any precision.
    dtype = torch.float32 if device == "cpu" else autocast_type(device) or torch.float32
    cast = [x if x is None or x.dtype == torch.bool else x.to(dtype) for x in of_groups]
    return AttentionLayout(wanted, every, cast, rotations=rotations)


def _groups(wanted: Rows, every: Rows, masks: Masks | None) -> Iterator[tuple[Tensor, int, Tensor | None]]:
    """Yields positions [n or 1, W], L and the mask of each group of sequences."""
    lengths = [length for _, length in every.groups]
    yield from zip(row_positions(wanted, every), lengths, masks or itertools.repeat(None, len(lengths)), strict=True)


def _mask(model: Any, window: int | None, position_nW: Tensor, length: int, seen: Tensor | None) -> Tensor | None:
    """Returns the mask of a group, as in `attention.attend`. `seen`: keys that may be seen, bool; None: all."""
    if window is not None and length > window + 1:
        key_L = torch.arange(length, device=position_nW.device)
        near_n1WL = ((position_nW[..., None] - key_L).abs() <= window)[:, None]
        seen = near_n1WL if seen is None else near_n1WL & seen
    score_bias = architecture(model).score_bias
    if score_bias is None:
        return seen
    bias = score_bias(model, position_nW, length)
    return bias if seen is None else bias.masked_fill(~seen, -torch.inf)


def _rotations(model: Any, window: int | None, wanted: Rows, position_T: Tensor) -> Rotations | None:
    if architecture(model).frequencies is None:
        return None
    of_keys = rotation(model, window, position_T)
    return Rotations(Rotation(*(wanted.take(x) for x in of_keys)), of_keys)


def rotation(model: Any, window: int | None, position_R: Tensor) -> Rotation:
    """Returns the rotation at these positions in layers of this window."""
    frequencies = architecture(model).frequencies
    assert frequencies is not None
    with torch.autocast(position_R.device.type, enabled=False):
        angle_Rd = position_R[..., None].float() * frequencies(model, window).float()
    return Rotation(angle_Rd.cos(), angle_Rd.sin())


def rotate(rotations: Rotations | None, query_RD: Tensor, key_TD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rotated queries and keys; without rotary positions the same."""
    if rotations is None:
        return query_RD, key_TD
    return rotated(query_RD, *rotations.queries), rotated(key_TD, *rotations.keys)


def embed(model: Any, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
    """Returns token, position and type embeddings, summed and normalised, [T, D]. `type_T` None: all types are 0."""
    return _mapped(model, embeddings(architecture(model).embeddings(model), ids_T, position_T, type_T))


def with_positions(model: Any, states_TD: Tensor, position_T: Tensor) -> Tensor:
    """Returns the states plus embeddings of positions, [T, D]; the states alone if the model embeds no positions."""
    parts = architecture(model).embeddings(model)
    if parts.positions is None:
        return states_TD
    return _mapped(model, parts.positions(position_T + parts.first_position)) + states_TD


def _mapped(model: Any, embedded: Tensor) -> Tensor:
    own = architecture(model).embedding_map(model)
    return embedded if own is None else linear(own, embedded)


def apply(model: Any, layer: Any, hidden_TD: Tensor, layouts: Layouts, float32: bool = False) -> Tensor:
    """Returns a layer's output at the wanted rows of a packed chunk, [R, D].

    `float32`: also within `autocast`.
    """
    own = architecture(model).layer(layer)
    wanted = layouts[own.window].wanted
    if wanted.at_R is None:
        hidden_TD, *key_value, query_TD = own.project(hidden_TD)
        return rest_of_layer(model, layer, hidden_TD, key_value, layouts, float32, query_TD)
    wanted_RD = wanted.take(hidden_TD)  # before the maps, for the order in which gradients are summed
    _, *key_value = own.keys_values(hidden_TD)
    return rest_of_layer(model, layer, wanted_RD, key_value, layouts, float32)


def keys_values(model: Any, layer: Any, hidden_TD: Tensor) -> tuple[Tensor, ...]:
    """Returns the states, a layer's keys and values, each [T, D]; further uses of the states as in `linears`."""
    return architecture(model).layer(layer).keys_values(hidden_TD)


def rest_of_layer(
    model: Any,
    layer: Any,
    query_RD: Tensor,
    keys_and_values: Sequence[Tensor],
    layouts: Layouts,
    float32: bool = False,
    projected_RD: Tensor | None = None,
) -> Tensor:
    """Returns a layer's output for computed keys and values, [R, D]; queries and residual come from `query_RD`.

    `projected_RD`: the queries, if they are computed too.
    """
    own = architecture(model).layer(layer)
    if projected_RD is None:
        query_RD, projected_RD = own.queries(query_RD)
    key_TD, value_TD = keys_and_values
    at = layouts[own.window]
    projected_RD, key_TD = rotate(at.rotations, projected_RD, key_TD)
    context_RD = attend(
        projected_RD, key_TD, value_TD, at.wanted, at.every, own.heads, own.dropout, at.masks, at.window
    )
    return own.after_attention(context_RD, query_RD, float32)


def final_norm(model: Any, states_RD: Tensor) -> Tensor:
    """Returns the final norm of the last layer's output, of its type; the output itself if the layers normalise it."""
    norm = architecture(model).final_norm(model)
    return states_RD if norm is None else normed(norm, states_RD)


def predicted(lm: Any, states_RD: Tensor) -> Tensor:
    """Returns what the vocabulary's matrix is multiplied with, [R, D], by a model for masked language modelling."""
    prediction = architecture(lm).prediction
    if prediction is None:  # the states of a padded pass are these already
        return states_RD
    dense, activation, norm = prediction(lm)
    return normed(norm, activation(linear(dense, states_RD)))
