"""Any other encoder of transformers. Its texts are padded: pipeline/modeling/padded.py computes them."""

from typing import Any

from torch import nn

from pipeline.modeling.architectures.architecture import Architecture


def last_bias(model: Any) -> nn.Parameter:
    *_, last = (module for module in model.modules() if isinstance(module, nn.Linear) and module.out_features == 1)
    bias: nn.Parameter = last.bias
    return bias


GENERAL = Architecture(None, last_bias=last_bias)
