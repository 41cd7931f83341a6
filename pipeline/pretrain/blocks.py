"""Condenser's input: full sentences of a document, packed greedily into blocks (authors' code)."""

import random
from array import array
from bisect import bisect_right

import numpy as np


def cut_documents(
    sentence_starts_T: np.ndarray, document_offsets: np.ndarray, limit: int, short_probability: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts documents of a flat text of T tokens into blocks of at most `limit` tokens.

    A block takes the next full sentences that fit its target length, at least one. The target is `limit`, or, with
    `short_probability`, uniform in 1..limit. A sentence longer than `limit` is cut into separate blocks.
    Every token is in one block, and no block crosses a document's border (`document_offsets`, [documents + 1]).
    Returns begin and length, each [blocks] int64.
    """
    draw = random.Random(seed).random
    begins, lengths = array("q"), array("q")
    for first, last in zip(document_offsets[:-1].tolist(), document_offsets[1:].tolist(), strict=True):
        edges = [first, *(first + 1 + np.flatnonzero(sentence_starts_T[first + 1 : last])).tolist(), last]
        at = 0
        while edges[at] < last:
            begin = edges[at]
            target = 1 + int(draw() * limit) if draw() < short_probability else limit
            at = max(bisect_right(edges, begin + target) - 1, at + 1)
            for piece in range(begin, edges[at], limit):
                begins.append(piece)
                lengths.append(min(limit, edges[at] - piece))
    return np.frombuffer(begins, np.int64), np.frombuffer(lengths, np.int64)
