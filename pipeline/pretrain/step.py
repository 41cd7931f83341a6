"""One update of pre-training: the losses' gradients, chunk by chunk, with or without a gradient cache.

Shapes: S sequences of the global batch, B of a chunk, D dimensions, E of the compared vectors.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.cross_entropy import contrastive
from pipeline.modeling.model_files.sentence_transformers_files import read_vector
from pipeline.modeling.packing import Batch, Chunk
from pipeline.modeling.transformer import States, backbone
from pipeline.pretrain.objectives import Objective
from pipeline.runtime import ranks
from pipeline.runtime.precision import autocast
from pipeline.runtime.work import Metrics
from pipeline.training import flops
from pipeline.training.gradients import add_gradients
from pipeline.training.loop import history_metrics, seed_dropout
from pipeline.training.loss_scale import scaled
from pipeline.training.memory import keeps_graphs

SCORED_AT_ONCE = 512
"""Rows whose scores with all others are in memory at once."""


class Contrast(NamedTuple):
    """A loss between the vectors of all sequences of the batch; sequences 2i and 2i+1 are a pair."""

    name: str
    loss: Callable[[Tensor, slice], Tensor]
    """loss(vectors [S, E], rows): these rows' share of the loss; the first row is even."""
    projection: nn.Linear | None
    """Maps CLS vectors to the compared vectors; None: compares the CLS vectors."""

    def vectors(self, cls_BD: Tensor) -> Tensor:
        """Returns the compared vectors, [B, E], float32."""
        return cls_BD if self.projection is None else self.projection(cls_BD)


SPANS = Contrast("contrastive", contrastive, None)
"""The loss of coCondenser (equation 4)."""


def update(
    module: nn.ModuleDict,
    batch: Batch,
    objective: Objective,
    *,
    skip_from: int,
    pairs: bool,
    contrast: Contrast = SPANS,
    cache: str,
    key: tuple[int, int],
    device: str,
) -> dict[str, Tensor | float]:
    """Runs forward and backward of one update on this rank's chunks.

    `pairs`: with the loss `contrast`; sequences 2i and 2i+1 of the batch are a pair. It needs every CLS vector before
    any gradient. So either the backbone's graph of every chunk is kept, or (gradient cache: coCondenser, section 3.3) a
    first pass without graph computes only the CLS vectors and each chunk runs again; `cache` as in `Machine`. Dropout
    is a function of (*key, chunk number, layer), so that both passes compute the same network.
    Gradients and returned losses are this rank's part: summed over the ranks they are the total.
    """
    lm: Any = module["lm"]
    head: Any = module["head"]
    totals: dict[str, Tensor | float] = dict.fromkeys(objective.names, 0.0)

    def forward(chunk: Chunk, masked: bool) -> States:
        with autocast(device):
            return backbone(lm, chunk, skip_from, partial(seed_dropout, *key, chunk.number), masked)

    kept: deque[States] = deque()
    if pairs:
        if keeps_graphs(lm, batch, cache):
            kept = deque(forward(chunk, objective.reads_masked) for chunk in batch.chunks)
            vectors = [contrast.vectors(states.cls_BD).detach() for states in kept]
        else:
            with torch.no_grad():
                vectors = [contrast.vectors(forward(chunk, masked=False).cls_BD) for chunk in batch.chunks]
        loss, gradient_SE = contrastive_gradient(batch, vectors, contrast, lm.config.hidden_size, device)
        totals[contrast.name] = loss if ranks.rank() == 0 else 0.0
    for chunk in batch.chunks:
        states = kept.popleft() if kept else forward(chunk, objective.reads_masked)
        with autocast(device):
            seed = partial(seed_dropout, *key, chunk.number)
            parts = objective.losses(lm, head, states, chunk, batch, seed)
        surrogate = sum(parts, torch.zeros((), device=device))
        if pairs:  # the gradient of this term is that of `contrast`, by the chain rule
            surrogate = surrogate + (gradient_SE[chunk.row_B] * contrast.vectors(states.cls_BD)).sum()
        add_gradients(module, scaled(surrogate), last=chunk is batch.chunks[-1])
        for name, part in zip(objective.names, parts, strict=True):
            totals[name] = totals[name] + part.detach()
    operations = sum(
        flops.backbone(lm.config, chunk, objective.reads_masked) + objective.operations(lm.config, len(head), chunk)
        for chunk in batch.chunks
    )
    tokens = sum(chunk.every.size for chunk in batch.chunks)
    padding = sum(chunk.masked.padding for chunk in batch.chunks) if objective.reads_masked else 0
    return totals | {"tokens": tokens, "padding": padding, "operations": flops.BACKWARD * operations}


def contrastive_gradient(
    batch: Batch, vectors: list[Tensor], contrast: Contrast, hidden_size: int, device: str
) -> tuple[Tensor, Tensor]:
    """Returns the loss `contrast` over all ranks' vectors and its gradient [S, E]. `vectors`: of this rank's chunks."""
    dimensions = contrast.projection.out_features if contrast.projection is not None else hidden_size
    vectors_SE = torch.zeros(batch.sequences, dimensions, device=device)
    for chunk, vectors_BE in zip(batch.chunks, vectors, strict=True):
        vectors_SE[chunk.row_B] = vectors_BE
    # Each rank fills its own rows, so the sum has all rows.
    vectors_SE = ranks.sum_over_ranks(vectors_SE).requires_grad_()
    gradient_SE, total = torch.zeros_like(vectors_SE), torch.zeros((), device=device)
    for first in range(0, batch.sequences, SCORED_AT_ONCE):  # all scores together grow with the square of the batch
        loss = contrast.loss(vectors_SE, slice(first, first + SCORED_AT_ONCE))
        gradient_SE += torch.autograd.grad(loss, vectors_SE)[0]
        total += loss.detach()
    return total, gradient_SE


def finish(
    module: nn.ModuleDict, objective: str, out: Path, tokenizer: Path, history: list[dict[str, float]]
) -> Metrics:
    """Writes the checkpoint `out` on rank 0, with the head if there is one. Returns the training's metrics."""
    head = {name: x.cpu() for name, x in module["head"].state_dict().items()}
    lm: Any = module["lm"]
    if ranks.rank() == 0:
        save_checkpoint(out, lm.cpu(), tokenizer, head or None, history, objective, read_vector(tokenizer))
    return history_metrics(history)
