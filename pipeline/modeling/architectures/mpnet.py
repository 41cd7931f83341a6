"""MPNet (Song et al. 2020): RoBERTa, with a learned bias of attention scores that depends on the distance.

Shapes: n sequences, W query rows and L keys of each, H heads.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.modeling.architectures.architecture import Architecture, Prediction, weights_dropout
from pipeline.modeling.architectures.post_norm import PostNorm
from pipeline.modeling.layers import Embeddings, Residual

FARTHEST = 128
"""Distances from here on share a bias in each direction."""


def prediction(lm: Any) -> Prediction:
    return Prediction(lm.lm_head.dense, F.gelu, lm.lm_head.layer_norm)


def embeddings(model: Any) -> Embeddings:
    own = model.base_model.embeddings
    # The model's code fixes its padding id.
    first = own.padding_idx + 1
    return Embeddings(own.word_embeddings, None, own.position_embeddings, own.LayerNorm, own.dropout, first)


def layer(layer: Any) -> PostNorm:
    own, output = layer.attention.attn, layer.output
    return PostNorm(
        query=own.q,
        key=own.k,
        value=own.v,
        heads=own.num_attention_heads,
        dropout=weights_dropout(own.dropout),
        attended=Residual(own.o, layer.attention.LayerNorm, layer.attention.dropout),
        inner=layer.intermediate.dense,
        activation=layer.intermediate.intermediate_act_fn,
        output=Residual(output.dense, output.LayerNorm, output.dropout),
    )


def score_bias(model: Any, position_nW: Tensor, length: int) -> Tensor:
    """Returns the bias of queries at these positions for `length` keys, [n, H, W, L]; all layers share its table."""
    table = model.base_model.encoder.relative_attention_bias
    key_L = torch.arange(length, device=position_nW.device)
    bias_nWLH: Tensor = table(buckets(key_L - position_nW[..., None], table.num_embeddings))
    return bias_nWLH.permute(0, 3, 1, 2)


def buckets(distance: Tensor, number: int) -> Tensor:
    """Returns the row of the table of biases for each distance of a key from its query (Raffel et al. 2020, section
    2.1).

    Half of the `number` rows are for keys after the query. Half of each half are for single distances; the others
    cover distances up to FARTHEST, in logarithmic steps.
    """
    half = number // 2
    single = half // 2
    size = distance.abs()
    far = torch.log(size.clamp(min=1).float() / single) / math.log(FARTHEST / single) * (half - single)
    place = torch.where(size < single, size, (single + far.long()).clamp(max=half - 1))
    return place + half * (distance > 0)


MPNET = Architecture(prediction, embeddings=embeddings, layer=layer, score_bias=score_bias)
