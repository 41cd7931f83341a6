"""What an architecture is: where its Hugging Face modules have the parts that all architectures share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.layers import Embeddings, Residual


class Layer(NamedTuple):
    """The parts of a transformer layer: attention and two linear maps, each with a norm after its sum."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    heads: int
    dropout: nn.Dropout
    """Of attention weights."""
    attended: Residual
    """After the attention."""
    inner: nn.Linear
    activation: Callable[[Tensor], Tensor]
    output: Residual
    """After the inner map."""


class Prediction(NamedTuple):
    """The head for masked language modelling, up to the product with the vocabulary: norm(activation(dense(x)))."""

    dense: nn.Linear
    activation: Callable[[Tensor], Tensor]
    norm: nn.LayerNorm


def bert_layers(model: Any) -> nn.ModuleList:
    """Returns the layers of a model with BERT's names."""
    layers: nn.ModuleList = model.base_model.encoder.layer
    return layers


def bert_embeddings(model: Any) -> Embeddings:
    """Returns the embeddings of a model with BERT's names."""
    own = model.base_model.embeddings
    tables = own.word_embeddings, own.token_type_embeddings, own.position_embeddings
    return Embeddings(*tables, own.LayerNorm, own.dropout, first_position=0)


def bert_layer(layer: Any) -> Layer:
    """Returns the parts of a layer with BERT's names."""
    own, attended, output = layer.attention.self, layer.attention.output, layer.output
    return Layer(
        query=own.query,
        key=own.key,
        value=own.value,
        heads=own.num_attention_heads,
        dropout=own.dropout,
        attended=Residual(attended.dense, attended.LayerNorm, attended.dropout),
        inner=layer.intermediate.dense,
        activation=layer.intermediate.intermediate_act_fn,
        output=Residual(output.dense, output.LayerNorm, output.dropout),
    )


def head_logit(model: Any, cls_B1D: Tensor) -> Tensor:
    """Returns the logit of a classifier that is one module, [B, 1]."""
    logit_B1: Tensor = model.classifier(cls_B1D)
    return logit_B1


@dataclass(frozen=True)
class Architecture:
    """Functions of Hugging Face's modules; `model`: with or without a head, or a `FrozenEncoder`.

    The defaults are those of several architectures.
    """

    prediction: Callable[[Any], Prediction]
    """Of a model for masked language modelling."""
    layers: Callable[[Any], nn.ModuleList] = bert_layers
    """Of a model."""
    layer: Callable[[Any], Layer] = bert_layer
    """The parts of one of `layers`, or of a head's layer of the same type."""
    embeddings: Callable[[Any], Embeddings] = bert_embeddings
    """Of a model."""
    embedding_map: Callable[[Any], nn.Linear | None] = lambda model: None
    """The map from the embeddings' to the layers' dimensions, if these differ."""
    score_bias: Callable[[Any, Tensor, int], Tensor] | None = None
    """score_bias(model, positions [n, W], L): is added to the attention scores of queries at these positions and L
    keys, [n, heads, W, L]. None: nothing is added."""
    logit: Callable[[Any, Tensor], Tensor] = head_logit
    """logit(model for sequence classification, first tokens' last states [B, 1, D]), [B, 1]."""
    last_bias: Callable[[Any], nn.Parameter] = lambda model: model.classifier.out_proj.bias
    """The bias that is added to every logit."""
    has_token_types: bool = False
    """Whether a pair's second text has its own type embedding."""
    encoder_options: dict[str, Any] = field(default_factory=lambda: {"add_pooling_layer": False})
    """Options that load a bare encoder without a pooler."""
