"""Two random spans of a document (coCondenser, section 3.2)."""

import numpy as np

from pipeline.draws import integers

GAP, START, FIRST, SECOND = 10, 11, 12, 13  # what a draw is for; enters its key


def long_enough(length_N: np.ndarray, span_min: int) -> np.ndarray:
    """Which documents hold two spans of `span_min` tokens, [N] bool."""
    return length_N >= 2 * span_min


def spans(
    begin_D: np.ndarray,
    length_D: np.ndarray,
    document_D: np.ndarray,
    span_min: int,
    span_max: int,
    seed: int,
    step: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Two spans of `span_min` to `span_max` tokens from each document, which begins at `begin_D` of a flat text.

    A document of n tokens gives two of at most L = min(span_max, n // 2), each of a random length from
    min(span_min, L) to L. They do not overlap; the gap between them is uniform, and so is their place given the gap. A
    pure function of (seed, step, document number). Returns begin and length, each [2 D] int64; rows 2i and 2i+1 are a
    pair.
    """
    longest_D = np.minimum(span_max, length_D // 2)
    shortest_D = np.minimum(span_min, longest_D)
    choices_D = longest_D - shortest_D + 1
    first_D = shortest_D + integers(choices_D, seed, step, FIRST, document_D)
    second_D = shortest_D + integers(choices_D, seed, step, SECOND, document_D)
    spare_D = length_D - first_D - second_D
    gap_D = integers(spare_D + 1, seed, step, GAP, document_D)
    start_D = begin_D + integers(spare_D - gap_D + 1, seed, step, START, document_D)
    return (
        np.stack([start_D, start_D + first_D + gap_D], axis=1).ravel(),
        np.stack([first_D, second_D], axis=1).ravel(),
    )
