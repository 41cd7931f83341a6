"""Vectors as float16, in which shards hold them."""

import numpy as np

from pipeline.errors import InputError


def to_float16(vectors_NE: np.ndarray, field: str) -> np.ndarray:
    """Returns float16 vectors. Raises InputError if a number does not fit; `field`: the learning rate to lower."""
    with np.errstate(over="ignore"):
        halves_NE = vectors_NE.astype(np.float16)
    if not np.isfinite(halves_NE).all():
        raise InputError(f"vectors beyond float16: the encoder diverged in training (try a lower {field})")
    return halves_NE
