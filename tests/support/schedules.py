"""What the tests of Adaptive Batch Scheduling measure schedules by."""

import numpy as np

from pipeline.finetune import examples


def sizes(pairs: int, batch: int) -> list[int]:
    return np.diff(examples.batches(pairs, batch)).tolist()


def hardness(similarity, batches) -> float:
    """Sum over the batches of the sum over i != j of sim(q_i, p_j)."""
    steps = [similarity.block(np.array([i]), np.array([j]))[0, 0] for b in batches for i in b for j in b if i < j]
    return similarity.grid.units(sum(map(int, steps)), 2 * len(steps))
