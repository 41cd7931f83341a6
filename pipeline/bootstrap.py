"""Bootstrap over questions: how far a mean may be off because these questions were drawn and not others."""

import numpy as np

LEVEL = 0.95


def resampled_means(values_QC: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Means of `samples` resamples of the questions. [questions, columns] -> [samples, columns], float64.

    One resample serves all columns, so that differences of columns are paired (Efron and Tibshirani, 1993, chapter 6;
    for retrieval Sakai, 2006). Memory: one block of resamples.
    """
    questions = len(values_QC)
    random = np.random.default_rng(seed)
    share_Q = np.full(questions, 1 / questions)
    block = max(1, 4_000_000 // questions)
    means = [
        random.multinomial(questions, share_Q, size=min(block, samples - i)) @ values_QC / questions
        for i in range(0, samples, block)
    ]
    return np.concatenate(means)


def interval(means_SC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The central 95 % of the resampled means: lower and upper ends, each [columns]."""
    low_C, high_C = np.quantile(means_SC, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low_C, high_C
