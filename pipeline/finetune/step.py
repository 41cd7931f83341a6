"""One update of a bi-encoder: every question is compared with the passages of the full batch, on all ranks.

Shapes: Q questions, N passages of each, P = Q * N, R = Q + P rows of the batch (questions first), E dimensions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import vectors
from pipeline.modeling.inputs import Ids, pack_rows
from pipeline.modeling.packing import share, to_device
from pipeline.runtime import ranks
from pipeline.runtime.ranks import world
from pipeline.runtime.work import Machine
from pipeline.training import flops, loop
from pipeline.training.loss_scale import scaled
from pipeline.training.memory import keeps


class Piece(NamedTuple):
    """Rows that are encoded together."""

    side: int
    """0: by the question encoder, 1: by the passage encoder."""
    number: int
    """Over all pieces of all ranks; seeds dropout."""
    row_B: np.ndarray
    """Numbers of the rows among the batch's R rows, sorted by length."""


def rank_pieces(length_R: np.ndarray, questions: int, tied: bool, chunk: int | None, budget: int) -> list[Piece]:
    """Returns this rank's pieces of `chunk` rows (None: of about `budget` tokens). A tied encoder mixes both sides."""
    if tied:
        return [Piece(0, number, row_B) for number, row_B in share(length_R, chunk, budget)]
    sides = [(0, 0, length_R[:questions]), (1, questions, length_R[questions:])]
    # Even and odd numbers, so that no two pieces have the same number.
    return [
        Piece(side, 2 * number + side, first + row_B)
        for side, first, length in sides
        for number, row_B in share(length, chunk, budget)
    ]


def backward(
    encode: Callable[[Piece], Tensor],
    own_pieces: Sequence[Piece],
    shape: tuple[int, int],
    loss: Callable[[Tensor], Tensor],
    keep: bool,
    device: str,
    scorer: nn.Module | None = None,
) -> Tensor:
    """Computes this rank's part of the gradient of loss(vectors [R, E]); the parts sum to it. Returns the full loss.

    `encode` returns the vectors of a piece, the same at every call. `keep`: keeps the graphs of all pieces. Otherwise
    pieces are first encoded without a graph; when the gradient of the loss with respect to each vector is known, they
    are encoded again one by one (gradient cache: Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under
    Memory Limited Setup). `shape`: (R, E). `scorer`: module with the loss's own weights.
    """
    with torch.set_grad_enabled(keep):
        parts = [encode(piece) for piece in own_pieces]
    vectors_RE = torch.zeros(shape, device=device)
    rows = [to_device(piece.row_B, device) for piece in own_pieces]
    for row_B, part in zip(rows, parts, strict=True):
        vectors_RE[row_B] = part.detach()
    # Each rank fills its own rows, so the sum has all rows. Every rank computes the full loss, because its vectors
    # are also compared with the other ranks' questions.
    vectors_RE = ranks.sum_over_ranks(vectors_RE).requires_grad_()
    value = loss(vectors_RE)
    weights = list(scorer.parameters()) if scorer else []
    gradient_RE, *by_weight = torch.autograd.grad(scaled(value), [vectors_RE, *weights])
    for weight, gradient in zip(weights, by_weight, strict=True):
        if ranks.rank() == 0:
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
    for piece, row_B, part in zip(own_pieces, rows, parts, strict=True):
        vectors = part if keep else encode(piece)
        vectors.backward(gradient_RE[row_B])
    return value.detach()


def update(
    towers: Towers,
    ids: Ids,
    questions: int,
    loss: Callable[[Tensor], Tensor],
    machine: Machine,
    key: tuple[int, int],
    device: str,
) -> dict[str, Any]:
    """Forward and backward of one update on this rank's pieces of the rows `ids`, the `questions` first.

    `loss`: of the vectors of all rows. `key` and the piece's number key dropout: at the same pieces neither the number
    of ranks nor the second pass of the gradient cache changes it.
    """
    shape, pooling = towers.encoders[0].model.config, towers.encoders[0].pooling
    length_R = np.array([len(row) for row in ids])
    given = rank_pieces(length_R, questions, towers.tied, machine.gradient_cache_chunk, machine.budget)
    tokens = sum(int(length_R[piece.row_B].sum()) for piece in given)
    keep = keeps(shape, len(given), tokens, int(length_R.max()), machine.gradient_cache)
    operations = 0.0

    def encode(piece: Piece) -> Tensor:
        nonlocal operations
        loop.seed_dropout(*key, piece.number)
        packed = pack_rows(ids, piece.row_B, device)
        if torch.is_grad_enabled():
            wanted = packed.first if pooling == "cls" else packed.every
            operations += flops.BACKWARD * flops.encoder(shape, wanted, packed.every)
        return vectors(towers.encoders[piece.side], packed)

    value = backward(encode, given, (len(ids), towers.encoders[0].dimension), loss, keep, device, towers.scorer)
    return {"loss": value / world(), "tokens": float(tokens), "operations": operations}
