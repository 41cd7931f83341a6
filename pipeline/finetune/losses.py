"""The losses of a bi-encoder, as functions of a batch's vectors.

Shapes: Q questions, N passages of each (the positive first), P = Q * N passages of the batch, E dimensions.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def contrastive(questions_QE: Tensor, passages_PE: Tensor, excluded_QP: Tensor, temperature: float) -> Tensor:
    """Returns the contrastive loss: mean of -log softmax of the positive's inner product over P passages (DPR, eq. 2).

    `excluded_QP`: passages left out of a question's softmax.
    """
    return _of_positives(_scores(questions_QE, passages_PE, excluded_QP, temperature))


def soft_labels(
    questions_QE: Tensor, passages_PE: Tensor, excluded_QP: Tensor, temperature: float, target_QN: Tensor
) -> Tensor:
    """Returns the cross-entropy with soft targets for a question's own passages, and target 0 for the others.

    coCondenser, section 5.1, but KL(T || S) instead of the printed KL(S || T), which is infinite where T is 0; without
    T's entropy, which does not depend on the model. An excluded passage must have target 0.
    """
    log_QP = _scores(questions_QE, passages_PE, excluded_QP, temperature).log_softmax(1)
    questions, own = target_QN.shape
    log_QN = log_QP.view(questions, questions, own).diagonal().T
    return -torch.where(target_QN > 0, target_QN * log_QN, 0.0).sum(1).mean()


def learning_to_rank(questions_QE: Tensor, passages_PE: Tensor, excluded_QP: Tensor, scorer: nn.Linear) -> Tensor:
    """Returns the mean of -log softmax of s(q, d) = sigmoid(W [q ; d] + b), a baseline of the ABS paper as printed.

    W is linear and sigmoid is monotonic, so the order of passages is the same for all questions: it reranks badly.
    """
    return _of_positives(pair_scores(questions_QE, passages_PE, scorer).masked_fill(excluded_QP, -torch.inf))


def over_prefixes(
    loss: Callable[[Tensor], Tensor], vectors_RE: Tensor, dimensions: Sequence[int], normalise: bool
) -> Tensor:
    """Returns the mean of `loss` over prefixes of the vectors (Matryoshka: Kusupati et al. 2022, eq. 1, equal weights).

    A mean instead of the paper's sum, so that learning rate, clipping and curves mean the same. `normalise`: prefixes
    at length 1, as the whole vectors already are.
    """

    def prefix(dimension: int) -> Tensor:
        if dimension == vectors_RE.shape[1]:
            return vectors_RE
        prefix_RD = vectors_RE[:, :dimension]
        return F.normalize(prefix_RD, dim=1) if normalise else prefix_RD

    return torch.stack([loss(prefix(dimension)) for dimension in dimensions]).mean()


def pair_scores(questions_QE: Tensor, passages_PE: Tensor, scorer: nn.Linear) -> Tensor:
    """Returns sigmoid(W [q ; d] + b) of every pair, [Q, P]."""
    of_question_1E, of_passage_1E = scorer.weight.chunk(2, dim=1)
    return torch.sigmoid(questions_QE @ of_question_1E.T + (passages_PE @ of_passage_1E.T).T + scorer.bias)


def _of_positives(score_QP: Tensor) -> Tensor:
    """Returns the mean of -log softmax of each question's positive, the first of its own passages."""
    questions, passages = score_QP.shape
    positive_Q = torch.arange(questions, device=score_QP.device) * (passages // questions)
    return F.cross_entropy(score_QP, positive_Q)


def _scores(questions_QE: Tensor, passages_PE: Tensor, excluded_QP: Tensor, temperature: float) -> Tensor:
    return (questions_QE @ passages_PE.T / temperature).masked_fill(excluded_QP, -torch.inf)
