"""The products of exact search on a GPU: the same lists, to the byte, as on a processor.

The vectors stay in the GPU's memory, as float16 if that loses no bit. Products, the best candidates of all blocks so
far, float64 sums and the order of the list are computed there; only lists are copied back.

Shapes: Q questions, N passages, A allowed passages, D dimension, B passages of a block, C candidates, K passages of a
list, G questions of a group.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.dense.rescore import rescore, take_rows

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


class GpuVectors:
    """The passages' vectors for searches on a GPU.

    If they do not fit into its memory, each search copies them block by block, while the block before is computed.
    """

    def __init__(self, vectors_ND: np.ndarray, device: str, free: int) -> None:
        """`free`: bytes of free memory on the device."""
        self._stored_ND, self._device = vectors_ND, device
        self._resident_ND: Tensor | None = None
        for dtype in (torch.float16, torch.float32):
            if vectors_ND.size * dtype.itemsize <= RESIDENT * (free - SEARCHING) and self._load(dtype):
                break

    def _load(self, dtype: torch.dtype) -> bool:
        """Copies the vectors; False if they have more digits than `dtype`."""
        resident_ND = torch.empty(self._stored_ND.shape, dtype=dtype, device=self._device)
        for first, block_BD in self._copied(None):
            part = resident_ND[first : first + len(block_BD)].copy_(block_BD)
            if not torch.equal(part.float(), block_BD.float()):
                return False
        self._resident_ND = resident_ND
        return True

    @property
    def is_resident(self) -> bool:
        return self._resident_ND is not None

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
        if self._resident_ND is None:
            yield from self._copied(rows_A)
            return
        allowed = None if rows_A is None else torch.from_numpy(rows_A).to(self._device)
        passages = len(self._resident_ND) if rows_A is None else len(rows_A)
        size = max(1, min(SCORES // questions, NUMBERS // self._resident_ND.shape[1]))
        for first in range(0, passages, size):
            span = slice(first, first + size)
            yield first, self._resident_ND[span] if allowed is None else self._resident_ND[allowed[span]]

    def _copied(self, rows_A: np.ndarray | None) -> Iterator[tuple[int, Tensor]]:
        """Yields as `_blocks`, from the stored vectors. The GPU computes a block while the next one is read."""
        passages = len(self._stored_ND) if rows_A is None else len(rows_A)
        size = max(1, LOADED // self._stored_ND.shape[1])
        for first in range(0, passages, size):
            span = slice(first, first + size)
            block_BD = self._stored_ND[span] if rows_A is None else take_rows(self._stored_ND, rows_A[span])
            block = torch.from_numpy(np.array(block_BD))  # a copy: a memory map is neither writable nor aligned
            if self._device == "cuda":
                block = block.pin_memory().to(self._device, non_blocking=True)
            yield first, block

    def _rescored(self, questions_QD: np.ndarray, device_QD: Tensor, rows_QC: Tensor, longest: float) -> Tensor:
        """Returns inner products as `rescore` does, to the bit, [Q, C].

        The order of the sums differs from a processor's. That changes a float32 only where the float64 sum is near the
        middle between two float32 numbers; these few are summed again by the processor.
        """
        if self._resident_ND is None:
            rows = rows_QC.cpu().numpy()
            return torch.from_numpy(rescore(questions_QD, rows, self._stored_ND)).to(self._device)
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
