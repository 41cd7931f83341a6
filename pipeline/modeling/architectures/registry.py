"""The architectures by Hugging Face's `model_type`. The names are also in model_files/model_config.py."""

from typing import Any

from pipeline.modeling.architectures.architecture import Architecture
from pipeline.modeling.architectures.bert import BERT
from pipeline.modeling.architectures.distilbert import DISTILBERT
from pipeline.modeling.architectures.electra import ELECTRA
from pipeline.modeling.architectures.general import GENERAL
from pipeline.modeling.architectures.modernbert import MODERNBERT
from pipeline.modeling.architectures.mpnet import MPNET
from pipeline.modeling.architectures.roberta import ROBERTA

ARCHITECTURES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "electra": ELECTRA,
    "distilbert": DISTILBERT,
    "mpnet": MPNET,
    "modernbert": MODERNBERT,
}


def architecture(model: Any) -> Architecture:
    """Returns the architecture of a Hugging Face model, or of a `FrozenEncoder`."""
    return of_config(model.config)


def of_config(config: Any) -> Architecture:
    """Returns the architecture of the model of a configuration; `GENERAL` for a type without its own."""
    return ARCHITECTURES.get(config.model_type, GENERAL)
