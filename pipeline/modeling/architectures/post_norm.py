"""What the architectures of BERT's kind share: layers of attention and two linear maps, each with a norm after its sum.

An architecture names the parts of its Hugging Face modules, unless they have BERT's names; the functions here compute
with them.

Shapes: T tokens of a chunk, R rows that are computed, D dimensions, H heads.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.layers import (
    Embeddings,
    Residual,
    embeddings,
    linear,
    linear_and_activation,
    linear_and_norm,
    linears,
    normed,
)
from pipeline.modeling.packing import Rows, attend, row_positions

Activation = Callable[[Tensor], Tensor]
NO_DROPOUT = nn.Dropout(0.0)


class Layer(NamedTuple):
    """The parts of a transformer layer."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    heads: int
    dropout: nn.Dropout
    """Of attention weights."""
    attended: Residual
    """After the attention."""
    inner: nn.Linear
    activation: Activation
    output: Residual
    """After the inner map."""


class Prediction(NamedTuple):
    """The head for masked language modelling, up to the product with the vocabulary: norm(activation(dense(x)))."""

    dense: nn.Linear
    activation: Activation
    norm: nn.LayerNorm


class PostNorm:
    """One architecture. `model`: a Hugging Face model with or without a head, or a `FrozenEncoder`."""

    encoder_options: ClassVar[dict[str, Any]] = {"add_pooling_layer": False}
    """Options that load a bare encoder without a pooler."""
    has_token_types: ClassVar[bool] = False
    """Whether a pair's second text has its own type embedding."""
    has_score_bias: ClassVar[bool] = False
    """Whether something is added to attention scores."""

    def layers(self, model: Any) -> nn.ModuleList:
        """Returns the transformer layers."""
        layers: nn.ModuleList = model.base_model.encoder.layer
        return layers

    def embeddings(self, model: Any) -> Embeddings:
        """Returns the parts of the embeddings."""
        own = model.base_model.embeddings
        tables = own.word_embeddings, own.token_type_embeddings, own.position_embeddings
        return Embeddings(*tables, own.LayerNorm, own.dropout, first_position=0)

    def layer(self, layer: Any) -> Layer:
        """Returns the parts of a layer of this type, of the model or of a head."""
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

    def prediction(self, lm: Any) -> Prediction:
        """Returns the parts of the head of a model for masked language modelling."""
        raise NotImplementedError

    def logit(self, model: Any, cls_B1D: Tensor) -> Tensor:
        """Returns the logit of a model for sequence classification, [B, 1]. `cls_B1D`: first tokens' last states."""
        logit_B1: Tensor = model.classifier(cls_B1D)
        return logit_B1

    def last_bias(self, model: Any) -> nn.Parameter:
        """Returns the bias that is added to every logit."""
        bias: nn.Parameter = model.classifier.out_proj.bias
        return bias

    def score_bias(self, model: Any, position_nW: Tensor, length: int) -> Tensor:
        """Returns what is added to the attention scores of queries at these positions, [n, H, W, L].

        `length`: L, the keys of each of n sequences.
        """
        raise NotImplementedError

    def score_biases(self, model: Any, wanted: Rows, every: Rows) -> list[Tensor] | None:
        """Returns the bias of each group of sequences, [n or 1, H, W, L]; None: nothing is added."""
        if not self.has_score_bias:
            return None
        groups = zip(row_positions(wanted, every), every.groups, strict=True)
        return [self.score_bias(model, position_nW, length) for position_nW, (_, length) in groups]

    def embed(self, model: Any, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
        """Returns token, position and type embeddings, summed and normalised, [T, D]. `type_T` None: all 0."""
        return embeddings(self.embeddings(model), ids_T, position_T, type_T)

    def positions(self, model: Any, position_T: Tensor) -> Tensor:
        """Returns position embeddings, [T, D]."""
        parts = self.embeddings(model)
        row_T = position_T + parts.first_position
        embedded_TD: Tensor = parts.positions(row_T)
        return embedded_TD

    def apply(
        self, model: Any, layer: Any, hidden_TD: Tensor, wanted: Rows, every: Rows, float32: bool = False
    ) -> Tensor:
        """Returns a layer's output at the rows `wanted` of a packed chunk, [R, D]; all rows are keys.

        `float32`: also within `autocast`.
        """
        if wanted.at_R is None:
            own = self.layer(layer)
            # The order of the maps is that in which gradients are summed: another one changes last digits.
            hidden_TD, *key_value, query_TD = linears((own.key, own.value, own.query), hidden_TD)
            return self.rest_of_layer(
                model, layer, hidden_TD, key_value, wanted, every, float32=float32, projected_RD=query_TD
            )
        wanted_RD = hidden_TD[wanted.at_R]  # before the maps, for the order in which gradients are summed
        _, *key_value = self.keys_values(layer, hidden_TD)
        return self.rest_of_layer(model, layer, wanted_RD, key_value, wanted, every, float32=float32)

    def keys_values(self, layer: Any, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states, a layer's keys and values, each [T, D]; further uses of the states as in `linears`."""
        own = self.layer(layer)
        return linears((own.key, own.value), hidden_TD)

    def rest_of_layer(
        self,
        model: Any,
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

        `projected_RD`: the queries, if they are computed too. `masks`: as in `attend`.
        """
        own = self.layer(layer)
        if projected_RD is None:
            query_RD, projected_RD = linears((own.query,), query_RD)
        dropout = own.dropout.p if own.dropout.training else 0.0
        key_TD, value_TD = keys_and_values
        query_key_value = (projected_RD, key_TD, value_TD)
        context_RD = self.attend(model, query_key_value, wanted, every, own.heads, dropout, masks)
        attended_RD = linear_and_norm(own.attended, context_RD, query_RD)
        attended_RD, inner_RI = linear_and_activation(own.inner, own.activation, attended_RD)
        return linear_and_norm(own.output, inner_RI, attended_RD, float32)

    def attend(
        self,
        model: Any,
        query_key_value: tuple[Tensor, Tensor, Tensor],
        wanted: Rows,
        every: Rows,
        heads: int,
        dropout: float,
        masks: Sequence[Tensor] | None,
    ) -> Tensor:
        """Returns the attention of the rows `wanted`, [R, D]."""
        return attend(*query_key_value, wanted, every, heads, dropout, masks)

    def predicted(self, lm: Any, states_RD: Tensor) -> Tensor:
        """Returns what the vocabulary's matrix is multiplied with, of the states' rows."""
        dense, activation, norm = self.prediction(lm)
        return normed(norm, activation(linear(dense, states_RD)))
