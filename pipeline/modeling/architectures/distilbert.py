"""DistilBERT (Sanh et al. 2019): BERT without token types and without dropout after the attention."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.modeling.architectures.architecture import NO_DROPOUT, Architecture, Prediction, weights_dropout
from pipeline.modeling.architectures.post_norm import PostNorm
from pipeline.modeling.layers import Embeddings, Residual


def prediction(lm: Any) -> Prediction:
    return Prediction(lm.vocab_transform, lm.activation, lm.vocab_layer_norm)


def layers(model: Any) -> nn.ModuleList:
    own: nn.ModuleList = model.base_model.transformer.layer
    return own


def embeddings(model: Any) -> Embeddings:
    own = model.base_model.embeddings
    return Embeddings(own.word_embeddings, None, own.position_embeddings, own.LayerNorm, own.dropout, first_position=0)


def layer(layer: Any) -> PostNorm:
    own, inner = layer.attention, layer.ffn
    return PostNorm(
        query=own.q_lin,
        key=own.k_lin,
        value=own.v_lin,
        heads=own.n_heads,
        dropout=weights_dropout(own.dropout),
        attended=Residual(own.out_lin, layer.sa_layer_norm, NO_DROPOUT),
        inner=inner.lin1,
        activation=inner.activation,
        output=Residual(inner.lin2, layer.output_layer_norm, inner.dropout),
    )


def logit(model: Any, cls_B1D: Tensor) -> Tensor:
    logit_B1: Tensor = model.classifier(model.dropout(F.relu(model.pre_classifier(cls_B1D[:, 0]))))
    return logit_B1


DISTILBERT = Architecture(
    prediction,
    layers=layers,
    layer=layer,
    embeddings=embeddings,
    logit=logit,
    last_bias=lambda model: model.classifier.bias,
)
