"""A transformer layer that normalises after each sum (post-norm), as in BERT (Vaswani et al. 2017, section 3.1).

Shapes: T rows, D dimensions.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from pipeline.modeling.layers import Residual, linear_and_activation, linear_and_norm, linears


class PostNorm(NamedTuple):
    """The parts of a layer, and what is computed before and after its attention."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    heads: int
    dropout: float
    """Of attention weights, in the module's present mode."""
    attended: Residual
    """After the attention."""
    inner: nn.Linear
    activation: Callable[[Tensor], Tensor]
    output: Residual
    """After the inner map."""
    window: int | None = None
    """A token attends to tokens up to this distance; None: to all."""

    def project(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states, keys, values and queries, each [T, D]; further uses of the states as in `linears`."""
        # The order of the maps is that in which gradients are summed: another one changes last digits.
        return linears((self.key, self.value, self.query), hidden_TD)

    def keys_values(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states, keys and values; as `project`."""
        return linears((self.key, self.value), hidden_TD)

    def queries(self, hidden_TD: Tensor) -> tuple[Tensor, ...]:
        """Returns the states and queries; as `project`."""
        return linears((self.query,), hidden_TD)

    def after_attention(self, context_TD: Tensor, residual_TD: Tensor, float32: bool = False) -> Tensor:
        """Returns the layer's output for attention's result and the layer's input; `float32`: also in `autocast`."""
        attended_TD = linear_and_norm(self.attended, context_TD, residual_TD)
        attended_TD, inner_TI = linear_and_activation(self.inner, self.activation, attended_TD)
        return linear_and_norm(self.output, inner_TI, attended_TD, float32)
