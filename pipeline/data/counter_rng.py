"""Random numbers as a pure function of integers: without state, for any subset, in any order, in any process."""

from typing import Any

import numpy as np

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = (1 << 64) - 1


def uniform(*key: Any) -> np.ndarray:
    """Returns uniform float64 in [0, 1), one per entry of the broadcast `key` (non-negative integers or arrays).

    Each part of the key goes through SplitMix64's mixer (Steele, Lea and Flood 2014, section 5).
    """
    x: Any = 0
    for part in key:
        if isinstance(x, int) and isinstance(part, int | np.integer):  # NumPy is slow on single numbers
            x = (x + int(part) + GOLDEN) & WORD
            x = ((x ^ (x >> 30)) * FIRST) & WORD
            x = ((x ^ (x >> 27)) * SECOND) & WORD
            x ^= x >> 31
            continue
        x = np.asarray(part).astype(np.uint64) + x  # a copy, which the next lines change in place
        x += np.uint64(GOLDEN)
        x ^= x >> np.uint64(30)
        x *= np.uint64(FIRST)
        x ^= x >> np.uint64(27)
        x *= np.uint64(SECOND)
        x ^= x >> np.uint64(31)
    return (np.atleast_1d(np.asarray(x, np.uint64)) >> np.uint64(11)) * 2.0**-53


def integers(limit: Any, *key: Any) -> np.ndarray:
    """Returns uniform int64 in [0, limit), as `uniform`."""
    return (uniform(*key) * limit).astype(np.int64)
