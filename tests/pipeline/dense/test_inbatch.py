import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pipeline import inbatch
from pipeline.training import seed_dropout


def test_loss_is_cross_entropy_over_what_is_not_excluded():
    questions, passages = torch.randn(2, 4), torch.randn(6, 4)
    excluded = torch.zeros(2, 6, dtype=torch.bool)
    excluded[0, 3] = True
    value = inbatch.loss(questions, passages, torch.tensor([0, 3]), excluded, 0.5)
    scores = questions @ passages.T / 0.5
    first = F.cross_entropy(scores[:1, [0, 1, 2, 4, 5]], torch.tensor([0]))
    second = F.cross_entropy(scores[1:], torch.tensor([3]))
    torch.testing.assert_close(value, (first + second) / 2)


def test_chunks():
    assert inbatch.chunks(5, 2) == [(0, 2), (2, 4), (4, 5)]
    assert inbatch.chunks(5, 0) == [(0, 5)]
    assert inbatch.chunks(0, 0) == inbatch.chunks(0, 3) == [(0, 0)]


def towers(dropout: float):
    torch.manual_seed(0)
    layer = [torch.nn.Linear(3, 8), torch.nn.Dropout(dropout), torch.nn.Tanh(), torch.nn.Linear(8, 5)]
    return torch.nn.Sequential(*layer).double()


def gradients(chunk, dropout=0.0, excluded=None):
    """Loss and gradients of 4 questions with 3 passages each; dropout keyed by the place of two rows."""
    model = towers(dropout)
    inputs = torch.randn(16, 3, generator=torch.Generator().manual_seed(1)).double()

    def encode(offset):
        def run(start, stop):
            parts = []
            for first in range(start, stop, 2):
                seed_dropout(9, offset + first)
                parts.append(model(inputs[offset + first : offset + min(first + 2, stop)]))
            return torch.cat(parts)

        return run

    mask = np.zeros((4, 12), dtype=bool) if excluded is None else excluded
    value = inbatch.backward(encode(0), encode(4), [0, 4], 3, 0, mask, 0.7, chunk)
    return value, [p.grad for p in model.parameters()]


@pytest.mark.parametrize("chunk", [2, 4, 12, 100])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_cached_gradients_equal_plain_ones(chunk, dropout):
    excluded = np.zeros((4, 12), dtype=bool)
    excluded[1, 7] = True
    plain, cached = (gradients(size, dropout, excluded) for size in (0, chunk))
    torch.testing.assert_close(plain[0], cached[0], atol=1e-6, rtol=0)
    for one, other in zip(plain[1], cached[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_gradients_are_those_of_the_plain_loss():
    model = towers(0.0)
    inputs = torch.randn(16, 3, generator=torch.Generator().manual_seed(1)).double()
    vectors = model(inputs)
    F.cross_entropy(vectors[:4] @ vectors[4:].T / 0.7, torch.arange(4) * 3).backward()
    value, found = gradients(0)
    for one, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, atol=1e-6, rtol=0)
    assert value > 0


@pytest.mark.parametrize("chunk", [0, 2])
def test_a_rank_without_questions_takes_part_in_the_exchange(monkeypatch, chunk):
    """Two ranks and one question, which is the other one's."""
    theirs = iter((torch.randn(1, 5), torch.randn(3, 5)))
    monkeypatch.setattr(inbatch, "gather", lambda x: [x, next(theirs)])

    def encode(start, stop):
        assert start == stop == 0
        return torch.zeros(0, 5)  # as `represent` gives for no rows

    value = inbatch.backward(encode, encode, [0, 0, 1], 3, 0, np.zeros((1, 3), dtype=bool), 1.0, chunk)
    assert value > 0
