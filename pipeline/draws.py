"""Random numbers as a pure function of integers: no state, any subset, any order, any process."""

from typing import Any

import numpy as np

GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(*key: Any) -> np.ndarray:
    """Uniform float64 in [0, 1), one for each entry of the broadcast `key` (non-negative integers or arrays of them).

    Each part of the key goes through SplitMix64's mixer (Steele, Lea and Flood 2014, section 5).
    """
    x = np.zeros(1, np.uint64)
    for part in key:
        x = x + np.asarray(part).astype(np.uint64) + GOLDEN
        x = (x ^ (x >> np.uint64(30))) * FIRST
        x = (x ^ (x >> np.uint64(27))) * SECOND
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)) * 2.0**-53


def integers(limit: Any, *key: Any) -> np.ndarray:
    """Uniform int64 in [0, limit), as `uniform`."""
    return (uniform(*key) * limit).astype(np.int64)
