"""Losses of a bi-encoder against loops over questions and passages."""

import math

import pytest
import torch

from pipeline.finetune import losses as ranking

Q, N, E = 3, 2, 4


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return torch.randn(Q, E), torch.randn(Q * N, E)


@pytest.fixture
def excluded():
    mask = torch.zeros(Q, Q * N, dtype=torch.bool)
    mask[0, 3] = mask[2, 0] = True
    return mask


def log_softmax(scores: list[float]) -> list[float]:
    total = math.log(sum(math.exp(x) for x in scores))
    return [x - total for x in scores]


def by_loops(score, excluded, targets) -> float:
    """Mean cross-entropy over the columns that are not excluded; `targets` of a question: {column: share}."""
    losses = []
    for q in range(Q):
        columns = [p for p in range(Q * N) if not excluded[q, p]]
        logs = dict(zip(columns, log_softmax([score(q, p) for p in columns]), strict=True))
        losses.append(-sum(share * logs[p] for p, share in targets(q).items()))
    return sum(losses) / Q


def test_contrastive_equals_loops(batch, excluded):
    questions, passages = batch
    value = ranking.contrastive(questions, passages, excluded, 0.5)
    expected = by_loops(lambda q, p: float(questions[q] @ passages[p]) / 0.5, excluded, lambda q: {N * q: 1.0})
    assert float(value) == pytest.approx(expected, abs=1e-5)


def test_soft_labels_equal_loops(batch, excluded):
    questions, passages = batch
    target = torch.tensor([[0.7, 0.3], [0.5, 0.5], [0.0, 1.0]])
    value = ranking.soft_labels(questions, passages, excluded, 2.0, target)
    expected = by_loops(
        lambda q, p: float(questions[q] @ passages[p]) / 2.0,
        excluded,
        lambda q: {N * q + n: float(target[q, n]) for n in range(N)},
    )
    assert float(value) == pytest.approx(expected, abs=1e-5)


def test_soft_labels_have_the_bytes_of_the_same_loss_with_indexed_rows():
    """The blocks of a question's own passages are a view of the scores: no index, which a GPU would wait for."""
    torch.manual_seed(1)
    questions, own = 13, 8
    passages = torch.randn(questions * own, E)
    target = torch.rand(questions, own) * (torch.rand(questions, own) > 0.2)
    values, gradients = [], []
    for indexed in (False, True):
        vectors = torch.randn(questions, E, generator=torch.Generator().manual_seed(2), requires_grad=True)
        if indexed:
            rows = torch.arange(questions)
            log_QP = (vectors @ passages.T / 0.5).log_softmax(1)
            log_QN = log_QP.view(questions, questions, own)[rows, rows]
            value = -torch.where(target > 0, target * log_QN, 0.0).sum(1).mean()
        else:
            value = ranking.soft_labels(vectors, passages, torch.zeros(questions, questions * own).bool(), 0.5, target)
        value.backward()
        values.append(value.detach())
        gradients.append(vectors.grad)
    assert torch.equal(*values)
    assert torch.equal(*gradients)


def test_soft_labels_with_hard_targets_equal_contrastive(batch, excluded):
    hard = torch.tensor([[1.0, 0.0]] * Q)
    value = ranking.soft_labels(*batch, excluded, 1.0, hard)
    torch.testing.assert_close(value, ranking.contrastive(*batch, excluded, 1.0))


def test_an_excluded_passage_without_a_target_keeps_loss_and_gradient_finite(batch):
    questions, passages = batch[0].requires_grad_(), batch[1]
    excluded = torch.zeros(Q, Q * N, dtype=torch.bool)
    excluded[0, 1] = True
    value = ranking.soft_labels(questions, passages, excluded, 1.0, torch.tensor([[1.0, 0.0]] * Q))
    value.backward()
    assert value.isfinite()
    assert questions.grad.isfinite().all()


def test_learning_to_rank_equals_loops(batch, excluded):
    questions, passages = batch
    scorer = torch.nn.Linear(2 * E, 1)

    def score(q, p):
        return float(torch.sigmoid(scorer(torch.cat([questions[q], passages[p]]))))

    value = ranking.learning_to_rank(questions, passages, excluded, scorer)
    assert value.item() == pytest.approx(by_loops(score, excluded, lambda q: {N * q: 1.0}), abs=1e-5)
