"""RoBERTa (Liu et al. 2019), and models of its structure: XLM-RoBERTa, CamemBERT."""

from typing import Any

from torch.nn import functional as F

from pipeline.modeling.architectures.architecture import Architecture, Prediction, bert_embeddings
from pipeline.modeling.layers import Embeddings


def prediction(lm: Any) -> Prediction:
    return Prediction(lm.lm_head.dense, F.gelu, lm.lm_head.layer_norm)


def embeddings(model: Any) -> Embeddings:
    return bert_embeddings(model)._replace(first_position=model.config.pad_token_id + 1)


ROBERTA = Architecture(prediction, embeddings=embeddings)
