"""DistilBERT (Sanh et al. 2019): BERT without token types and without dropout after the attention."""

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.modeling.architectures.post_norm import NO_DROPOUT, Layer, PostNorm, Prediction
from pipeline.modeling.layers import Embeddings, Residual


class DistilBert(PostNorm):
    encoder_options: ClassVar[dict[str, Any]] = {}

    def layers(self, model: Any) -> nn.ModuleList:
        layers: nn.ModuleList = model.base_model.transformer.layer
        return layers

    def embeddings(self, model: Any) -> Embeddings:
        own = model.base_model.embeddings
        return Embeddings(
            own.word_embeddings, None, own.position_embeddings, own.LayerNorm, own.dropout, first_position=0
        )

    def layer(self, layer: Any) -> Layer:
        own, inner = layer.attention, layer.ffn
        return Layer(
            query=own.q_lin,
            key=own.k_lin,
            value=own.v_lin,
            heads=own.n_heads,
            dropout=own.dropout,
            attended=Residual(own.out_lin, layer.sa_layer_norm, NO_DROPOUT),
            inner=inner.lin1,
            activation=inner.activation,
            output=Residual(inner.lin2, layer.output_layer_norm, inner.dropout),
        )

    def prediction(self, lm: Any) -> Prediction:
        return Prediction(lm.vocab_transform, lm.activation, lm.vocab_layer_norm)

    def logit(self, model: Any, cls_B1D: Tensor) -> Tensor:
        logit_B1: Tensor = model.classifier(model.dropout(F.relu(model.pre_classifier(cls_B1D[:, 0]))))
        return logit_B1

    def last_bias(self, model: Any) -> nn.Parameter:
        bias: nn.Parameter = model.classifier.bias
        return bias
