"""Two random spans of a document (coCondenser, section 3.2)."""

from typing import NamedTuple

import numpy as np

from pipeline.data.counter_rng import integers

GAP, START, FIRST, SECOND, PASSAGE, OTHER, PLACE, SIZE = (
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
)  # the purpose of a draw, part of its key


def long_enough(length_N: np.ndarray, span_min: int) -> np.ndarray:
    """Returns which documents hold two spans of `span_min` tokens, [N] bool."""
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
    """Draws two spans of `span_min` to `span_max` tokens from each document, which begins at `begin_D` of a flat text.

    A document of n tokens gives two spans of at most L = min(span_max, n // 2), each of a random length from
    min(span_min, L) to L. They do not overlap; the gap between them is uniform, and so is their place for that gap. A
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


class LongPassages(NamedTuple):
    """The passages that are long enough for a span, document by document."""

    begin_P: np.ndarray
    length_P: np.ndarray
    edges: np.ndarray
    """[documents + 1]: document d has passages edges[d] up to edges[d + 1] of them."""


def long_passages(offsets: np.ndarray, doc_offsets: np.ndarray, span_min: int) -> LongPassages:
    """Returns those passages at `offsets` of a flat text that have at least `span_min` tokens."""
    kept_P = np.flatnonzero(np.diff(offsets) >= span_min)
    return LongPassages(offsets[kept_P], np.diff(offsets)[kept_P], np.searchsorted(kept_P, doc_offsets))


def spans_of_passages(
    passages: LongPassages, document_D: np.ndarray, span_min: int, span_max: int, seed: int, step: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `spans`, but from two different passages of a document, for the documents that have two.

    Each span has min(span_min, L) to L tokens, L = min(span_max, its passage's tokens). Returns which documents have
    two passages, [D] bool, and begin and length of their spans, [2 D'].
    """
    first_D, count_D = passages.edges[document_D], np.diff(passages.edges)[document_D]
    several_D = count_D > 1
    first_D, count_D, document_D = first_D[several_D], count_D[several_D], document_D[several_D]
    one_D = integers(count_D, seed, step, PASSAGE, document_D)
    other_D = integers(count_D - 1, seed, step, OTHER, document_D)
    other_D += other_D >= one_D
    passage_S = np.stack([first_D + one_D, first_D + other_D], axis=1).ravel()
    key_S = (2 * document_D[:, None] + np.arange(2)).ravel()
    longest_S = np.minimum(span_max, passages.length_P[passage_S])
    shortest_S = np.minimum(span_min, longest_S)
    length_S = shortest_S + integers(longest_S - shortest_S + 1, seed, step, SIZE, key_S)
    spare_S = passages.length_P[passage_S] - length_S
    begin_S = passages.begin_P[passage_S] + integers(spare_S + 1, seed, step, PLACE, key_S)
    return several_D, begin_S, length_S
