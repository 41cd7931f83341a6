"""RoBERTa (Liu et al. 2019), and models of its structure: XLM-RoBERTa, CamemBERT."""

from typing import Any

from torch.nn import functional as F

from pipeline.modeling.architectures.architecture import Architecture, Prediction, bert_embeddings
from pipeline.modeling.layers import Embeddings
from pipeline.tokenization.token_files import Specials


def prediction(lm: Any) -> Prediction:
    return Prediction(lm.lm_head.dense, F.gelu, lm.lm_head.layer_norm)


def embeddings(model: Any) -> Embeddings:
    return bert_embeddings(model)._replace(first_position=model.config.pad_token_id + 1)


def fields(shape: dict[str, Any], specials: Specials) -> dict[str, Any]:
    ids = {"bos_token_id": specials.cls, "eos_token_id": specials.sep}
    # Positions start after the padding id; there is one token type (Liu et al. 2019).
    positions = shape["max_position_embeddings"] + specials.pad + 1
    return {"max_position_embeddings": positions, "type_vocab_size": 1, "layer_norm_eps": 1e-5, **ids}


ROBERTA = Architecture(prediction, embeddings=embeddings, fields=fields)
