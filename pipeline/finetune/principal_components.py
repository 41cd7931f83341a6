"""Rotates the vectors of a trained bi-encoder to the principal components of its passages (Hotelling 1933).

Vectors of both sides are multiplied by the same orthogonal matrix, so inner products of whole vectors do not change.
The first numbers then represent the passages' vectors with the smallest squared error. The mean is not subtracted,
because an inner product includes it.

Shapes: N passages, E dimensions of a vector.
"""

from dataclasses import replace

import numpy as np

from pipeline.finetune.encoders import Towers
from pipeline.modeling.biencoder import Encoder, Prefix, as_projection, compose

PASSAGES = 8192
"""Passages whose vectors are measured; with 2,048 the demo's prefixes are as good within .002 of nDCG@10."""


def sample(passages: int, seed: int) -> np.ndarray:
    """Returns the rows of at most PASSAGES passages, drawn at random, in order, [N]."""
    drawn = np.random.default_rng(seed).choice(passages, min(passages, PASSAGES), replace=False)
    return np.sort(drawn)


def can_rotate(towers: Towers) -> bool:
    """Whether a rotation can be joined with the projections: not after an activation, nor with a `Prefix`."""
    projections = [one.projection for one in towers.encoders]
    return all(one is None or (not isinstance(one, Prefix) and one.activation == "Identity") for one in projections)


def rotated_towers(towers: Towers, vectors_NE: np.ndarray) -> Towers:
    """Returns towers whose vectors have the principal components of `vectors_NE` as axes, the largest first."""
    component_EE = principal_components(vectors_NE)
    questions = passages = _rotated(towers.encoders[0], component_EE)
    if not towers.tied:
        passages = _rotated(towers.encoders[1], component_EE)
    return towers._replace(encoders=(questions, passages))


def principal_components(vectors_NE: np.ndarray) -> np.ndarray:
    """Returns orthonormal rows, float64 [E, E]; the largest number of each is positive."""
    wide_NE = vectors_NE.astype(np.float64)
    component_EE = np.linalg.eigh(wide_NE.T @ wide_NE)[1].T[::-1]
    largest_E = component_EE[np.arange(len(component_EE)), np.abs(component_EE).argmax(1)]
    return np.ascontiguousarray(component_EE * np.sign(largest_E)[:, None])


def _rotated(encoder: Encoder, component_EE: np.ndarray) -> Encoder:
    projection = as_projection(compose(component_EE, encoder.projection.dense if encoder.projection else None))
    assert projection is not None
    return replace(encoder, projection=projection.to(encoder.device))
