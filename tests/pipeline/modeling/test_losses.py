import math

import pytest
import torch

from pipeline.modeling.cross_entropy import BLOCK, contrastive, cross_entropy, inverse_cloze


def test_contrastive_equals_the_papers_sum():
    cls_SD = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    rows = cls_SD.tolist()

    def inner(i: int, j: int) -> float:
        return sum(a * b for a, b in zip(rows[i], rows[j], strict=True))

    losses = [
        -math.log(math.exp(inner(i, i ^ 1)) / sum(math.exp(inner(i, j)) for j in range(6) if j != i)) for i in range(6)
    ]
    assert float(contrastive(cls_SD)) == pytest.approx(sum(losses) / 6, rel=1e-5)
    parts = [contrastive(cls_SD, slice(first, first + 4)) for first in (0, 4)]
    assert float(sum(parts)) == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_contrastive_of_a_single_pair_is_zero():
    assert float(contrastive(torch.randn(2, 4))) == 0.0


def test_inverse_cloze_predicts_the_passage_of_a_segment():
    vectors_SD = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    scores = [[float(vectors_SD[2 * i] @ vectors_SD[2 * j + 1]) for j in range(3)] for i in range(3)]
    losses = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(scores)]
    assert float(inverse_cloze(vectors_SD)) == pytest.approx(sum(losses) / 3, rel=1e-5)
    parts = [inverse_cloze(vectors_SD, slice(first, first + 4)) for first in (0, 4)]
    assert float(sum(parts)) == pytest.approx(sum(losses) / 3, rel=1e-5)


@pytest.mark.parametrize(("rows", "scale"), [(7, 1.0), (1, 1.0), (0, 1.0), (5, 10.0)])
def test_cross_entropy_by_blocks_equals_torchs(rows, scale):
    generator = torch.Generator().manual_seed(0)
    size = 2 * BLOCK + 100  # the last block is a small one
    states_ND, weight_VD = torch.randn(rows, 8, generator=generator), scale * torch.randn(size, 8, generator=generator)
    bias_V, label_N = torch.randn(size, generator=generator), torch.randint(0, size, (rows,), generator=generator)
    upstream_N = torch.randn(rows, generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        inputs = [x.to(dtype).requires_grad_() for x in (states_ND, weight_VD, bias_V)]
        if dtype == torch.float32:
            loss_N = cross_entropy(*inputs, label_N)
        else:
            loss_N = torch.nn.functional.cross_entropy(inputs[0] @ inputs[1].T + inputs[2], label_N, reduction="none")
        results.append([loss_N, *torch.autograd.grad(loss_N, inputs, upstream_N.to(dtype))])
    for ours, exact in zip(*results, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-5 * scale)
