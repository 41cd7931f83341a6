"""Two random spans of a document (coCondenser, section 3.2)."""

import numpy as np

from pipeline.draws import integers

GAP, START = 10, 11  # what a draw is for; enters its key


def long_enough(length_N: np.ndarray, span_min: int) -> np.ndarray:
    """Which documents hold two spans of `span_min` tokens, [N] bool."""
    return length_N >= 2 * span_min


def spans(
    begin_D: np.ndarray, length_D: np.ndarray, document_D: np.ndarray, span_max: int, seed: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Two spans of min(span_max, n // 2) tokens from each document of n tokens that begins at `begin_D` of a flat text.

    They do not overlap; the gap between them is uniform, and so is their place given the gap. A pure function of
    (seed, step, document number). Returns begin and length, each [2 D] int64; rows 2i and 2i+1 are a pair.
    """
    span_D = np.minimum(span_max, length_D // 2)
    spare_D = length_D - 2 * span_D
    gap_D = integers(spare_D + 1, seed, step, GAP, document_D)
    start_D = begin_D + integers(spare_D - gap_D + 1, seed, step, START, document_D)
    return np.stack([start_D, start_D + span_D + gap_D], axis=1).ravel(), np.repeat(span_D, 2)
