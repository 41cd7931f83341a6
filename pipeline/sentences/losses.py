"""Losses of sentence tasks, as functions of a batch's vectors.

Shapes: Q examples of the batch; R rows: the first sentences of all examples, then the second ones, then the third; E
dimensions of a vector.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def scored(vectors_RE: Tensor, score_Q: Tensor) -> Tensor:
    """Returns the mean squared difference of cosines and scores (0 to 1) of the pairs (Sentence-BERT, section 3)."""
    first_QE, second_QE = vectors_RE.chunk(2)
    return F.mse_loss(F.cosine_similarity(first_QE, second_QE), score_Q)


def features(vectors_RE: Tensor) -> Tensor:
    """Returns u, v and |u - v| of each pair, [Q, 3E] (Sentence-BERT, section 3)."""
    first_QE, second_QE = vectors_RE.chunk(2)
    return torch.cat([first_QE, second_QE, (first_QE - second_QE).abs()], dim=1)


def labelled(vectors_RE: Tensor, label_Q: Tensor, classifier: nn.Linear) -> Tensor:
    """Returns the cross-entropy of the three labels, from a linear map of `features` (Sentence-BERT, section 3)."""
    return F.cross_entropy(classifier(features(vectors_RE)), label_Q)


def triplets(vectors_RE: Tensor, margin: float) -> Tensor:
    """Returns the mean of max(|a - p| - |a - n| + margin, 0), Euclidean (Sentence-BERT, section 3, with margin 1)."""
    anchor_QE, positive_QE, negative_QE = vectors_RE.chunk(3)
    return F.triplet_margin_loss(anchor_QE, positive_QE, negative_QE, margin=margin)
