"""One update of a bi-encoder with in-batch negatives over all ranks, with or without a gradient cache.

Shapes: Q questions, P passages, D dimension; of the whole batch unless called local.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.distributed import gather

Encode = Callable[[int, int], Tensor]


def loss(
    questions_QD: Tensor, passages_PD: Tensor, positive_Q: Tensor, excluded_QP: Tensor, temperature: float
) -> Tensor:
    """Mean over questions of -log softmax over inner products with all P passages (DPR, equation 2).

    `positive_Q`: column of each question's positive. `excluded_QP`: passages left out of a question's softmax.
    """
    scores_QP = questions_QD @ passages_PD.T / temperature
    return F.cross_entropy(scores_QP.masked_fill(excluded_QP, -torch.inf), positive_Q)


def chunks(rows: int, size: int) -> list[tuple[int, int]]:
    """range(rows) in (start, stop) of `size` rows; in one piece for size 0. No rows are one empty piece."""
    step = size or max(rows, 1)
    return [(start, min(start + step, rows)) for start in range(0, max(rows, 1), step)]


def gather_rows(local_RD: Tensor, counts: Sequence[int]) -> Tensor:
    """Rows of all ranks in rank order; rank r has counts[r] of them."""
    padded = local_RD.new_zeros(max(counts), local_RD.shape[1])
    padded[: len(local_RD)] = local_RD
    return torch.cat([part[:count] for part, count in zip(gather(padded), counts, strict=True)])


def backward(
    encode_questions: Encode,
    encode_passages: Encode,
    question_bounds: Sequence[int],
    passages_per_question: int,
    rank: int,
    excluded_QP: np.ndarray,
    temperature: float,
    chunk: int,
) -> Tensor:
    """Leave this rank's part of the gradient of the batch's loss; the parts sum to it. Returns the loss, on each rank.

    `encode_*(start, stop)` give the vectors of local rows, the same at every call. Rank r has the questions
    question_bounds[r] up to question_bounds[r + 1] and their passages, positive first. With `chunk` > 0 rows are
    encoded without a graph first and, once the gradient of the loss with respect to each vector is known, again in
    chunks (gradient cache: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup).
    """
    counts = np.diff(question_bounds).tolist()
    mine = counts[rank]
    parts = [(encode_questions, *span) for span in chunks(mine, chunk)]
    parts += [(encode_passages, *span) for span in chunks(mine * passages_per_question, chunk)]
    with torch.set_grad_enabled(chunk == 0):
        vectors = [encode(start, stop) for encode, start, stop in parts]
    local = torch.cat([vector.detach().float() for vector in vectors])
    passage_counts = [count * passages_per_question for count in counts]
    questions_QD = gather_rows(local[:mine], counts).requires_grad_()
    passages_PD = gather_rows(local[mine:], passage_counts).requires_grad_()

    # Every rank computes the whole loss: its vectors take part in the other ranks' questions too.
    positive_Q = torch.arange(len(questions_QD), device=local.device) * passages_per_question
    excluded = torch.from_numpy(excluded_QP).to(local.device)
    value = loss(questions_QD, passages_PD, positive_Q, excluded, temperature)
    if not mine:  # fewer questions than ranks: this one was needed for the exchange alone
        return value.detach()
    by_question, by_passage = torch.autograd.grad(value, (questions_QD, passages_PD))
    start = question_bounds[rank]
    own = torch.cat(
        [
            by_question[start : start + mine],
            by_passage[start * passages_per_question :][: mine * passages_per_question],
        ]
    )
    gradients = [
        part.to(vector.dtype) for part, vector in zip(own.split([len(v) for v in vectors]), vectors, strict=True)
    ]
    if chunk == 0:
        torch.autograd.backward(vectors, gradients)
    else:
        for (encode, first, last), gradient in zip(parts, gradients, strict=True):
            encode(first, last).backward(gradient)
    return value.detach()
