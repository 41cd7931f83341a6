"""One question's two lists made one, for what answers questions to be held against."""

from collections.abc import Mapping

import numpy as np

from pipeline.data.runs import ranked
from pipeline.evaluate.fusion.fuse import Choice, fuse


def fuse_lists(
    first: Mapping[str, float], second: Mapping[str, float], choice: Choice, k: float
) -> list[tuple[str, float]]:
    """One question's two lists, {passage id: score}, as one list of (id, score), best first; ties as first met.

    For `weighted_sum` give lists as deep as those that the weight was chosen on: the least score becomes 0.
    """
    ids = list(dict.fromkeys([*first, *second]))
    place = {passage_id: n for n, passage_id in enumerate(ids)}
    runs = [
        ranked(np.zeros(len(found), int), np.array([place[i] for i in found], int), np.array([*found.values()], float))
        for found in (first, second)
    ]
    fused = fuse(runs, choice, k)
    return [(ids[p], float(s)) for p, s in zip(fused.passage_R, fused.score_R, strict=True)]
