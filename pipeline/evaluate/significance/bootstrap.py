"""Bootstrap over questions: how far a mean may be off because of the sample of questions.

Legend of suffixes: Q questions, M measures, C columns (of any systems), S resamples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

LEVEL = 0.95
DIGITS = 6
KEPT = 150_000_000
"""Largest number of counts (one byte each) that are kept for the next call."""


def resampled_means(values_QC: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Returns means of `samples` resamples of the questions. [questions, columns] -> [samples, columns], float64.

    One resample serves all columns, so that differences of columns are paired (Efron and Tibshirani, 1993, chapter 6;
    for retrieval Sakai, 2006). Memory: the means, a block of resamples (64 MB), and what `_counts` keeps (300 MB).
    """
    questions = len(values_QC)
    blocks = _counts(questions, samples, seed)
    return np.concatenate([counts_SQ.astype(np.float64) @ values_QC / questions for counts_SQ in blocks])


def _counts(questions: int, samples: int, seed: int) -> Iterable[np.ndarray]:
    """Returns how often each resample has each question, in blocks [samples, questions]. A table uses the same ones
    many times, of dev and of test, and drawing them takes ten times as long as using them, so small ones are kept."""
    drawn = _kept if questions * samples <= KEPT else _drawn
    return drawn(questions, samples, seed)


@lru_cache(maxsize=2)
def _kept(questions: int, samples: int, seed: int) -> Sequence[np.ndarray]:
    return [*_drawn(questions, samples, seed)]


def _drawn(questions: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(seed)
    share_Q = np.full(questions, 1 / questions)
    block = max(1, 4_000_000 // questions)
    for i in range(0, samples, block):
        counts_SQ = random.multinomial(questions, share_Q, size=min(block, samples - i))
        yield counts_SQ.astype(np.uint8)  # about Poisson(1): 255 is never reached


def interval(means_SC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns lower and upper ends of the central 95 % of the resampled means, each [columns]."""
    low_C, high_C = np.quantile(means_SC, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low_C, high_C


def summary(
    values: Mapping[str, np.ndarray],
    measures: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """Returns means of the systems and differences of the pairs with 95 % intervals, from {system: [Q, M]}."""
    resampled = resampled_means(np.concatenate(list(values.values()), axis=1), samples, seed)
    means = dict(zip(values, np.split(resampled, len(values), axis=1), strict=True))
    return {
        "systems": {name: estimates(measures, values[name].mean(0), means[name]) for name in values},
        "differences": {
            f"{a} - {b}": estimates(measures, (values[a] - values[b]).mean(0), means[a] - means[b]) for a, b in pairs
        },
    }


def estimates(measures: Sequence[str], mean_M: np.ndarray, means_SM: np.ndarray) -> dict[str, dict[str, float]]:
    """Returns {measure: {mean, low, high}}, rounded."""
    columns = zip(measures, mean_M, *interval(means_SM), strict=True)
    return {
        name: {key: rounded(x) for key, x in zip(("mean", "low", "high"), figures, strict=True)}
        for name, *figures in columns
    }


def rounded(figure: float) -> float:
    """Returns the figure without its last bits, which depend on the processor's order of sums, and without -0."""
    return round(float(figure), DIGITS) + 0.0
