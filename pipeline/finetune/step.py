"""One update of a bi-encoder: every question is compared with the passages of the full batch, on all ranks.

Shapes: Q questions, N passages of each, P = Q * N, R = Q + P rows of the batch (questions first), E dimensions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import vectors
from pipeline.modeling.inputs import Ids, Packed, pack_rows
from pipeline.modeling.packing import share, to_device
from pipeline.modeling.transformer import pooled_rows
from pipeline.runtime import ranks
from pipeline.runtime.ranks import world
from pipeline.runtime.work import Machine
from pipeline.training import flops, loop
from pipeline.training.gradients import add_gradients
from pipeline.training.loss_scale import scaled
from pipeline.training.memory import keeps

Loss = Callable[[Tensor], Tensor]


class Piece(NamedTuple):
    """Rows that are encoded together."""

    side: int
    """0: by the question encoder, 1: by the passage encoder."""
    number: int
    """Over all pieces of all ranks; seeds dropout."""
    row_B: np.ndarray
    """Numbers of the rows among the batch's R rows, sorted by length."""


class PreparedBatch(NamedTuple):
    """What an update computes: rows, packed on the device, and their loss."""

    rows: int
    """R, of all ranks."""
    pieces: list[Piece]
    """This rank's."""
    packed: dict[int, Packed]
    """By the piece's number."""
    longest: int
    """Tokens of the longest row, of all ranks."""
    loss: Loss
    """Of the vectors [R, E] of all rows."""

    @property
    def tokens(self) -> int:
        """Of this rank."""
        return sum(packed.every.size for packed in self.packed.values())


def prepare_batch(
    length_R: np.ndarray,
    questions: int,
    tied: bool,
    machine: Machine,
    pack: Callable[[np.ndarray], Packed],
    loss: Loss,
) -> PreparedBatch:
    """Cuts rows of `length_R` tokens, the `questions` first, and packs this rank's pieces by pack(row_B)."""
    pieces = rank_pieces(length_R, questions, tied, machine.gradient_cache_chunk, machine.budget)
    packed = {piece.number: pack(piece.row_B) for piece in pieces}
    return PreparedBatch(len(length_R), pieces, packed, int(length_R.max()), loss)


def prepare_rows(towers: Towers, ids: Ids, questions: int, loss: Loss, machine: Machine, device: str) -> PreparedBatch:
    """As `prepare_batch`, for the rows `ids` of a bi-encoder."""
    length_R = np.array([len(row) for row in ids])
    pack = partial(pack_rows, ids, device=device, bucket=True)
    return prepare_batch(length_R, questions, towers.tied, machine, pack, loss)


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
    module: nn.Module,
    encode: Callable[[Piece], Tensor],
    own_pieces: Sequence[Piece],
    shape: tuple[int, int],
    loss: Loss,
    keep: bool,
    device: str,
    scorer: nn.Module | None = None,
) -> Tensor:
    """Computes this rank's part of the gradient of loss(vectors [R, E]); the parts sum to it. Returns the full loss.

    It is added to the gradients of `module`. `encode` returns the vectors of a piece, the same at every call. `keep`:
    keeps the graphs of all pieces. Otherwise pieces are first encoded without a graph; when the gradient of the loss
    with respect to each vector is known, they are encoded again one by one (gradient cache: Gao et al. 2021, Scaling
    Deep Contrastive Learning Batch Size under Memory Limited Setup). `shape`: (R, E). `scorer`: module with the loss's
    own weights.
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
        add_gradients(module, vectors, gradient_RE[row_B], last=piece is own_pieces[-1])
    return value.detach()


def update(towers: Towers, batch: PreparedBatch, machine: Machine, key: tuple[int, int], device: str) -> dict[str, Any]:
    """Forward and backward of one update of a bi-encoder."""
    one = towers.encoders[0]

    def encode(piece: Piece) -> Tensor:
        return vectors(towers.encoders[piece.side], batch.packed[piece.number])

    return update_module(
        towers.trained,
        encode,
        batch,
        config=one.model.config,
        pooling=one.pooling,
        dimension=one.dimension,
        machine=machine,
        key=key,
        device=device,
        scorer=towers.scorer,
    )


def update_module(
    module: nn.Module,
    encode: Callable[[Piece], Tensor],
    batch: PreparedBatch,
    *,
    config: Any,
    pooling: str,
    dimension: int,
    machine: Machine,
    key: tuple[int, int],
    device: str,
    scorer: nn.Module | None = None,
) -> dict[str, Any]:
    """Forward and backward of one update of `module` on this rank's pieces.

    encode(piece) returns vectors of `dimension` E. `config`, `pooling`: of the backbone, for its operations. `key` and
    the piece's number key dropout: at the same pieces neither the number of ranks nor the second pass of the gradient
    cache changes it.
    """
    keep = keeps(config, len(batch.pieces), batch.tokens, batch.longest, machine.gradient_cache)
    operations = 0.0

    def seeded(piece: Piece) -> Tensor:
        nonlocal operations
        loop.seed_dropout(*key, piece.number)
        if torch.is_grad_enabled():
            packed = batch.packed[piece.number]
            wanted = pooled_rows(packed, pooling)
            operations += flops.BACKWARD * flops.encoder(config, wanted, packed.every)
        return encode(piece)

    value = backward(module, seeded, batch.pieces, (batch.rows, dimension), batch.loss, keep, device, scorer)
    return {"loss": value / world(), "tokens": float(batch.tokens), "operations": operations}
