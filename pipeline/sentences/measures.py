"""Measures of sentence tasks.

Legend of suffixes: N pairs or triplets, T trainings (with different seeds), S resamples.
"""

import warnings
from typing import NamedTuple

import numpy as np

from pipeline.evaluate.significance.bootstrap import interval, resampled_means, rounded

CELLS = 4_000_000
"""Numbers of one block of resamples: 32 MB."""


class Estimate(NamedTuple):
    mean: float
    """Mean over the trainings."""
    low: float
    """Lower end of the 95 % interval over pairs; `high`: the upper end."""
    high: float


def correlations(cosine_N: np.ndarray, score_N: np.ndarray) -> dict[str, float | None]:
    """Returns Spearman's and Pearson's correlation; None if all cosines are equal."""
    from scipy import stats

    if np.ptp(cosine_N) == 0:
        return {"spearman": None, "pearson": None}
    return {
        "spearman": rounded(stats.spearmanr(cosine_N, score_N).statistic),
        "pearson": rounded(stats.pearsonr(cosine_N, score_N).statistic),
    }


def spearman(cosine_TN: np.ndarray, score_N: np.ndarray, samples: int, seed: int) -> Estimate:
    """Returns the mean of the trainings' Spearman correlations, and its 95 % interval by a bootstrap over the pairs.

    All trainings share the resamples. Resamples with only equal scores or cosines are left out; the result is NaN if
    all cosines of a training are equal.
    """
    from scipy import stats

    def of_ranks(cosine_TSN: np.ndarray, score_SN: np.ndarray) -> np.ndarray:
        ranks = stats.rankdata(cosine_TSN, axis=-1), stats.rankdata(score_SN, axis=-1)
        a_TSN, b_SN = (rank - rank.mean(-1, keepdims=True) for rank in ranks)
        with np.errstate(invalid="ignore"):
            return (a_TSN * b_SN).sum(-1) / np.sqrt((a_TSN**2).sum(-1) * (b_SN**2).sum(-1))

    mean = float(of_ranks(cosine_TN[:, None], score_N[None]).mean())
    random = np.random.default_rng(seed)
    pairs, block = len(score_N), max(1, CELLS // cosine_TN.size)
    resampled = []
    for i in range(0, samples, block):
        chosen_SN = random.integers(pairs, size=(min(block, samples - i), pairs))
        resampled.append(of_ranks(cosine_TN[:, chosen_SN], score_N[chosen_SN]).mean(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # if all are NaN
        low, high = np.nanquantile(np.concatenate(resampled), [0.025, 0.975])
    return Estimate(rounded(mean), rounded(low), rounded(high))


def accuracy(right_TN: np.ndarray, samples: int, seed: int) -> Estimate:
    """Returns the mean share of `right` triplets (bool), and its 95 % interval by a bootstrap over the triplets."""
    share_N1 = right_TN.mean(0)[:, None]
    low, high = (float(end[0]) for end in interval(resampled_means(share_N1, samples, seed)))
    return Estimate(rounded(share_N1.mean()), rounded(low), rounded(high))
