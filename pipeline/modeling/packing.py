"""Sequences of unequal length packed without padding.

Every linear map, norm and activation works on one token, so only attention (pipeline/modeling/attention.py) needs to
know where a sequence ends. CUDA's kernels accept sequences of any length; elsewhere sequences of equal length share a
call.

Shapes: B sequences of T tokens, R query rows, P those rows padded within groups of sequences.
"""

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline.runtime import ranks
from pipeline.runtime.precision import low_precision

UNEVEN = 1.1
"""Tokens of the fullest rank relative to the mean, above which `even_chunks` cuts a batch: runs of the sorted sequences
are too uneven if each rank has only a few sequences."""


class Rows(NamedTuple):
    """Tokens of a packing, in its order: all, or those whose states a layer computes."""

    at_R: Tensor | None
    """Their places among the T tokens; None for all of them."""
    edges: Tensor
    """[B + 1] int32: the rows of sequence b are edges[b] up to edges[b + 1]."""
    longest: int
    """Most rows of a sequence."""
    size: int
    """R."""
    scores: int
    """Pairs of a row and a key of its sequence, over all sequences."""
    groups: tuple[tuple[int, int], ...]
    """(sequences, padded rows of each) of every group of sequences of equal length."""
    pad_P: Tensor | None
    """The row that each padded row copies; None without padding, and where a kernel needs none (`has_kernel`)."""
    real_R: Tensor | None
    """Each row's place among the padded rows; None as `pad_P`."""

    @property
    def padding(self) -> int:
        """Number of padded rows, whose attention is computed but unused."""
        return 0 if self.pad_P is None else len(self.pad_P) - self.size


def packed_rows(length_B: np.ndarray, count_B: np.ndarray, at_R: np.ndarray | None, device: str) -> Rows:
    """Returns `count_B` rows of sequences of `length_B` tokens, sorted by length; `at_R`: their places (None: all)."""
    first_G = np.concatenate([[0], np.flatnonzero(length_B[1:] != length_B[:-1]) + 1])
    sequences_G = np.concatenate([first_G[1:], [len(length_B)]]) - first_G
    longest_G = np.maximum.reduceat(count_B, first_G)
    width_B = longest_G.repeat(sequences_G)
    edges = np.concatenate([[0], count_B.cumsum()])
    pad_P = real_R = None
    if (width_B > count_B).any() and not has_kernel(device):
        padded_B = width_B.cumsum() - width_B
        column_P = np.arange(width_B.sum()) - padded_B.repeat(width_B)
        # A sequence without a row copies its neighbour's; its attention is computed but unused.
        last_P = np.maximum(count_B - 1, 0).repeat(width_B)
        pad_P = np.minimum(edges[:-1].repeat(width_B) + np.minimum(column_P, last_P), edges[-1] - 1)
        real_R = np.arange(edges[-1]) + (padded_B - edges[:-1]).repeat(count_B)
    at, pad, real = (None if x is None else to_device(x, device) for x in (at_R, pad_P, real_R))
    groups = tuple(zip(sequences_G.tolist(), longest_G.tolist(), strict=True))
    return Rows(
        at_R=at,
        edges=to_device(edges, device).int(),
        longest=int(count_B.max()),
        size=int(edges[-1]),
        scores=int((count_B * length_B).sum()),
        groups=groups,
        pad_P=pad,
        real_R=real,
    )


def to_device(array: np.ndarray, device: str) -> Tensor:
    """Copies the array to an int64 tensor; on CUDA the host does not wait for the copy."""
    return upload(array.astype(np.int64, copy=False), device)


def upload(array: np.ndarray, device: str) -> Tensor:
    """Copies the array to a tensor of its type; on CUDA the host does not wait for the copy."""
    tensor = torch.from_numpy(array)
    if device == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def one_group(rows: Rows) -> Rows:
    """Returns the rows with each sequence padded to the longest: one call of attention, whose masks must hide padding.

    It is computed on the device, which need not wait for the host.
    """
    sequences, width = len(rows.edges) - 1, rows.longest
    edges, device = rows.edges.long(), rows.edges.device
    place_P = torch.arange(sequences * width, device=device)
    sequence_P = place_P // width
    last_P = (edges[1:] - edges[:-1] - 1).clamp(min=0)[sequence_P]
    pad_P = (edges[sequence_P] + torch.minimum(place_P % width, last_P)).clamp(max=rows.size - 1)
    row_R = torch.arange(rows.size, device=device)
    sequence_R = torch.searchsorted(edges[1:], row_R, right=True)
    real_R = sequence_R * width + row_R - edges[sequence_R]
    return rows._replace(groups=((sequences, width),), pad_P=pad_P, real_R=real_R)


def real_keys(every: Rows) -> Tensor:
    """Returns which keys of `one_group` are no padding, bool [sequences, 1, 1, longest]."""
    length_B = every.edges[1:] - every.edges[:-1]
    return (torch.arange(every.longest, device=length_B.device) < length_B[:, None])[:, None, None]


def row_positions(wanted: Rows, every: Rows) -> list[Tensor]:
    """Returns each padded row's place within its sequence, [n or 1, W] for each group of n sequences of W rows."""
    device = every.edges.device
    if wanted.at_R is None:
        return [torch.arange(width, device=device)[None] for _, width in wanted.groups]
    at_P = wanted.at_R if wanted.pad_P is None else wanted.at_R[wanted.pad_P]
    of_groups = at_P.split([sequences * width for sequences, width in wanted.groups])
    begins = every.edges[:-1].split([sequences for sequences, _ in wanted.groups])
    return [
        at.unflatten(0, (sequences, width)) - begin[:, None]
        for at, begin, (sequences, width) in zip(of_groups, begins, wanted.groups, strict=True)
    ]


def has_kernel(device: str) -> bool:
    """Whether the device has an attention kernel for sequences of any length: CUDA from Ampere on."""
    return device == "cuda" and low_precision(device) == torch.bfloat16


class Chunk(NamedTuple):
    """Sequences sorted by length, packed without padding."""

    number: int
    """Over all chunks of all ranks; seeds dropout."""
    row_B: Tensor
    """The sequences' rows in the global batch."""
    ids_T: Tensor
    """The model's input: [CLS], the corrupted tokens, [SEP]; sequence after sequence."""
    position_T: Tensor
    """Positions within the sequence, from 0."""
    label_M: Tensor
    """True ids of the masked tokens."""
    every: Rows
    cls: Rows
    """Each sequence's first token."""
    masked: Rows
    """The masked tokens."""


class Batch(NamedTuple):
    chunks: list[Chunk]
    """This rank's share."""
    sequences: int
    """Of all ranks."""
    masked: int
    """Masked tokens of all ranks."""
    tokens: int
    """Tokens of all ranks, special tokens included."""


def share(length_S: np.ndarray, chunk: int | None, budget: int) -> list[tuple[int, np.ndarray]]:
    """Returns (number, rows) of this rank's chunks (see `cut_chunks`).

    Chunks are dealt to the ranks in alternating order; the number of chunks per rank differs by at most one.
    """
    rank, world = ranks.rank(), ranks.world()
    chunks = enumerate(cut_chunks(length_S, chunk, budget, world))
    mine = [(n, row_B) for n, row_B in chunks if len(row_B) and rank_of(n, world) == rank]
    # The largest first: the memory it frees is large enough for all later chunks.
    return sorted(mine, key=lambda chunk: -int(length_S[chunk[1]].sum()))


def rank_of(number: int, world: int) -> int:
    """Returns the rank of chunk `number`: 0, 1, ... world - 1, world - 1, ... 1, 0, 0, 1, ..."""
    place = number % (2 * world)
    return min(place, 2 * world - 1 - place)


def cut_chunks(length_S: np.ndarray, chunk: int | None, budget: int, world: int = 1) -> list[np.ndarray]:
    """Sorts sequences by length and cuts them into chunks of about equally many tokens; some may be empty.

    If `chunk` is None, chunks have about `budget` tokens or fewer, and their number is a multiple of `world`, the
    number of ranks. Otherwise they have `chunk` sequences on average, and are the same for any `world` below their
    number: there is at least one for each rank.
    """
    order_S = np.argsort(length_S, kind="stable")
    if not len(order_S):
        return []
    ends_S = np.cumsum(length_S[order_S])
    if chunk is None:
        number = world * math.ceil(ends_S[-1] / budget / world)
    else:
        number = max(math.ceil(len(order_S) / chunk), world)
    # A sequence belongs to the chunk that holds its middle.
    middle_S = ends_S - length_S[order_S] / 2
    edges = np.searchsorted(middle_S, ends_S[-1] / number * np.arange(number + 1))
    chunks = [order_S[a:b] for a, b in itertools.pairwise(edges.tolist())]
    depends_on_world = chunk is None or number == world
    if depends_on_world and fullest(length_S, chunks, world) > UNEVEN * ends_S[-1] / world:
        return even_chunks(length_S, order_S, number)
    return chunks


def fullest(length_S: np.ndarray, chunks: Sequence[np.ndarray], world: int) -> int:
    """Returns the tokens of the rank that has most."""
    tokens = [0] * world
    for number, row_B in enumerate(chunks):
        tokens[rank_of(number, world)] += int(length_S[row_B].sum())
    return max(tokens)


def even_chunks(length_S: np.ndarray, order_S: np.ndarray, number: int) -> list[np.ndarray]:
    """Returns chunks that differ less in their tokens than runs of the sorted sequences `order_S`, but mix lengths.

    The longest sequence first, each one goes to the chunk with the fewest tokens (Graham 1969, "Bounds on
    Multiprocessing Timing Anomalies": longest processing time first).
    """
    tokens = [(0, n) for n in range(number)]
    chunk_of_S = np.empty(len(order_S), np.int64)
    for row in order_S[::-1].tolist():
        count, n = heapq.heappop(tokens)
        chunk_of_S[row] = n
        heapq.heappush(tokens, (count + int(length_S[row]), n))
    return [order_S[chunk_of_S[order_S] == n] for n in range(number)]
