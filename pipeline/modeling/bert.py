"""BERT and RoBERTa, with Condenser's head, as plain functions over packed sequences (Condenser, section 3.1).

The weights are those of a Hugging Face `BertForMaskedLM` or `RobertaForMaskedLM`, with its names.

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens, R rows that are computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.cross_entropy import cross_entropy
from pipeline.modeling.layers import embeddings, linear, linear_and_activation, linear_and_norm, linears, normed
from pipeline.modeling.packing import Chunk, Rows, attend

LanguageModel = Any
"""`BertForMaskedLM` or `RobertaForMaskedLM`."""

Seed = Callable[[int, int], None]
"""seed(layer, part): seeds dropout for a part of a layer."""
EMBEDDINGS, HEAD = 0, 1000
"""Layer numbers for `Seed`: the backbone's layers count from 1, those of a head from HEAD."""
CLS, MASKED = 1, 2
"""Parts of a layer that computes only the needed rows."""


class States(NamedTuple):
    """The backbone's output for a chunk."""

    early_TD: Tensor
    """Output of layer `skip_from`; 0 is the embeddings."""
    cls_BD: Tensor
    """The last layer's output at each sequence's first token, float32."""
    late_MD: Tensor | None
    """The last layer's output at the masked tokens, if requested."""


def backbone(lm: LanguageModel, chunk: Chunk, skip_from: int, seed: Seed, masked: bool = True) -> States:
    """Runs embeddings and layers; the last layer only at the CLS tokens and, if `masked`, the masked tokens.

    The CLS rows go through the last layer separately, with their own dropout: so a first pass that needs only them
    (the gradient cache) drops the same numbers, and gives the same bits on a CPU.
    """
    seed(EMBEDDINGS, 0)
    early_TD = hidden_TD = embed(lm, chunk.ids_T, chunk.position_T)
    *layers, last = lm.base_model.encoder.layer
    for number, layer in enumerate(layers, start=1):
        seed(number, 0)
        hidden_TD = apply(layer, hidden_TD, chunk.every, chunk.every)
        if number == skip_from:
            early_TD = hidden_TD
    number = len(layers) + 1
    hidden_TD, *key_value = keys_values(last, hidden_TD)
    seed(number, CLS)
    cls_BD = rest_of_layer(last, hidden_TD[chunk.cls.at_R], key_value, chunk.cls, chunk.every, float32=True)
    if not masked:
        return States(early_TD, cls_BD, None)
    seed(number, MASKED)
    late_MD = rest_of_layer(last, hidden_TD[chunk.masked.at_R], key_value, chunk.masked, chunk.every)
    return States(early_TD, cls_BD, late_MD)


def embed(lm: LanguageModel, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
    """Returns token, position and type embeddings summed and normalised, [T, D]. `type_T` None: all types are 0."""
    return embeddings(lm.base_model.embeddings, ids_T, position_rows(lm, position_T), type_T)


def position_rows(lm: LanguageModel, position_T: Tensor) -> Tensor:
    """Returns rows of the position table; RoBERTa's start after its padding id."""
    return position_T + lm.config.pad_token_id + 1 if lm.config.model_type == "roberta" else position_T


def apply(layer: Any, hidden_TD: Tensor, wanted: Rows, every: Rows, float32: bool = False) -> Tensor:
    """Returns a transformer layer's output at the rows `wanted` of a packed chunk, [R, D]; all rows are keys.

    `float32`: also within `autocast`.
    """
    if wanted.at_R is None:
        own = layer.attention.self
        # The order of the maps is that in which gradients are summed: another one changes last digits.
        hidden_TD, *key_value, query_TD = linears((own.key, own.value, own.query), hidden_TD)
        return rest_of_layer(layer, hidden_TD, key_value, wanted, every, float32=float32, projected_RD=query_TD)
    wanted_RD = hidden_TD[wanted.at_R]  # before the maps, for the order in which gradients are summed
    _, *key_value = keys_values(layer, hidden_TD)
    return rest_of_layer(layer, wanted_RD, key_value, wanted, every, float32=float32)


def keys_values(layer: Any, hidden_TD: Tensor) -> tuple[Tensor, ...]:
    """Returns the states, a layer's keys and its values, each [T, D]; further uses of the states as in `linears`."""
    return linears((layer.attention.self.key, layer.attention.self.value), hidden_TD)


def rest_of_layer(
    layer: Any,
    query_RD: Tensor,
    keys_and_values: Sequence[Tensor],
    wanted: Rows,
    every: Rows,
    masks: Sequence[Tensor] | None = None,
    float32: bool = False,
    projected_RD: Tensor | None = None,
) -> Tensor:
    """Returns a layer's output for computed keys and values, [R, D]; queries and residual come from `query_RD`.

    `projected_RD`: the queries, if they are computed too.
    """
    own = layer.attention.self
    if projected_RD is None:
        query_RD, projected_RD = linears((own.query,), query_RD)
    dropout = own.dropout.p if own.training else 0.0
    key_TD, value_TD = keys_and_values
    context_RD = attend(projected_RD, key_TD, value_TD, wanted, every, own.num_attention_heads, dropout, masks)
    attended_RD = linear_and_norm(layer.attention.output, context_RD, query_RD)
    attended_RD, inner_RI = linear_and_activation(layer.intermediate, attended_RD)
    return linear_and_norm(layer.output, inner_RI, attended_RD, float32)


def prediction_losses(lm: LanguageModel, states_RD: Tensor, label_R: Tensor) -> Tensor:
    """Returns the cross-entropy of the model's own prediction head at each row, [R]."""
    if hasattr(lm, "cls"):
        transform = lm.cls.predictions.transform
        dense, activation, norm = transform.dense, transform.transform_act_fn, transform.LayerNorm
    else:
        dense, activation, norm = lm.lm_head.dense, nn.functional.gelu, lm.lm_head.layer_norm
    hidden_RD = normed(norm, activation(linear(dense, states_RD)))
    output = lm.get_output_embeddings()
    return cross_entropy(hidden_RD, output.weight, output.bias, label_R)


def new_head(lm: LanguageModel, layers: int) -> nn.ModuleList:
    """Returns `layers` layers of the backbone's type, initialised as those of a new backbone."""
    layer = type(lm.base_model.encoder.layer[0])
    return nn.ModuleList(layer(lm.config) for _ in range(layers)).apply(lm._init_weights)
