"""Builds the tensors of one update from rows of a flat text.

Shapes: S sequences of the global batch, T tokens of them together (in a `Chunk`: of the chunk), B sequences of a
chunk, M masked tokens of a chunk.
"""

import numpy as np

from pipeline.modeling.packing import Batch, Chunk, packed_rows, share, to_device
from pipeline.runtime.work import Machine
from pipeline.tokenization.token_files import Specials


def packed(
    ids_T: np.ndarray,
    true_T: np.ndarray,
    masked_T: np.ndarray,
    length_S: np.ndarray,
    specials: Specials,
    machine: Machine,
    device: str,
) -> Batch:
    """Packs this rank's share of sequences with the concatenated tokens `ids_T`; `true_T`: before masking."""
    first_S = np.cumsum(length_S) - length_S
    mine = share(length_S + 2, machine.gradient_cache_chunk, machine.budget)
    return Batch(
        chunks=[collate(n, row_B, first_S, length_S, ids_T, true_T, masked_T, specials, device) for n, row_B in mine],
        sequences=len(length_S),
        masked=int(masked_T.sum()),
        tokens=int(length_S.sum()) + 2 * len(length_S),
    )


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
    """Packs [CLS] tokens [SEP] of the sequences `row_B`, which must be sorted by length; `T`: of the whole batch."""
    length_B = length_S[row_B]
    edges = np.concatenate([[0], np.cumsum(length_B + 2)])
    sequence_C = np.repeat(np.arange(len(row_B)), length_B)  # C: the chunk's tokens of text
    place_C = np.arange(len(sequence_C)) + 2 * sequence_C + 1  # in the chunk
    source_C = place_C + (first_S[row_B] - edges[:-1] - 1)[sequence_C]  # in the batch
    ids = np.full(edges[-1], specials.sep, np.int64)
    ids[edges[:-1]] = specials.cls
    ids[place_C] = ids_T[source_C]
    chosen_C = masked_T[source_C]
    count_B = np.bincount(sequence_C[chosen_C], minlength=len(row_B))
    return Chunk(
        number=number,
        row_B=to_device(row_B, device),
        ids_T=to_device(ids, device),
        position_T=to_device(np.arange(edges[-1]) - edges[:-1].repeat(length_B + 2), device),
        label_M=to_device(true_T[source_C[chosen_C]], device),
        every=packed_rows(length_B + 2, length_B + 2, None, device, bucket=True),
        cls=packed_rows(length_B + 2, np.ones_like(length_B), edges[:-1], device, bucket=True),
        masked=packed_rows(length_B + 2, count_B, place_C[chosen_C], device, bucket=True),
    )
