import math

import pytest
import torch

from pipeline.losses import contrastive, mlm


def test_contrastive_is_the_papers_sum():
    cls_SD = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    rows = cls_SD.tolist()

    def inner(i: int, j: int) -> float:
        return sum(a * b for a, b in zip(rows[i], rows[j], strict=True))

    losses = [
        -math.log(math.exp(inner(i, i ^ 1)) / sum(math.exp(inner(i, j)) for j in range(6) if j != i)) for i in range(6)
    ]
    assert float(contrastive(cls_SD)) == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_contrastive_of_a_lone_pair_is_nought():
    assert float(contrastive(torch.randn(2, 4))) == 0.0


def test_mlm_is_a_sum():
    logits_MV, label_M = torch.randn(4, 7), torch.tensor([1, 0, 6, 6])
    expected = -logits_MV.log_softmax(1)[torch.arange(4), label_M].sum()
    torch.testing.assert_close(mlm(logits_MV, label_M), expected)
    assert float(mlm(torch.zeros(0, 7), torch.zeros(0, dtype=torch.long))) == 0.0
