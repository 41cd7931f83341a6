"""Bootstrap over questions: cached resamples against resamples drawn by each call (10,000 of 10,570 questions)."""

import sys
import time
from statistics import median

import numpy as np

from pipeline.evaluate.significance import bootstrap

ROUNDS = 3
QUESTIONS, SAMPLES, COLUMNS = 10_570, 10_000, 6


def timed(values_QC: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns a call's seconds and its means."""
    started = time.perf_counter()
    means_SC = bootstrap.resampled_means(values_QC, SAMPLES, seed=0)
    return time.perf_counter() - started, means_SC


def compare_resampling() -> float:
    """Returns the ratio of a call that draws (the first with these questions) to one with cached resamples."""
    values_QC = np.random.default_rng(0).random((QUESTIONS, COLUMNS))
    seconds = []
    for _ in range(ROUNDS):
        bootstrap._kept.cache_clear()
        drawn, means_SC = timed(values_QC)
        kept, again_SC = timed(values_QC)
        assert np.array_equal(means_SC, again_SC)
        seconds.append((drawn, kept))
    print(f"drawn {median(a for a, _ in seconds):.2f} s, kept {median(b for _, b in seconds):.2f} s", file=sys.stderr)
    return median(a / b for a, b in seconds)


ROWS = {"resamples": compare_resampling}

if __name__ == "__main__":
    print(compare_resampling())
