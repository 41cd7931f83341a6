"""Prefixes of stored vectors: the first numbers, as `biencoder.Encoder.cut_to` computes them for questions.

Shapes: R rows, E dimensions of a vector, D of its prefix.
"""

import numpy as np


def prefixes(vectors_RE: np.ndarray, dimension: int, normalise: bool) -> np.ndarray:
    """Returns the first `dimension` numbers of each vector, float16 [R, D]; `normalise`: at length 1, but a zero."""
    prefix_RD = vectors_RE[:, :dimension].astype(np.float32)
    if normalise:
        prefix_RD /= np.maximum(np.linalg.norm(prefix_RD, axis=1, keepdims=True), np.float32(1e-12))
    return prefix_RD.astype(np.float16)
