import numpy as np
import pytest
import torch

from pipeline.finetune import losses, step
from pipeline.finetune.step import Piece
from pipeline.training.loop import seed_dropout

QUESTIONS, OWN, WIDTH = 4, 3, 5
ROWS = QUESTIONS * (1 + OWN)


def towers(dropout: float):
    torch.manual_seed(0)
    layer = [torch.nn.Linear(3, 8), torch.nn.Dropout(dropout), torch.nn.Tanh(), torch.nn.Linear(8, WIDTH)]
    return torch.nn.Sequential(*layer)


def inputs():
    return torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(1))


def contrastive(excluded):
    return lambda vectors: losses.contrastive(vectors[:QUESTIONS], vectors[QUESTIONS:], torch.from_numpy(excluded), 0.7)


def nothing_excluded():
    return np.zeros((QUESTIONS, QUESTIONS * OWN), dtype=bool)


def gradients(keep, size, dropout=0.0, excluded=None):
    model, x = towers(dropout), inputs()
    pieces = [Piece(0, n, np.arange(ROWS)[first : first + size]) for n, first in enumerate(range(0, ROWS, size))]

    def encode(piece):
        seed_dropout(9, piece.number)
        return model(x[piece.row_B])

    loss = contrastive(nothing_excluded() if excluded is None else excluded)
    value = step.backward(model, encode, pieces[::-1], (ROWS, WIDTH), loss, keep, "cpu")
    return value, [p.grad for p in model.parameters()]


@pytest.mark.parametrize("size", [1, 5, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_cached_gradients_equal_plain_ones(size, dropout):
    """With the same pieces the loss is equal bit for bit, also with dropout."""
    excluded = nothing_excluded()
    excluded[1, 7] = True
    plain, cached = (gradients(keep, size, dropout, excluded) for keep in (True, False))
    assert plain[0] == cached[0]
    for one, other in zip(plain[1], cached[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [1, 5, 16])
def test_gradients_equal_those_of_the_plain_loss(size):
    model = towers(0.0)
    expected = contrastive(nothing_excluded())(model(inputs()))
    expected.backward()
    for keep in (True, False):
        value, actual = gradients(keep, size)
        torch.testing.assert_close(value, expected.detach())
        for one, parameter in zip(actual, model.parameters(), strict=True):
            torch.testing.assert_close(one, parameter.grad, atol=1e-6, rtol=0)


def test_a_rank_without_pieces_takes_part_in_the_exchange(monkeypatch):
    theirs = torch.randn(ROWS, WIDTH)
    monkeypatch.setattr(step.ranks, "sum_over_ranks", lambda x: x + theirs)
    module, loss = torch.nn.Module(), contrastive(nothing_excluded())
    value = step.backward(module, lambda piece: None, [], (ROWS, WIDTH), loss, False, "cpu")
    torch.testing.assert_close(value, contrastive(nothing_excluded())(theirs))


def test_weights_of_the_loss_get_their_gradient_on_only_one_rank(monkeypatch):
    scorer = torch.nn.Linear(2 * WIDTH, 1)
    vectors = torch.randn(ROWS, WIDTH, requires_grad=True)
    excluded = torch.from_numpy(nothing_excluded())

    def loss(rows_RD):
        return losses.learning_to_rank(rows_RD[:QUESTIONS], rows_RD[QUESTIONS:], excluded, scorer)

    (expected,) = torch.autograd.grad(loss(vectors), scorer.weight)
    for rank in (0, 1):
        monkeypatch.setattr(step.ranks, "rank", lambda rank=rank: rank)
        scorer.weight.grad = torch.zeros_like(scorer.weight)
        pieces = [Piece(0, 0, np.arange(ROWS))]
        step.backward(scorer, lambda piece: vectors, pieces, (ROWS, WIDTH), loss, False, "cpu", scorer)
        torch.testing.assert_close(scorer.weight.grad, expected if rank == 0 else torch.zeros_like(expected))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("chunk", [None, 4])
def test_pieces_of_all_ranks_hold_each_row_once(monkeypatch, tied, world, chunk):
    length_R = np.random.default_rng(0).integers(3, 40, 30)
    rows, numbers = [], set()
    monkeypatch.setattr("pipeline.runtime.ranks.world", lambda: world)
    for rank in range(world):
        monkeypatch.setattr("pipeline.runtime.ranks.rank", lambda rank=rank: rank)
        for piece in step.rank_pieces(length_R, 6, tied, chunk, 100):
            rows += piece.row_B.tolist()
            assert (np.diff(length_R[piece.row_B]) >= 0).all()
            assert piece.side == 0 if tied else (piece.row_B >= 6).all() == piece.side
            assert piece.number not in numbers
            numbers.add(piece.number)
    assert sorted(rows) == list(range(30))
