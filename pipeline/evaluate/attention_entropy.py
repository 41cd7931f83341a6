"""The entropy of [CLS]'s attention (Clark et al. 2019, "What Does BERT Look At?", section 3.2).

Shapes: N rows, B rows of a chunk, T tokens of a chunk, L layers, H heads, D dimensions (d of a head), S rows of one
length.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.modeling import padded
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.attention import Masks
from pipeline.modeling.inputs import Ids, Packed, pack_rows
from pipeline.modeling.packed_layers import attention_layouts, embed, keys_values, rest_of_layer, rotate
from pipeline.modeling.packing import Rows
from pipeline.modeling.passes import fill


def entropy_rows(model: Any, ids: Ids, budget: int, done: Callable[[int], None]) -> np.ndarray:
    """Returns entropies of rows in their order, float32 [N, L, H]. `model`: an encoder without dropout.

    Rows of similar length share a forward call of about `budget` tokens; `done(n)` is called after each call.
    """
    shape = model.config
    entropy_NLH = np.empty((len(ids), shape.num_hidden_layers, shape.num_attention_heads), np.float32)
    length_N = np.array([len(row) for row in ids], np.int64)
    device = model.device.type
    pack, compute = partial(pack_rows, ids, device=device), partial(cls_entropies, model)
    fill(entropy_NLH, length_N, budget, pack, compute, device, done)
    return entropy_NLH


def cls_entropies(model: Any, packed: Packed) -> Tensor:
    """Returns the entropy in nats of the attention weights of each row's first token over all its tokens, [B, L, H].

    In float32 on every device: the masks, which hide nothing, prevent CUDA's half-precision kernel.
    """
    if not architecture(model).is_packed:
        return padded.cls_entropies(model, packed)
    every, layers = packed.every, architecture(model).layers(model)
    assert not any(every.pads)  # the masks would not hide padding
    masks = [torch.ones(1, 1, 1, 1, dtype=torch.bool, device=model.device)] * len(every.groups)
    at_every = attention_layouts(model, layers, every, packed, masks)
    at_first = attention_layouts(model, layers, packed.first, packed, masks)
    hidden_TD = embed(model, packed.ids_T, packed.position_T)
    entropies = []
    for layer in layers:
        _, key_TD, value_TD = keys_values(model, layer, hidden_TD)
        parts = architecture(model).layer(layer)
        _, query_BD = parts.queries(packed.first.take(hidden_TD))
        at = at_first[parts.window]
        query_BD, rotated_TD = rotate(at.rotations, query_BD, key_TD)
        entropies.append(entropy(query_BD, rotated_TD, every, parts.heads, at.masks))
        if layer is not layers[-1]:
            hidden_TD = rest_of_layer(model, layer, hidden_TD, (key_TD, value_TD), at_every)
    return torch.stack(entropies, 1)


def entropy(query_BD: Tensor, key_TD: Tensor, keys: Rows, heads: int, masks: Masks | None = None) -> Tensor:
    """Returns the entropy in nats of each head's softmax of one query per row over the keys of that row, [B, H].

    `masks`: as in `attend`.
    """
    entropies = []
    queries = query_BD.split([rows for rows, _ in keys.groups])
    of_rows = key_TD.split([rows * length for rows, length in keys.groups])
    for i, (query_SD, key_SnD, (rows, length)) in enumerate(zip(queries, of_rows, keys.groups, strict=True)):
        query_SHd = query_SD.unflatten(1, (heads, -1))
        key_SnHd = key_SnD.unflatten(0, (rows, length)).unflatten(2, (heads, -1))
        score_SHn = torch.einsum("shd,snhd->shn", query_SHd, key_SnHd) / query_SHd.shape[-1] ** 0.5
        mask = None if masks is None else masks[i]
        if mask is not None and mask.dtype == torch.bool:
            score_SHn = score_SHn.masked_fill(~mask[:, :, 0], -torch.inf)
        elif mask is not None:
            score_SHn = score_SHn + mask[:, :, 0]
        entropies.append(torch.special.entr(score_SHn.softmax(-1)).sum(-1))
    return torch.cat(entropies)
