"""Masked language modelling (BERT, section 3.1), without next sentence prediction: the baseline."""

from typing import Any

from torch import Tensor, nn

from pipeline.modeling.packing import Batch, Chunk
from pipeline.modeling.transformer import LanguageModel, Seed, States, prediction_losses
from pipeline.pretrain.objectives import Objective
from pipeline.training import flops


def losses(
    lm: LanguageModel, head: nn.ModuleList, states: States, chunk: Chunk, batch: Batch, seed: Seed
) -> tuple[Tensor]:
    """Returns the cross-entropy at the masked tokens."""
    assert states.late_MD is not None
    return (prediction_losses(lm, states.late_MD, chunk.label_M).sum() / max(batch.masked, 1),)


def operations(config: Any, head_layers: int, chunk: Chunk) -> float:
    """Returns the operations of the prediction head, forward."""
    return flops.predictions(config, chunk.masked.size)


OBJECTIVE = Objective(("mlm",), losses, operations)
