"""Applies a linear map to vectors that are stored: nothing is encoded again.

Shapes: N vectors, E dimension.
"""

import numpy as np

MAP = "map.npy"
"""The map, in the artifact of an adapted model."""
SHORTEST = 1e-12
"""Least norm that a vector is divided by, as in PyTorch."""


def apply_map(map_EE: np.ndarray, vectors_NE: np.ndarray, normalise: bool) -> np.ndarray:
    """Returns the mapped vectors, float32 [N, E]; of length 1 if `normalise`.

    Products are summed in float64, so that threads and blocks do not change the rounded result.
    """
    mapped_NE = vectors_NE.astype(np.float64) @ map_EE.astype(np.float64).T
    if normalise:
        mapped_NE /= np.maximum(np.linalg.norm(mapped_NE, axis=1, keepdims=True), SHORTEST)
    return mapped_NE.astype(np.float32)
