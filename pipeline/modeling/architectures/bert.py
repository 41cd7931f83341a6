"""BERT (Devlin et al. 2019)."""

from typing import Any, ClassVar

from torch import Tensor, nn

from pipeline.modeling.architectures.post_norm import PostNorm, Prediction


class Bert(PostNorm):
    has_token_types: ClassVar[bool] = True

    def prediction(self, lm: Any) -> Prediction:
        transform = lm.cls.predictions.transform
        return Prediction(transform.dense, transform.transform_act_fn, transform.LayerNorm)

    def logit(self, model: Any, cls_B1D: Tensor) -> Tensor:
        logit_B1: Tensor = model.classifier(model.dropout(model.bert.pooler(cls_B1D)))
        return logit_B1

    def last_bias(self, model: Any) -> nn.Parameter:
        bias: nn.Parameter = model.classifier.bias
        return bias
