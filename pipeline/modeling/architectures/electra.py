"""ELECTRA (Clark et al. 2020): BERT, whose embeddings may have fewer dimensions than its layers."""

from typing import Any

from torch import nn

from pipeline.modeling.architectures.architecture import Architecture, Prediction


def prediction(lm: Any) -> Prediction:
    head = lm.generator_predictions
    return Prediction(head.dense, head.activation, head.LayerNorm)


def embedding_map(model: Any) -> nn.Linear | None:
    return getattr(model.base_model, "embeddings_project", None)


ELECTRA = Architecture(
    prediction,
    embedding_map=embedding_map,
    fields=lambda shape, specials: {"embedding_size": shape["hidden_size"]},
)
