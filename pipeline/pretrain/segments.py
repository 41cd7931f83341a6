"""Pairs of a sentence and its passage (Lee, Chang and Toutanova 2019, "Inverse Cloze Task").

Shapes: P passages of T tokens and N sentences together, E of the sentences long enough for a segment.
"""

from typing import NamedTuple

import numpy as np

from pipeline.data.counter_rng import integers, uniform
from pipeline.tokenization.token_files import Ragged

SENTENCE, REMOVED = 20, 21  # the purpose of a draw, part of its key
AT_ONCE = 1 << 16
"""Passages whose sentences are searched together."""


class Sentences(NamedTuple):
    """The sentences of some passages, passage by passage."""

    passage_N: np.ndarray
    """Number of its passage among those requested: 0 to P - 1."""
    begin_N: np.ndarray
    """In the flat text."""
    length_N: np.ndarray
    """In tokens."""


class Usable(NamedTuple):
    """The passages of a collection that give pairs."""

    row_P: np.ndarray
    """Their numbers."""
    one_sentence: int
    """Passages left out because they have one sentence or none."""
    no_segment: int
    """Other passages left out: none of their sentences is long enough."""


def token_places(begin_S: np.ndarray, length_S: np.ndarray) -> np.ndarray:
    """Returns the places of the tokens of ranges of a flat text, range after range, [T]."""
    first_S = np.cumsum(length_S) - length_S
    return np.repeat(begin_S - first_S, length_S) + np.arange(length_S.sum())


def cut_passages(texts: Ragged, row_P: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns begin and length of passages, each truncated to its first `limit` tokens; each [P]."""
    return texts.offsets[row_P], np.minimum(texts.offsets[row_P + 1] - texts.offsets[row_P], limit)


def sentences(texts: Ragged, row_P: np.ndarray, limit: int) -> Sentences:
    """Returns the sentences of the first `limit` tokens of each passage; the last one may be truncated."""
    assert texts.sentence_starts is not None
    begin_P, length_P = cut_passages(texts, row_P, limit)
    at_T = token_places(begin_P, length_P)
    starts_T = texts.sentence_starts[at_T]
    starts_T[(np.cumsum(length_P) - length_P)[length_P > 0]] = True
    first_N = np.flatnonzero(starts_T)
    length_N = np.diff(np.append(first_N, len(at_T)))
    return Sentences(np.repeat(np.arange(len(row_P)), length_P)[first_N], at_T[first_N], length_N)


def usable(texts: Ragged, shortest: int, limit: int) -> Usable:
    """Returns passages whose first `limit` tokens hold two sentences, one of them of at least `shortest` tokens."""
    rows, one_sentence = [np.zeros(0, np.int64)], 0
    for first in range(0, len(texts), AT_ONCE):
        row_P = np.arange(first, min(first + AT_ONCE, len(texts)))
        parts = sentences(texts, row_P, limit)
        several_P = np.bincount(parts.passage_N, minlength=len(row_P)) > 1
        fit_P = np.bincount(parts.passage_N[parts.length_N >= shortest], minlength=len(row_P)) > 0
        rows.append(row_P[several_P & fit_P])
        one_sentence += int((~several_P).sum())
    row_P = np.concatenate(rows)
    return Usable(row_P, one_sentence, len(texts) - one_sentence - len(row_P))


def pairs(
    texts: Ragged,
    row_P: np.ndarray,
    shortest: int,
    longest: int,
    limit: int,
    remove_probability: float,
    seed: int,
    step: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws a pair from each `usable` passage of `row_P`: a random sentence, and the passage's first `limit` tokens.

    The sentence has at least `shortest` tokens; the segment is its first `longest` tokens. With `remove_probability`
    the full sentence is removed from the passage; the rest is never empty. A pure function of (seed, step, passage
    number). Returns the places of the tokens of the 2P sequences in the flat text [T], and the sequences' lengths [2P]:
    sequence 2i is a segment, 2i+1 its passage.
    """
    begin_P, length_P = cut_passages(texts, row_P, limit)
    parts = sentences(texts, row_P, limit)
    fit_E = np.flatnonzero(parts.length_N >= shortest)
    count_P = np.bincount(parts.passage_N[fit_E], minlength=len(row_P))
    chosen_P = fit_E[np.cumsum(count_P) - count_P + integers(count_P, seed, step, SENTENCE, row_P)]
    sentence_P, size_P = parts.begin_N[chosen_P], parts.length_N[chosen_P]
    removed_P = size_P * (uniform(seed, step, REMOVED, row_P) < remove_probability)

    after_P = sentence_P + removed_P
    begins = np.stack([sentence_P, begin_P, after_P], axis=1)
    lengths = np.stack([np.minimum(size_P, longest), sentence_P - begin_P, begin_P + length_P - after_P], axis=1)
    length_S = np.stack([lengths[:, 0], length_P - removed_P], axis=1).ravel()
    return token_places(begins.ravel(), lengths.ravel()), length_S
