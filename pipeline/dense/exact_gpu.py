"""The products of exact search on a GPU: the same lists, to the byte, as on a processor.

The vectors stay in the GPU's memory, as float16 if that loses no bit. Products, the best candidates of all blocks so
far, float64 sums and the order of the list are computed there; only lists are copied back. Where they do not fit,
sharded_search.py searches slices of them.

Shapes: Q questions, N passages, A allowed passages, D dimension, B passages of a block, C candidates, K passages of a
list, G questions of a group.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.dense.rescore import rescore

LOADED = 1 << 25
"""Numbers of a block that is copied to the GPU."""
SCORES, NUMBERS = 1 << 28, 1 << 28
"""Most scores of a block, and most numbers of its vectors in float32: 1 GiB each."""
RESCORED = 1 << 27
"""Numbers of the candidates' vectors that are rescored at a time, in float64: 1 GiB."""
SEARCHING = 4 << 30
"""Bytes that a search needs besides the vectors."""
RESIDENT = 0.9
"""Share of the other free memory that the vectors may take."""


def room_for_vectors(free: int) -> int:
    """Returns the bytes that vectors may take of `free` bytes of a GPU's memory; none if a search needs all."""
    return max(0, int(RESIDENT * (free - SEARCHING)))


def load(vectors_ND: np.ndarray, device: str, room: int) -> "GpuVectors | None":
    """Copies the vectors to a GPU; None if they need more than `room` bytes there.

    `vectors_ND`: float32 or float16, may be memory-mapped.
    """
    for dtype in (torch.float16, torch.float32):
        if vectors_ND.size * dtype.itemsize <= room:
            resident_ND = _copy(vectors_ND, device, dtype)
            if resident_ND is not None:
                return GpuVectors(vectors_ND, resident_ND)
    return None


def _copy(stored_ND: np.ndarray, device: str, dtype: torch.dtype) -> Tensor | None:
    """Returns the vectors on the device; None if they have more digits than `dtype`.

    The host reads a block while the one before is copied, so it looks at the comparison only once, at the end.
    """
    resident_ND = torch.empty(stored_ND.shape, dtype=dtype, device=device)
    same = torch.ones((), dtype=torch.bool, device=device)
    size = max(1, LOADED // stored_ND.shape[1])
    for first in range(0, len(stored_ND), size):
        block = torch.from_numpy(np.array(stored_ND[first : first + size]))  # a memory map cannot be written or aligned
        block_BD = block.pin_memory().to(device, non_blocking=True) if device == "cuda" else block
        part_BD = resident_ND[first : first + size].copy_(block_BD)
        same &= (part_BD.float() == block_BD).all()
    return resident_ND if same else None


class GpuVectors:
    """The passages' vectors for searches on a GPU."""

    def __init__(self, stored_ND: np.ndarray, resident_ND: Tensor) -> None:
        """`resident_ND`: the same numbers on the device."""
        self._stored_ND, self._resident_ND, self._device = stored_ND, resident_ND, resident_ND.device

    def best(
        self, questions_QD: np.ndarray, k: int, width: int, longest: float, rows_A: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the best `k` of `width` candidates and what bounds all other passages.

        (rows int64 [Q, k], exact scores float32 [Q, k], greatest inexact score outside the candidates [Q]).
        """
        device_QD = torch.from_numpy(questions_QD).to(self._device)
        with _float32_products():
            rows_QC, worst_Q = self._candidates(device_QD, width, rows_A)
        scores_QC = self._rescored(questions_QD, device_QD, rows_QC, longest)
        rows_QK, scores_QK = _best_k(rows_QC, scores_QC, k)
        return rows_QK.cpu().numpy(), scores_QK.cpu().numpy(), worst_Q.cpu().numpy()

    def _candidates(self, device_QD: Tensor, width: int, rows_A: np.ndarray | None) -> tuple[Tensor, Tensor]:
        """Returns (unsorted rows [Q, width], upper bounds [Q] of the inexact scores of all other passages)."""
        rows_QC = torch.empty(len(device_QD), 0, dtype=torch.int64, device=self._device)
        scores_QC = torch.empty(len(device_QD), 0, device=self._device)
        for first, block_BD in self._blocks(len(device_QD), rows_A):
            scores_QB = device_QD @ block_BD.float().T
            scores, places = scores_QB.topk(min(width, len(block_BD)), dim=1, sorted=False)
            del scores_QB  # before the next block's
            rows_QC, scores_QC = torch.cat([rows_QC, places + first], 1), torch.cat([scores_QC, scores], 1)
            if scores_QC.shape[1] > width:
                scores_QC, kept = scores_QC.topk(width, dim=1, sorted=False)
                rows_QC = rows_QC.gather(1, kept)
        if rows_A is not None:
            rows_QC = torch.from_numpy(rows_A).to(self._device)[rows_QC]
        return rows_QC, scores_QC.amin(1)

    def _blocks(self, questions: int, rows_A: np.ndarray | None) -> Iterator[tuple[int, Tensor]]:
        """Yields (place of the first passage among the allowed, vectors [B, D] on the device)."""
        allowed = None if rows_A is None else torch.from_numpy(rows_A).to(self._device)
        passages = len(self._resident_ND) if rows_A is None else len(rows_A)
        size = max(1, min(SCORES // questions, NUMBERS // self._resident_ND.shape[1]))
        for first in range(0, passages, size):
            span = slice(first, first + size)
            yield first, self._resident_ND[span] if allowed is None else self._resident_ND[allowed[span]]

    def _rescored(self, questions_QD: np.ndarray, device_QD: Tensor, rows_QC: Tensor, longest: float) -> Tensor:
        """Returns inner products as `rescore` does, to the bit, [Q, C].

        The order of the sums differs from a processor's. That changes a float32 only where the float64 sum is near the
        middle between two float32 numbers; these few are summed again by the processor.
        """
        scores_QC = torch.empty(rows_QC.shape, device=self._device)
        unsure_QC = torch.empty(rows_QC.shape, dtype=torch.bool, device=self._device)
        size = max(1, RESCORED // (rows_QC.shape[1] * device_QD.shape[1]))
        for first in range(0, len(device_QD), size):
            some = slice(first, first + size)
            device_GD = device_QD[some].double()
            sums_GC = torch.bmm(self._resident_ND[rows_QC[some]].double(), device_GD[:, :, None])[:, :, 0]
            scores_QC[some] = sums_GC.float()
            unsure_QC[some] = _distance_to_middle(sums_GC) <= _error(device_GD, longest)
        question_U, place_U = unsure_QC.nonzero(as_tuple=True)
        if len(question_U):
            rows_U1 = rows_QC[question_U, place_U, None].cpu().numpy()
            again_U1 = rescore(questions_QD[question_U.cpu().numpy()], rows_U1, self._stored_ND)
            scores_QC[question_U, place_U] = torch.from_numpy(again_U1[:, 0]).to(self._device)
        return scores_QC


def _error(device_GD: Tensor, longest: float) -> Tensor:
    """Returns a bound [G, 1] of the difference between two float64 sums of a product, as `rescore.error_bound`."""
    return 4 * device_GD.shape[1] * torch.finfo(torch.float64).eps * longest * device_GD.norm(dim=1, keepdim=True)


def _distance_to_middle(sums: Tensor) -> Tensor:
    """Returns how far each float64 is from the next middle between two neighbouring float32 numbers."""
    rounded = sums.float()
    infinity = torch.full_like(rounded, torch.inf)
    above, below = (torch.nextafter(rounded, side).double() for side in (infinity, -infinity))
    middle = rounded.double()
    return torch.minimum((sums - (middle + above) / 2).abs(), (sums - (middle + below) / 2).abs())


def _best_k(rows_QC: Tensor, scores_QC: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the best k of each question, [Q, k], by score descending, then passage order (as rescore.best_k)."""
    bits_QC = _ordered((scores_QC + 0.0).view(torch.int32))  # -0 becomes 0
    # One integer for both: the complement of the score's ordered bits, then the row.
    key_QC = ((~bits_QC).long() << 32 | rows_QC).sort(dim=1).values[:, :k]
    return key_QC & 0xFFFFFFFF, _ordered((~(key_QC >> 32)).int()).view(torch.float32)


def _ordered(bits: Tensor) -> Tensor:
    """Returns a float32's bits as an int32 with the same order; it is its own inverse."""
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@contextmanager
def _float32_products() -> Iterator[Any]:
    """Turns TensorFloat-32 off, whose errors exceed the bound of `rescore.error_bound`."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
