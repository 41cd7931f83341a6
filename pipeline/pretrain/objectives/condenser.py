"""Condenser: masked language modelling through a head that reads the text's late CLS vector with early token states,
and from the late states themselves (Condenser, section 3.2).

Shapes: B sequences of T tokens in a chunk, D dimensions, M masked tokens.
"""

from typing import Any

import torch
from torch import Tensor, nn

from pipeline.modeling.packed_layers import apply, attention_layouts, final_norm
from pipeline.modeling.packing import Batch, Chunk
from pipeline.modeling.transformer import HEAD, LanguageModel, Seed, States, prediction_losses
from pipeline.pretrain.objectives import Objective
from pipeline.training import flops


def losses(
    lm: LanguageModel, head: nn.ModuleList, states: States, chunk: Chunk, batch: Batch, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Returns the head MLM and the late MLM loss, with one product with the vocabulary."""
    assert states.late_MD is not None
    both_ND = torch.cat([condense(lm, head, states, chunk, seed), states.late_MD])
    head_M, late_M = prediction_losses(lm, both_ND, chunk.label_M.repeat(2)).chunk(2)
    return head_M.sum() / max(batch.masked, 1), late_M.sum() / max(batch.masked, 1)


def condense(lm: LanguageModel, head: nn.ModuleList, states: States, chunk: Chunk, seed: Seed) -> Tensor:
    """Returns the head's output at the masked tokens, [M, D]: its layers over [late CLS ; early tokens]."""
    assert chunk.cls.at_R is not None
    assert states.early_TD is not None
    hidden_TD = states.early_TD.index_copy(0, chunk.cls.at_R, states.cls_BD.to(states.early_TD.dtype))
    *layers, last = head
    every = attention_layouts(lm, layers, chunk.every, chunk)
    for number, layer in enumerate(layers):
        seed(HEAD + number, 0)
        hidden_TD = apply(lm, layer, hidden_TD, every)
    seed(HEAD + len(layers), 0)
    return final_norm(lm, apply(lm, last, hidden_TD, attention_layouts(lm, [last], chunk.masked, chunk)))


def operations(config: Any, head_layers: int, chunk: Chunk) -> float:
    """Returns the operations of the head, its last layer only at masked tokens, and the prediction head; forward."""
    head = (head_layers - 1) * flops.layer(config, chunk.every, chunk.every)
    head += flops.layer(config, chunk.masked, chunk.every)
    return head + flops.predictions(config, 2 * chunk.masked.size)


OBJECTIVE = Objective(("head_mlm", "late_mlm"), losses, operations)
