"""A transformer layer that normalises the input of its attention and of its inner map (pre-norm; Xiong et al. 2020).

Within `autocast` the sums of all layers are float32: no norm bounds their rounding errors.

Shapes: T rows, D dimensions.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from pipeline.modeling.layers import Residual, gated, linear_and_sum, linear_sum_and_norm, linears, normed, row_linear
from pipeline.runtime.precision import autocast_type


class PreNorm(NamedTuple):
    """The parts of a layer, and what is computed before and after its attention. The methods are those of PostNorm."""

    norm: nn.LayerNorm | None
    """Before the attention; None in a layer whose input is normalised."""
    query_key_value: nn.Linear
    """One map: its outputs are queries, keys and values."""
    heads: int
    dropout: float
    """Of attention weights, in the module's present mode."""
    attended: Residual
    """After the attention. Its norm is that of the inner map's input."""
    inner: nn.Linear
    """One map: its outputs are the activation's input, and factors of the activation (gated linear unit)."""
    activation: Callable[[Tensor], Tensor]
    inner_dropout: nn.Dropout
    output: nn.Linear
    window: int | None = None
    """A token attends to tokens up to this distance; None: to all."""

    def project(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states, keys, values and queries, each [T, D]."""
        joined = linears((self.query_key_value,), self._normed(hidden_TD))[1]
        query_TD, *key_value = joined.chunk(3, -1)
        return hidden_TD, *key_value, query_TD

    def keys_values(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states, keys and values, each [T, D]."""
        size = self.query_key_value.in_features
        joined = row_linear(self.query_key_value, slice(size, 3 * size), self._normed(hidden_TD))
        return hidden_TD, *joined.chunk(2, -1)

    def queries(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states and queries, each [T, D]."""
        rows = slice(0, self.query_key_value.in_features)
        return hidden_TD, row_linear(self.query_key_value, rows, self._normed(hidden_TD))

    def after_attention(self, context_TD: Tensor, residual_TD: Tensor, float32: bool = False) -> Tensor:
        """Returns the layer's output for attention's result and the layer's input, float32."""
        attended_TD, normed_TD = linear_sum_and_norm(self.attended, context_TD, residual_TD)
        inner_TI = self.inner_dropout(gated(self.inner, self.activation, normed_TD))
        return linear_and_sum(self.output, inner_TI, attended_TD)

    def _normed(self, hidden_TD: Tensor) -> Tensor:
        if self.norm is None:
            return hidden_TD
        return normed(self.norm, hidden_TD, autocast_type(hidden_TD.device.type))
