"""From rows of a flat text to the tensors of one update.

Shapes: S sequences of the global batch, T tokens of them together, B sequences of a chunk, L tokens, M masked tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline import distributed
from pipeline.errors import InputError
from pipeline.masking import mask
from pipeline.ragged import Ragged, Specials


class Chunk(NamedTuple):
    """Sequences of like length, padded to the longest."""

    number: int
    """Over all chunks of all ranks; keys dropout."""
    row_B: Tensor
    """The sequences' rows in the global batch."""
    ids_BL: Tensor
    attention_BL: Tensor | None
    """Which tokens are real; None where all are."""
    masked_M: Tensor
    """Flat positions b * L + l of the masked tokens."""
    label_M: Tensor
    """Their true ids."""


class Batch(NamedTuple):
    chunks: list[Chunk]
    """This rank's share."""
    sequences: int
    """Of all ranks."""
    masked: int
    """Masked tokens of all ranks."""
    tokens: int
    """Tokens of this rank's share, special tokens included, padding not."""


def sampler(size_N: np.ndarray, budget: int, seed: int, name: str) -> tuple[int, Callable[[int], np.ndarray]]:
    """Batches of about `budget` together of items whose sizes are `size_N` (all 1: exactly `budget` items).

    Each epoch is a new permutation cut into batches; what is left at its end waits for the next, so that no item
    is twice in a batch. Returns the batches of an epoch, and rows(step), a pure function of (seed, step).
    Raises InputError, naming the field `name`, where all items are fewer than one batch.
    """
    batches = int(size_N.sum()) // budget
    if batches == 0:
        raise InputError(
            f"{name}: {budget:,} asked for, but the whole collection holds {int(size_N.sum()):,}: lower it"
        )
    kept: tuple[int, np.ndarray, np.ndarray] | None = None

    def rows(step: int) -> np.ndarray:
        nonlocal kept
        epoch, number = divmod(step, batches)
        if kept is None or kept[0] != epoch:
            order_N = np.random.default_rng([seed, epoch]).permutation(len(size_N))
            before_N = np.cumsum(size_N[order_N]) - size_N[order_N]
            kept = epoch, order_N, np.searchsorted(before_N, budget * np.arange(batches + 1))
        _, order_N, edges = kept
        return order_N[edges[number] : edges[number + 1]]

    return batches, rows


def updates(steps: int | None, epochs: float | None, tokens: int | None, batches: int, mean_tokens: float) -> int:
    """Updates of a training: as given, or by epochs of `batches`, or by tokens with `mean_tokens` in a batch."""
    if steps is not None:
        return steps
    return max(1, round(epochs * batches if epochs is not None else (tokens or 0) / mean_tokens))


def batch(
    texts: Ragged,
    begin_S: np.ndarray,
    length_S: np.ndarray,
    row_S: np.ndarray,
    fraction: float,
    seed: int,
    step: int,
    specials: Specials,
    chunk: int,
    device: str,
) -> Batch:
    """Masks the sequences texts.tokens[begin : begin + length] and packs this rank's share into chunks.

    `row_S`: numbers that key the masks. `chunk`: sequences of a chunk, or 0 for one chunk a rank.
    All ranks compute the masks of the whole batch, so that each knows how many tokens are masked.
    """
    first_S = np.cumsum(length_S) - length_S
    at_T = np.repeat(begin_S - first_S, length_S) + np.arange(length_S.sum())
    true_T = texts.tokens[at_T].astype(np.int64)
    ids_T, masked_T = mask(true_T, texts.word_starts[at_T], length_S, row_S, fraction, seed, step, specials)
    mine = share(length_S, chunk)
    return Batch(
        chunks=[collate(n, row_B, first_S, length_S, ids_T, true_T, masked_T, specials, device) for n, row_B in mine],
        sequences=len(length_S),
        masked=int(masked_T.sum()),
        tokens=sum(int(length_S[row_B].sum()) + 2 * len(row_B) for _, row_B in mine),
    )


def share(length_S: np.ndarray, chunk: int) -> list[tuple[int, np.ndarray]]:
    """(number, rows) of this rank's chunks: sequences in order of length, cut into chunks, dealt to and fro."""
    rank, world = distributed.rank(), distributed.world()
    order_S = np.argsort(length_S, kind="stable")
    if chunk == 0:
        return [(rank, order_S[rank::world])] if rank < len(order_S) else []
    cut = [(number, order_S[i : i + chunk]) for number, i in enumerate(range(0, len(order_S), chunk))]
    return [(n, row_B) for n, row_B in cut if n % (2 * world) in (rank, 2 * world - 1 - rank)]


def collate(
    number: int,
    row_B: np.ndarray,
    first_S: np.ndarray,
    length_S: np.ndarray,
    ids_T: np.ndarray,
    true_T: np.ndarray,
    masked_T: np.ndarray,
    specials: Specials,
    device: str,
) -> Chunk:
    """[CLS] tokens [SEP] of the sequences `row_B`, padded to the longest."""
    length_B = length_S[row_B]
    width = int(length_B.max()) + 2
    column_L = np.arange(width)
    text_BL = (column_L > 0) & (column_L <= length_B[:, None])
    at_T = (first_S[row_B][:, None] + column_L - 1)[text_BL]
    ids_BL = np.full((len(row_B), width), specials.pad, np.int64)
    ids_BL[:, 0] = specials.cls
    ids_BL[np.arange(len(row_B)), length_B + 1] = specials.sep
    ids_BL[text_BL] = ids_T[at_T]
    padded = bool((length_B + 2 < width).any())

    def tensor(x: np.ndarray) -> Tensor:
        return torch.from_numpy(x).to(device, non_blocking=True)

    return Chunk(
        number=number,
        row_B=tensor(row_B),
        ids_BL=tensor(ids_BL),
        attention_BL=tensor(column_L < length_B[:, None] + 2) if padded else None,
        masked_M=tensor(np.flatnonzero(text_BL)[masked_T[at_T]]),
        label_M=tensor(true_T[at_T][masked_T[at_T]]),
    )
