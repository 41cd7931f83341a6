"""One update of pre-training: the losses' gradients, chunk by chunk, with or without a gradient cache.

Shapes: S sequences of the global batch, B of a chunk, D dimensions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline import distributed
from pipeline.batches import Batch, Chunk
from pipeline.checkpoint import save_checkpoint
from pipeline.losses import contrastive, mlm
from pipeline.model import States, backbone, condense, predict, rows
from pipeline.training import autocast, seed_dropout, summary
from pipeline.work import Metrics


class Objective(NamedTuple):
    """What a chunk is trained on, beside the contrastive loss."""

    names: tuple[str, ...]
    losses: Callable[[nn.ModuleDict, States, Chunk], tuple[Tensor, ...]]
    """One loss a name, from (module, backbone states, chunk), summed over the chunk's masked tokens."""


def condenser_losses(module: nn.ModuleDict, states: States, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Head MLM and late MLM, through one product with the vocabulary (Condenser, section 3.2)."""
    head_BLD = condense(module["head"], states, chunk.attention_BL)
    states_MD = torch.cat([rows(head_BLD, chunk.masked_M), rows(states.late_BLD, chunk.masked_M)])
    head_MV, late_MV = predict(module["lm"], states_MD).chunk(2)
    return mlm(head_MV, chunk.label_M), mlm(late_MV, chunk.label_M)


CONDENSER = Objective(("head_mlm", "late_mlm"), condenser_losses)
NOTHING = Objective((), lambda module, states, chunk: ())
"""For the contrastive loss alone (coCondenser, table 4)."""


def update(
    module: nn.ModuleDict,
    batch: Batch,
    objective: Objective,
    *,
    skip_from: int,
    pairs: bool,
    cached: bool,
    key: tuple[int, int],
    device: str,
) -> dict[str, Tensor | float]:
    """Forward and backward of one update on this rank's chunks.

    `pairs`: with the contrastive loss; sequences 2i and 2i+1 of the batch are a pair. It needs every CLS vector before
    any gradient, so either all chunks' graphs are kept, or (`cached`, coCondenser, section 3.3) a first pass without
    graph computes the vectors and each chunk runs again with dropout replayed from (*key, chunk number).
    Gradients and returned losses are this rank's part: their sums over the ranks are the whole.
    """

    lm: Any = module["lm"]
    totals: dict[str, Tensor | float] = dict.fromkeys(objective.names, 0.0)

    def vectors(chunk: Chunk) -> tuple[States, Tensor]:
        seed_dropout(*key, chunk.number)
        states = backbone(lm, chunk.ids_BL, chunk.attention_BL, skip_from)
        return states, states.late_BLD[:, 0].float()

    def forward(chunk: Chunk) -> tuple[list[Tensor], Tensor]:
        with autocast(device):
            states, cls_BD = vectors(chunk)
            return [x / max(batch.masked, 1) for x in objective.losses(module, states, chunk)], cls_BD

    def first_pass(chunk: Chunk) -> Tensor:
        with torch.no_grad(), autocast(device):
            return vectors(chunk)[1]

    kept = [forward(chunk) for chunk in batch.chunks] if pairs and not cached else []
    if pairs:
        cls = [cls_BD.detach() for _, cls_BD in kept] if kept else [first_pass(chunk) for chunk in batch.chunks]
        loss, gradient_SD = contrastive_gradient(batch, cls, lm.config.hidden_size, device)
        totals["contrastive"] = loss if distributed.rank() == 0 else 0.0
    for i, chunk in enumerate(batch.chunks):
        parts, cls_BD = kept[i] if kept else forward(chunk)
        surrogate = sum(parts, torch.zeros((), device=device))
        if pairs:  # its gradient is the contrastive loss's, by the chain rule
            surrogate = surrogate + (gradient_SD[chunk.row_B] * cls_BD).sum()
        surrogate.backward()
        for name, part in zip(objective.names, parts, strict=True):
            totals[name] = totals[name] + part.detach()
    return totals | {"tokens": float(batch.tokens)}


def contrastive_gradient(batch: Batch, cls: list[Tensor], dimensions: int, device: str) -> tuple[Tensor, Tensor]:
    """The contrastive loss over all ranks' CLS vectors, and its gradient for each of them [S, D]."""
    cls_SD = torch.zeros(batch.sequences, dimensions, device=device)
    for chunk, cls_BD in zip(batch.chunks, cls, strict=True):
        cls_SD[chunk.row_B] = cls_BD
    # Each rank fills in its own rows, so the sum is the whole.
    cls_SD = distributed.add(cls_SD).requires_grad_()
    loss = contrastive(cls_SD)
    (gradient_SD,) = torch.autograd.grad(loss, cls_SD)
    return loss.detach(), gradient_SD


def finish(module: nn.ModuleDict, out: Path, tokenizer: Path, history: list[dict[str, float]]) -> Metrics:
    """Rank 0 writes the checkpoint `out`, with the head if there is one. Returns the training's metrics."""
    head = {name: x.cpu() for name, x in module["head"].state_dict().items()}
    lm: Any = module["lm"]
    if distributed.rank() == 0:
        save_checkpoint(out, lm.cpu(), tokenizer, head or None, history)
    return summary(history, ("head_mlm", "late_mlm", "contrastive"))
