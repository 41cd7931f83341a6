"""BERT (Devlin et al. 2019)."""

from typing import Any

from torch import Tensor

from pipeline.modeling.architectures.architecture import Architecture, Prediction


def prediction(lm: Any) -> Prediction:
    transform = lm.cls.predictions.transform
    return Prediction(transform.dense, transform.transform_act_fn, transform.LayerNorm)


def logit(model: Any, cls_B1D: Tensor) -> Tensor:
    logit_B1: Tensor = model.classifier(model.dropout(model.bert.pooler(cls_B1D)))
    return logit_B1


BERT = Architecture(prediction, logit=logit, last_bias=lambda model: model.classifier.bias)
