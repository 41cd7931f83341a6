"""Sequences of unequal length packed without padding.

Every linear map, norm and activation works on one token, so only attention (pipeline/modeling/attention.py) needs to
know where a sequence ends. CUDA's kernels accept sequences of any length. Elsewhere sequences of equal length share a
call; on a CPU in training those of almost equal length do too, and attention pads them (`Padding`).

Shapes: B sequences of T tokens, R query rows; G groups of sequences that share a call, n sequences of a group, W padded
rows of each, P all of these rows.
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

PADDED_SCORES = 4000
"""Scores of padding that a CPU computes rather than start another call of attention, which takes as long."""
UNEVEN = 1.1
"""Tokens of the fullest rank relative to the mean, above which `even_chunks` cuts a batch: runs of the sorted sequences
are too uneven if each rank has only a few sequences."""


class Padding(NamedTuple):
    """Pads a group's sequences to equally many rows. A sequence without a row copies one of its neighbour."""

    pad_P: Tensor
    """The group's row that each padded row copies."""
    real_R: Tensor
    """Each row's place among the padded rows."""


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
    """(sequences, padded rows of each) of every group of sequences that share a call of attention."""
    pads: tuple[Padding | None, ...]
    """Of every group; None without padding, and where a kernel needs none (`has_kernel`)."""

    @property
    def padding(self) -> int:
        """Number of padded rows, whose attention is computed but unused."""
        return sum(len(pad.pad_P) - len(pad.real_R) for pad in self.pads if pad is not None)

    def take(self, states_TD: Tensor) -> Tensor:
        """Returns the rows' states, [R, D]."""
        # On a CPU an index's backward pass is slower: it adds number by number.
        return states_TD if self.at_R is None else states_TD.index_select(0, self.at_R)


def packed_rows(
    length_B: np.ndarray, count_B: np.ndarray, at_R: np.ndarray | None, device: str, bucket: bool = False
) -> Rows:
    """Returns `count_B` rows of sequences of `length_B` tokens, sorted by length; `at_R`: their places (None: all).

    `bucket`: on a CPU sequences of almost equal lengths share a call of attention too. This is faster with few
    sequences. The last bits of a sequence's states then depend on the others.
    """
    first_G = np.concatenate([[0], np.flatnonzero(length_B[1:] != length_B[:-1]) + 1])
    sequences_G = np.concatenate([first_G[1:], [len(length_B)]]) - first_G
    if bucket and device == "cpu":
        sequences_G = _bucketed(sequences_G, length_B[first_G])
    edges = np.concatenate([[0], count_B.cumsum()])
    groups, pads = _padded_groups(count_B, sequences_G, device)
    return Rows(
        at_R=None if at_R is None else to_device(at_R, device),
        edges=to_device(edges, device).int(),
        longest=int(count_B.max()),
        size=int(edges[-1]),
        scores=int((count_B * length_B).sum()),
        groups=groups,
        pads=pads,
    )


def _padded_groups(
    count_B: np.ndarray, sequences_G: np.ndarray, device: str
) -> tuple[tuple[tuple[int, int], ...], tuple[Padding | None, ...]]:
    """Returns `groups` and `pads` of `Rows` for groups of `sequences_G` sequences."""
    first_G = sequences_G.cumsum() - sequences_G
    width_G = np.maximum.reduceat(count_B, first_G)
    is_uneven_G = np.minimum.reduceat(count_B, first_G) < width_G
    groups = tuple(zip(sequences_G.tolist(), width_G.tolist(), strict=True))
    if has_kernel(device) or not is_uneven_G.any():
        return groups, (None,) * len(groups)
    of_groups = zip(first_G, groups, is_uneven_G, strict=True)
    places = [
        _padding(count_B[first : first + n], width) if uneven else None for first, (n, width), uneven in of_groups
    ]
    padded = [place for place in places if place is not None]
    # Two copies to the device for all groups.
    pads_P, reals_R = (
        to_device(np.concatenate(parts), device).split([len(part) for part in parts])
        for parts in zip(*padded, strict=True)
    )
    on_device = map(Padding, pads_P, reals_R)
    return groups, tuple(None if place is None else next(on_device) for place in places)


def _padding(count_n: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the arrays of `Padding` of sequences of `count_n` rows, not all 0, to `width` rows."""
    edge_n, column_W = count_n.cumsum() - count_n, np.arange(width)
    pad_nW = edge_n[:, None] + np.minimum(column_W, np.maximum(count_n - 1, 0)[:, None])
    return np.minimum(pad_nW, count_n.sum() - 1).ravel(), np.flatnonzero(column_W < count_n[:, None])


def _bucketed(sequences_G: np.ndarray, length_G: np.ndarray) -> np.ndarray:
    """Returns the number of sequences of each bucket, which joins neighbouring groups.

    Each group that joins adds at most PADDED_SCORES scores.
    """
    buckets = [(int(sequences_G[0]), int(length_G[0]))]
    for sequences, length in zip(sequences_G[1:].tolist(), length_G[1:].tolist(), strict=True):
        shorter_sequences, longest = buckets[-1]
        if shorter_sequences * (length**2 - longest**2) <= PADDED_SCORES:
            buckets[-1] = shorter_sequences + sequences, length
        else:
            buckets.append((sequences, length))
    return np.array([sequences for sequences, _ in buckets])


def split_groups(rows: Rows, x_RD: Tensor) -> list[Tensor]:
    """Returns each group's part of x, [padded rows, ...]."""
    of_groups = zip(rows.groups, rows.pads, strict=True)
    sizes = [n * width if pad is None else len(pad.real_R) for (n, width), pad in of_groups]
    parts = zip(x_RD.split(sizes), rows.pads, strict=True)
    return [part if pad is None else part.index_select(0, pad.pad_P) for part, pad in parts]


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
    return rows._replace(groups=((sequences, width),), pads=(Padding(pad_P, real_R),))


def real_keys(every: Rows) -> list[Tensor | None]:
    """Returns which keys of each group are no padding, bool [sequences, 1, 1, padded]; None: all."""
    length_B = every.edges[1:] - every.edges[:-1]
    of_groups = zip(length_B.split([n for n, _ in every.groups]), every.groups, every.pads, strict=True)
    return [
        None if pad is None else (torch.arange(width, device=length_n.device) < length_n[:, None])[:, None, None]
        for length_n, (_, width), pad in of_groups
    ]


def row_positions(wanted: Rows, every: Rows) -> list[Tensor]:
    """Returns each padded row's place within its sequence, [n or 1, W] for each group of n sequences of W rows.

    The place of padding is one within the sequence too, so that a row sees a key whatever the window.
    """
    device = every.edges.device
    sizes = [sequences for sequences, _ in wanted.groups]
    begins, lengths = every.edges[:-1].split(sizes), (every.edges[1:] - every.edges[:-1]).split(sizes)
    at_R = torch.arange(wanted.size, device=device) if wanted.at_R is None else wanted.at_R
    of_groups = zip(wanted.groups, wanted.pads, split_groups(wanted, at_R), begins, lengths, strict=True)
    return [
        torch.arange(group[1], device=device)[None]  # the same in each sequence
        if wanted.at_R is None and pad is None
        else torch.minimum((at_P.unflatten(0, group) - begin_n[:, None]).clamp(min=0), length_n[:, None] - 1)
        for group, pad, at_P, begin_n, length_n in of_groups
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
