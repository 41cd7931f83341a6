"""The teacher: the fusion of BM25 and the model as it is, equal weights over z-normalised scores.

Shapes: Q queries, K candidates.
"""

import numpy as np

from pipeline.data.runs import Run
from pipeline.dense.search_runs import first, without
from pipeline.evaluate.fusion.fuse import EQUAL, fuse


def teach(bm25: Run, dense: Run, source_Q: np.ndarray, depth: int) -> Run:
    """Returns the fused list of each query without its own passage.

    `bm25`, `dense`: lists of at least `depth` + 1 passages, where the collection has so many.
    """
    return fuse([first(without(run, source_Q), depth) for run in (bm25, dense)], EQUAL)


def candidates(fused: Run, queries: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and scores of the first passages of each query, [Q, K]; K is `number`, or the shortest list."""
    length_Q = np.bincount(fused.question_R, minlength=queries)
    width = min(number, int(length_Q.min(initial=number)))
    short = first(fused, width)
    return short.passage_R.reshape(queries, width), short.score_R.reshape(queries, width)
