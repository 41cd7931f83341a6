"""The architectures by Hugging Face's `model_type`. The names are also in pipeline/modeling/model_config.py."""

from typing import Any

from pipeline.modeling.architectures.bert import Bert
from pipeline.modeling.architectures.distilbert import DistilBert
from pipeline.modeling.architectures.electra import Electra
from pipeline.modeling.architectures.mpnet import MPNet
from pipeline.modeling.architectures.post_norm import PostNorm
from pipeline.modeling.architectures.roberta import Roberta

ARCHITECTURES: dict[str, PostNorm] = {
    "bert": Bert(),
    "roberta": Roberta(),
    "xlm-roberta": Roberta(),
    "camembert": Roberta(),
    "electra": Electra(),
    "distilbert": DistilBert(),
    "mpnet": MPNet(),
}


def architecture(model: Any) -> PostNorm:
    """Returns the architecture of a Hugging Face model, or of a `FrozenEncoder`."""
    return ARCHITECTURES[model.config.model_type]
