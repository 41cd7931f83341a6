"""ELECTRA (Clark et al. 2020): BERT, whose embeddings may have fewer dimensions than its layers."""

from typing import Any, ClassVar

from torch import Tensor

from pipeline.modeling.architectures.post_norm import PostNorm, Prediction
from pipeline.modeling.layers import linear


class Electra(PostNorm):
    encoder_options: ClassVar[dict[str, Any]] = {}
    has_token_types: ClassVar[bool] = True

    def embed(self, model: Any, ids_T: Tensor, position_T: Tensor, type_T: Tensor | None = None) -> Tensor:
        return _mapped(model, super().embed(model, ids_T, position_T, type_T))

    def positions(self, model: Any, position_T: Tensor) -> Tensor:
        return _mapped(model, super().positions(model, position_T))

    def prediction(self, lm: Any) -> Prediction:
        head = lm.generator_predictions
        return Prediction(head.dense, head.activation, head.LayerNorm)


def _mapped(model: Any, x_TE: Tensor) -> Tensor:
    """Maps embeddings to the layers' dimensions, if these differ."""
    base = model.base_model
    return linear(base.embeddings_project, x_TE) if hasattr(base, "embeddings_project") else x_TE
