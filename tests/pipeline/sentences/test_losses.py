"""Losses and measures of sentence tasks against computations by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats
from torch import nn

from pipeline.sentences import kinds, measures


def test_the_loss_of_scored_pairs_is_the_squared_difference_of_cosine_and_score() -> None:
    vectors = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [4.0, 3.0]])  # cosines 0 and 24/25
    value = kinds.cosine_loss(vectors, torch.tensor([0.5, 1.0]))
    assert value.item() == pytest.approx((0.5**2 + (24 / 25 - 1) ** 2) / 2)


def test_the_loss_of_labelled_pairs_is_the_cross_entropy_of_u_v_and_their_difference() -> None:
    vectors = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    assert kinds.features(vectors).tolist() == [[1.0, -1.0, 0.5, 2.0, 0.5, 3.0]]
    classifier = nn.Linear(6, 3)
    with torch.no_grad():
        classifier.weight.copy_(torch.arange(18).reshape(3, 6) / 10)
        classifier.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    logits = [sum(w / 10 * x for w, x in zip(range(6 * k, 6 * k + 6), [1, -1, 0.5, 2, 0.5, 3], strict=True)) + b
              for k, b in enumerate((0.0, 1.0, -1.0))]  # fmt: skip
    expected = math.log(sum(math.exp(x) for x in logits)) - logits[1]
    assert kinds.label_loss(vectors, torch.tensor([1]), classifier).item() == pytest.approx(expected, rel=1e-5)


def test_the_negative_of_a_triplet_must_be_farther_by_the_margin() -> None:
    anchor, positive, negative = [[0.0, 0.0], [0.0, 0.0]], [[3.0, 4.0], [1.0, 0.0]], [[0.0, 5.5], [0.0, 9.0]]
    vectors = torch.tensor([*anchor, *positive, *negative])  # distances 5 and 5.5; 1 and 9
    assert kinds.triplet_loss(vectors, 1.0).item() == pytest.approx((5 - 5.5 + 1) / 2, abs=1e-5)
    assert kinds.triplet_loss(vectors, 0.25).item() == 0.0


def test_scores_and_labels_of_a_table_reach_the_loss_unchanged() -> None:
    rng = np.random.default_rng(0)
    vectors, score, label = torch.randn(8, 3), rng.random(4), [2, 0, 1, 0]
    table = pa.table({"score": pa.array(score), "label": pa.array(label, pa.int8())})
    of_scores = kinds.loss_of("scored", table, 1.0, None, "cpu")
    assert torch.equal(of_scores(vectors), kinds.cosine_loss(vectors, torch.tensor(score.tolist())))
    classifier = nn.Linear(9, 3)
    of_labels = kinds.loss_of("labelled", table, 1.0, classifier, "cpu")
    assert torch.equal(of_labels(vectors), kinds.label_loss(vectors, torch.tensor(label), classifier))


def test_spearman_equals_scipys_and_is_within_its_interval() -> None:
    rng = np.random.default_rng(0)
    score = rng.integers(0, 6, 200) / 5  # with ties, as STS-b has
    cosines = np.stack([score + rng.normal(0, 0.3, 200) for _ in range(2)])
    result = measures.spearman(cosines, score, 400, 1)
    each = [stats.spearmanr(one, score).statistic for one in cosines]
    assert result.mean == pytest.approx(np.mean(each), abs=1e-6)
    assert result.low < result.mean < result.high
    assert result == measures.spearman(cosines, score, 400, 1)
    theirs = stats.bootstrap(
        (cosines[0], score), lambda x, y: stats.spearmanr(x, y).statistic, n_resamples=400, paired=True,
        vectorized=False, method="percentile", rng=np.random.default_rng(5),
    ).confidence_interval  # fmt: skip
    ours = measures.spearman(cosines[:1], score, 400, 1)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert measures.correlations(cosines[0], score) == {
        "spearman": pytest.approx(each[0], abs=1e-6),
        "pearson": pytest.approx(stats.pearsonr(cosines[0], score).statistic, abs=1e-6),
    }


def test_equal_cosines_correlate_with_nothing() -> None:
    assert measures.correlations(np.ones(5), np.arange(5.0)) == {"spearman": None, "pearson": None}


def test_accuracy_is_a_mean_with_its_interval() -> None:
    right = np.array([[True] * 75 + [False] * 25, [True] * 25 + [False] * 75])
    result = measures.accuracy(right, 500, 1)
    assert result.mean == 0.5
    assert 0.35 < result.low < 0.5 < result.high < 0.65
