"""A backbone with Condenser's head, over packed sequences (Condenser, section 3.1).

The weights are those of a Hugging Face model for masked language modelling, with its names. What depends on its type is
in pipeline/modeling/architectures/.

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens, R rows that are computed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.modeling import padded
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.cross_entropy import cross_entropy
from pipeline.modeling.inputs import Packed
from pipeline.modeling.packed_layers import (
    apply,
    attention_layouts,
    embed,
    final_norm,
    keys_values,
    predicted,
    rest_of_layer,
)
from pipeline.modeling.packing import Chunk, Rows

LanguageModel = Any
"""A Hugging Face model for masked language modelling, such as `BertForMaskedLM`."""

Seed = Callable[[int, int], None]
"""seed(layer, part): seeds dropout for a part of a layer."""
EMBEDDINGS, HEAD = 0, 1000
"""Layer numbers for `Seed`: the backbone's layers count from 1, those of a head from HEAD."""
CLS, MASKED = 1, 2
"""Parts of a layer that computes only the needed rows."""


class States(NamedTuple):
    """The backbone's output for a chunk."""

    early_TD: Tensor | None
    """Output of layer `skip_from`; 0 is the embeddings. None for a model without packed layers."""
    cls_BD: Tensor
    """The backbone's output at each sequence's first token, float32."""
    late_MD: Tensor | None
    """The backbone's output at the masked tokens, if requested. Of a model without packed layers: what the vocabulary's
    matrix is multiplied with."""


def backbone(lm: LanguageModel, chunk: Chunk, skip_from: int, seed: Seed, masked: bool = True) -> States:
    """Runs embeddings and layers; the last layer only at the CLS tokens and, if `masked`, the masked tokens.

    The CLS rows go through the last layer separately, with their own dropout: so a first pass that needs only them
    (the gradient cache) drops the same numbers, and gives the same bits on a CPU.
    """
    seed(EMBEDDINGS, 0)
    if not architecture(lm).is_packed:
        return _padded_backbone(lm, chunk, masked)
    early_TD = hidden_TD = embed(lm, chunk.ids_T, chunk.position_T)
    *layers, last = architecture(lm).layers(lm)
    every = attention_layouts(lm, layers, chunk.every, chunk)
    for number, layer in enumerate(layers, start=1):
        seed(number, 0)
        hidden_TD = apply(lm, layer, hidden_TD, every)
        if number == skip_from:
            early_TD = hidden_TD
    number = len(layers) + 1
    hidden_TD, *key_value = keys_values(lm, last, hidden_TD)
    seed(number, CLS)
    at_cls = attention_layouts(lm, [last], chunk.cls, chunk)
    cls_BD = final_norm(lm, rest_of_layer(lm, last, chunk.cls.take(hidden_TD), key_value, at_cls, float32=True))
    if not masked:
        return States(early_TD, cls_BD, None)
    seed(number, MASKED)
    at_masked = attention_layouts(lm, [last], chunk.masked, chunk)
    late_MD = final_norm(lm, rest_of_layer(lm, last, chunk.masked.take(hidden_TD), key_value, at_masked))
    return States(early_TD, cls_BD, late_MD)


def _padded_backbone(lm: LanguageModel, chunk: Chunk, masked: bool) -> States:
    if not masked:
        cls_BD = padded.last_states(lm, chunk, chunk.cls)
        return States(None, cls_BD, None)
    return States(None, *padded.masked_states(lm, chunk))


def last_states(model: Any, packed: Packed, wanted: Rows) -> Tensor:
    """Returns the last layer's states at the rows `wanted`, float32 [R, D]. `model`: with any head or none."""
    if not architecture(model).is_packed:
        return padded.last_states(model, packed, wanted)
    hidden_TD = embed(model, packed.ids_T, packed.position_T, packed.type_T)
    *layers, last = architecture(model).layers(model)
    every = attention_layouts(model, [*layers, last], packed.every, packed)
    for layer in layers:
        hidden_TD = apply(model, layer, hidden_TD, every)
    at_wanted = every if wanted.at_R is None else attention_layouts(model, [last], wanted, packed)
    return final_norm(model, apply(model, last, hidden_TD, at_wanted, float32=True))


def pooled(model: Any, packed: Packed, pooling: str) -> Tensor:
    """Returns the first token's state of each row (`cls`: the last layer runs only there) or the mean, float32 [B, D].

    `pooling`: `cls` or `mean`.
    """
    last_RD = last_states(model, packed, pooled_rows(packed, pooling))
    return last_RD if pooling == "cls" else mean(last_RD, packed.every.edges)


def pooled_rows(packed: Packed, pooling: str) -> Rows:
    """Returns the rows whose last states are pooled."""
    return packed.first if pooling == "cls" else packed.every


def mean(hidden_TD: Tensor, edges: Tensor) -> Tensor:
    """Returns the mean of each row's tokens, [B, D]."""
    return torch.segment_reduce(hidden_TD, "mean", offsets=edges.long(), axis=0)


def prediction_losses(lm: LanguageModel, states_RD: Tensor, label_R: Tensor) -> Tensor:
    """Returns the cross-entropy of the model's own prediction head at each row, [R]."""
    output = lm.get_output_embeddings()
    bias_V = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias
    return cross_entropy(predicted(lm, states_RD), output.weight, bias_V, label_R)


def new_head(lm: LanguageModel, layers: int) -> nn.ModuleList:
    """Returns `layers` layers of the backbone's type, initialised as those of a new backbone."""
    own = architecture(lm)
    first = own.layers(lm)[0]
    return nn.ModuleList(own.new_layer(first, lm.config) for _ in range(layers)).apply(lm._init_weights)
