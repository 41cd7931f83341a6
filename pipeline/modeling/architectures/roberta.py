"""RoBERTa (Liu et al. 2019), and models of its structure: XLM-RoBERTa, CamemBERT."""

from typing import Any

from torch.nn import functional as F

from pipeline.modeling.architectures.post_norm import PostNorm, Prediction
from pipeline.modeling.layers import Embeddings


class Roberta(PostNorm):
    def embeddings(self, model: Any) -> Embeddings:
        return super().embeddings(model)._replace(first_position=model.config.pad_token_id + 1)

    def prediction(self, lm: Any) -> Prediction:
        return Prediction(lm.lm_head.dense, F.gelu, lm.lm_head.layer_norm)
