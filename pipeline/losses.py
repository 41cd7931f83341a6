"""The losses of Condenser and coCondenser.

Shapes: M masked tokens, V vocabulary, S spans (rows 2i and 2i+1 are a pair), D dimensions.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def mlm(logits_MV: Tensor, label_M: Tensor) -> Tensor:
    """Cross-entropy summed over masked tokens, float32.

    Divided by the masked tokens of the global batch and added up over chunks and ranks it is the batch's mean: a
    departure from coCondenser's equation 5, which averages over spans (see docs/architecture.md).
    """
    return F.cross_entropy(logits_MV.float(), label_M, reduction="sum")


def contrastive(cls_SD: Tensor) -> Tensor:
    """Softmax over the inner products with all other spans, the pair's other span as the right answer; mean over spans.

    coCondenser, equation 4: no temperature, no normalisation.
    """
    scores_SS = cls_SD.float() @ cls_SD.float().T
    scores_SS.fill_diagonal_(-torch.inf)
    return F.cross_entropy(scores_SS, torch.arange(len(cls_SD), device=cls_SD.device) ^ 1)
