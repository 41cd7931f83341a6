"""One update of pre-training: the losses' gradients, chunk by chunk, with or without a gradient cache.

Shapes: S sequences of the global batch, B of a chunk, D dimensions.
"""

from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline import distributed, flops
from pipeline.batches import Batch, Chunk
from pipeline.checkpoint import read_vector, save_checkpoint
from pipeline.losses import contrastive
from pipeline.memory import keeps_graphs
from pipeline.model import States, backbone
from pipeline.objectives import Objective
from pipeline.packing import has_kernel
from pipeline.training import autocast, seed_dropout, summary
from pipeline.work import Metrics

SCORED_AT_ONCE = 512
"""Spans whose scores with all others are held at once."""


def update(
    module: nn.ModuleDict,
    batch: Batch,
    objective: Objective,
    *,
    skip_from: int,
    pairs: bool,
    cache: str,
    key: tuple[int, int],
    device: str,
) -> dict[str, Tensor | float]:
    """Forward and backward of one update on this rank's chunks.

    `pairs`: with the contrastive loss; sequences 2i and 2i+1 of the batch are a pair. It needs every CLS vector before
    any gradient, so either the backbone's graph of every chunk is kept, or (gradient cache: coCondenser, section 3.3) a
    first pass without graph computes the CLS vectors alone and each chunk runs again; `cache` as in `Machine`. Dropout
    is a function of (*key, chunk number, layer), so that both passes see the same network.
    Gradients and returned losses are this rank's part: their sums over the ranks are the whole.
    """
    lm: Any = module["lm"]
    head: Any = module["head"]
    totals: dict[str, Tensor | float] = dict.fromkeys(objective.names, 0.0)

    def forward(chunk: Chunk, masked: bool) -> States:
        with autocast(device):
            return backbone(lm, chunk, skip_from, partial(seed_dropout, *key, chunk.number), masked)

    kept: deque[States] = deque()
    if pairs:
        if keeps_graphs(lm, batch, cache, device):
            kept = deque(forward(chunk, objective.reads_masked) for chunk in batch.chunks)
            cls = [states.cls_BD.detach() for states in kept]
        else:
            with torch.no_grad():
                cls = [forward(chunk, masked=False).cls_BD for chunk in batch.chunks]
        loss, gradient_SD = contrastive_gradient(batch, cls, lm.config.hidden_size, device)
        totals["contrastive"] = loss if distributed.rank() == 0 else 0.0
    for chunk in batch.chunks:
        states = kept.popleft() if kept else forward(chunk, objective.reads_masked)
        with autocast(device):
            seed = partial(seed_dropout, *key, chunk.number)
            parts = objective.losses(lm, head, states, chunk, batch, seed)
        surrogate = sum(parts, torch.zeros((), device=device))
        if pairs:  # its gradient is the contrastive loss's, by the chain rule
            surrogate = surrogate + (gradient_SD[chunk.row_B] * states.cls_BD).sum()
        surrogate.backward()
        for name, part in zip(objective.names, parts, strict=True):
            totals[name] = totals[name] + part.detach()
    operations = sum(
        flops.backbone(lm.config, chunk, objective.reads_masked) + objective.operations(lm.config, len(head), chunk)
        for chunk in batch.chunks
    )
    tokens = sum(chunk.every.size for chunk in batch.chunks)
    pads = objective.reads_masked and not has_kernel(device)
    padding = sum(chunk.masked.padding for chunk in batch.chunks) if pads else 0
    return totals | {"tokens": tokens, "padding": padding, "operations": flops.BACKWARD * operations}


def contrastive_gradient(batch: Batch, cls: list[Tensor], dimensions: int, device: str) -> tuple[Tensor, Tensor]:
    """The contrastive loss over all ranks' CLS vectors, and its gradient for each of them [S, D]."""
    cls_SD = torch.zeros(batch.sequences, dimensions, device=device)
    for chunk, cls_BD in zip(batch.chunks, cls, strict=True):
        cls_SD[chunk.row_B] = cls_BD
    # Each rank fills in its own rows, so the sum is the whole.
    cls_SD = distributed.add(cls_SD).requires_grad_()
    gradient_SD, total = torch.zeros_like(cls_SD), torch.zeros((), device=device)
    for first in range(0, batch.sequences, SCORED_AT_ONCE):  # all at once would take memory by the square of the batch
        loss = contrastive(cls_SD, slice(first, first + SCORED_AT_ONCE))
        gradient_SD += torch.autograd.grad(loss, cls_SD)[0]
        total += loss.detach()
    return total, gradient_SD


def finish(
    module: nn.ModuleDict, objective: str, out: Path, tokenizer: Path, history: list[dict[str, float]]
) -> Metrics:
    """Rank 0 writes the checkpoint `out`, with the head if there is one. Returns the training's metrics."""
    head = {name: x.cpu() for name, x in module["head"].state_dict().items()}
    lm: Any = module["lm"]
    if distributed.rank() == 0:
        save_checkpoint(out, lm.cpu(), tokenizer, head or None, history, objective, read_vector(tokenizer))
    return summary(history)
